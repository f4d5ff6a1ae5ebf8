"""Attempts of jobs whose halves are joined; observations that take the place of earlier ones.

Revision ID: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

INSTANT = sa.Text().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")


def upgrade() -> None:
    """Add the column and the table."""
    op.add_column("observations", sa.Column("corrects", sa.BigInteger()))
    op.create_table(
        "attempts",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("study", sa.Text()),
        sa.Column("missing", sa.Text(), nullable=False),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("first_at", INSTANT, nullable=False),
        sa.Column("last_at", INSTANT, nullable=False),
        sa.Column("sequence", sa.BigInteger()),
        sa.Column("corrections", sa.BigInteger(), nullable=False),
        sa.Column("material", sa.Text()),
        sa.Column("halves", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "job_id", "attempt", name="pk_attempts"),
    )
    op.create_index("ix_attempts_ended_last_at", "attempts", ["ended", "last_at"])
