"""What each instance can search for the others, so that nothing is offered to those that do not.

Only adds: a tunerd that knows nothing of it leaves the column empty, and is offered nothing.

Revision ID: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("instances", sa.Column("searches_as", sa.Text()))
