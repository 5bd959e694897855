"""What is kept: observations in DuckDB, state (runs, ranks, alerts) in SQLite.

Does: every line of SQL, behind a closed set of named queries. Must not: decide anything about a run.
"""
