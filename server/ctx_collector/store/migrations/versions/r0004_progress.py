"""When a rank last went on, and the phase that it declared."""

import sqlalchemy as sa
from alembic import op

revision = "r0004"
down_revision = "r0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("ranks", sa.Column("progress_ns", sa.BigInteger))
    op.add_column("ranks", sa.Column("phase", sa.Text))


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("ranks", "phase")
    op.drop_column("ranks", "progress_ns")
