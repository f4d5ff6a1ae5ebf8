"""Retention: how much of a study's history was pruned, and older recommendations without what they
were made from. Corrections are found by what they correct.

Only adds: a tunerd that knows nothing of it goes on beside. It takes a pruned job for a damaged
one, which teaches nothing either.

Revision ID: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

INSTANT = sa.Text().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")


def upgrade() -> None:
    """Add the tables and the index."""
    op.create_table(
        "prunings",
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sa.Column("forgotten", sa.BigInteger(), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.Column("pruned_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["study"], ["studies.name"], name="fk_prunings_study_studies"),
        sa.PrimaryKeyConstraint("study", name="pk_prunings"),
    )
    op.create_table(
        "issued",
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("recommendation_id", sa.Text(), nullable=False),
        sa.Column("context_key", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("said_at", INSTANT, nullable=False),
        sa.Column("message", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["study"], ["studies.name"], name="fk_issued_study_studies"),
        sa.PrimaryKeyConstraint("study", "recommendation_id", name="pk_issued"),
    )
    op.create_index("ix_issued_recommendation_id", "issued", ["recommendation_id"])
    op.create_index("ix_issued_study_said_at", "issued", ["study", "said_at"])
    corrected = sa.text("corrects IS NOT NULL")
    op.create_index(
        "ix_observations_study_corrects",
        "observations",
        ["study", "corrects"],
        sqlite_where=corrected,
        postgresql_where=corrected,
        if_not_exists=True,  # in PostgreSQL it is built before, while others write
    )
