"""Searches that an instance offers to the others, and how many each did for others.

Only adds: a tunerd that knows nothing of it goes on beside, and offers and takes none.

Revision ID: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

INSTANT = sa.Text().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the table, its index and the column."""
    op.create_table(
        "search_tasks",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("context_key", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("offered_at", INSTANT, nullable=False),
        sa.Column("claimed_by", sa.Text()),
        sa.Column("claimed_until", INSTANT),
        sa.Column("finished", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("basis", sa.LargeBinary(), nullable=False),
        sa.Column("result", sa.LargeBinary()),
        sa.ForeignKeyConstraint(["study"], ["studies.name"], name="fk_search_tasks_study_studies"),
        sa.PrimaryKeyConstraint("id", name="pk_search_tasks"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_search_tasks_study", "search_tasks", ["study"])
    op.add_column(
        "instances",
        sa.Column("searched", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
    )
