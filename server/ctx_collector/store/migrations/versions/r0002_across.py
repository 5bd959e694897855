"""What ranks say of each other."""

import sqlalchemy as sa
from alembic import op

revision = "r0002"
down_revision = "r0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "texts",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("sort", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_table(
        "speakers",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("host", sa.Text, primary_key=True),
        sa.Column("pid", sa.BigInteger, primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
    )
    op.create_table(
        "assemblies",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("group", sa.Text, primary_key=True),
        sa.Column("data", sa.JSON, nullable=False),
    )


def downgrade() -> None:
    """Drop the tables."""
    for table in ("assemblies", "speakers", "texts"):
        op.drop_table(table)
