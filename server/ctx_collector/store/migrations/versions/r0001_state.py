"""Runs, ranks, regions, alerts, and how far detection has come."""

import sqlalchemy as sa
from alembic import op

revision = "r0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "progress",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("watermark", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "runs",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("started_ns", sa.BigInteger, nullable=False),
        sa.Column("last_seen_ns", sa.BigInteger, nullable=False),
        sa.Column("world_size", sa.Integer),
        sa.Column("paddle_version", sa.Text),
        sa.Column("command", sa.JSON, nullable=False),
        sa.Column("regions_captured", sa.BigInteger, nullable=False),
        sa.Column("regions_replayed", sa.BigInteger, nullable=False),
        sa.Column("slots_compared", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "ranks",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("rank", sa.Integer, primary_key=True),
        sa.Column("pid", sa.BigInteger),
        sa.Column("host", sa.Text),
        sa.Column("step", sa.BigInteger),
        sa.Column("last_seen_ns", sa.BigInteger, nullable=False),
        sa.Column("own_seconds", sa.Float, nullable=False),
        sa.Column("exited", sa.Boolean, nullable=False),
        sa.Column("exit_code", sa.BigInteger),
        sa.Column("exit_signal", sa.Text),
        sa.Column("ended_ns", sa.BigInteger),
        sa.Column("dropped", sa.JSON, nullable=False),
        sa.Column("cells", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "regions",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("index", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("source", sa.Text),
        sa.Column("captures", sa.BigInteger, nullable=False),
        sa.Column("replays", sa.BigInteger, nullable=False),
        sa.Column("last_step", sa.BigInteger),
    )
    op.create_table(
        "alerts",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("fingerprint", sa.Text, primary_key=True),
        sa.Column("rule", sa.Text, nullable=False),
        sa.Column("severity", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("finding", sa.JSON, nullable=False),
        sa.Column("evidence_step", sa.BigInteger),
        sa.Column("evidence_rank", sa.Integer, nullable=False),
        sa.Column("first_seen_ns", sa.BigInteger, nullable=False),
        sa.Column("last_seen_ns", sa.BigInteger, nullable=False),
        sa.Column("resolved_ns", sa.BigInteger),
    )
    op.create_table(
        "alert_ranks",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("fingerprint", sa.Text, primary_key=True),
        sa.Column("rank", sa.Integer, primary_key=True),
        sa.Column("pid", sa.BigInteger),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("first_step", sa.BigInteger),
        sa.Column("last_step", sa.BigInteger),
        sa.Column("last_clean_step", sa.BigInteger),
    )


def downgrade() -> None:
    """Drop the tables."""
    for table in ("alert_ranks", "alerts", "regions", "ranks", "runs", "progress"):
        op.drop_table(table)
