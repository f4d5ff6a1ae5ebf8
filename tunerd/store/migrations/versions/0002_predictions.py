"""What was predicted of each job before it was learned; which jobs were imported.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

INSTANT = sa.Text().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")


def upgrade() -> None:
    """Add the column and the table."""
    # No job was imported before there was a way to import.
    op.add_column(
        "observations",
        sa.Column("history", sa.Boolean(), server_default=sa.false(), nullable=False),
    )
    op.create_table(
        "predictions",
        sa.Column(
            "study",
            sa.Text(),
            sa.ForeignKey("studies.name", name="fk_predictions_study_studies"),
            nullable=False,
        ),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", INSTANT, nullable=False),
        sa.Column("history", sa.Boolean(), nullable=False),
        sa.Column("context_key", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("study", "sequence", name="pk_predictions"),
    )
    op.create_index("ix_predictions_study_finished_at", "predictions", ["study", "finished_at"])
