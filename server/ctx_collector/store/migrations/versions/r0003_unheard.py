"""Why the ranks of a run could not be compared, when nobody speaks any more."""

import sqlalchemy as sa
from alembic import op

revision = "r0003"
down_revision = "r0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("runs", sa.Column("unheard", sa.JSON, nullable=False, server_default="[]"))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("runs", "unheard")
