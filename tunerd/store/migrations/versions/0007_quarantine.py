"""Quarantine: jobs that nothing is learned from until somebody releases them.

Only adds: a tunerd that knows nothing of it goes on beside, and takes a release for a correction.

Revision ID: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INSTANT = sa.Text().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")


def upgrade() -> None:
    """Add the table and the mark."""
    op.add_column(
        "observations",
        sa.Column("released", sa.Boolean(), server_default=sa.false(), nullable=False),
    )
    op.create_table(
        "quarantine",
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("value", sa.Double()),
        sa.Column("context_key", sa.Text(), nullable=False),
        sa.Column("config_id", sa.Text(), nullable=False),
        sa.Column("held_at", INSTANT, nullable=False),
        sa.Column("settled_at", INSTANT),
        sa.Column("settled_by", sa.Text()),
        sa.Column("why", sa.Text()),
        sa.ForeignKeyConstraint(["study"], ["studies.name"], name="fk_quarantine_study_studies"),
        sa.PrimaryKeyConstraint("study", "sequence", name="pk_quarantine"),
    )
    op.create_index("ix_quarantine_study_state", "quarantine", ["study", "state"])
