"""Alembic's scripts for the state database; run whenever the collector starts."""
