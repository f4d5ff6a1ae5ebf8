"""Predictions that can be trusted, and decisions that follow from them.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.Text().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")


def upgrade() -> None:
    """Add what each room keeps."""
    _models()
    _requests()
    _derivations()


def _models() -> None:
    """Every model that was built, and what became of it."""
    op.create_table(
        "models",
        sa.Column(
            "study",
            sa.Text(),
            sa.ForeignKey("studies.name", name="fk_models_study_studies"),
            nullable=False,
        ),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint", sa.Text()),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("fitted_sequence", sa.BigInteger(), nullable=False),
        sa.Column("decided_sequence", sa.BigInteger(), nullable=False),
        sa.Column("took_over", sa.Boolean(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("decided_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("study", "version", name="pk_models"),
    )


def _requests() -> None:
    """What was asked, until it is answered and a while longer."""
    op.create_table(
        "requests",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("username", sa.Text()),
        sa.Column("context", sa.Text(), nullable=False),
        sa.Column("requested_at", INSTANT),
        sa.Column("received_at", INSTANT, nullable=False),
        sa.Column("answered_at", INSTANT),
        sa.Column("answer", sa.Text()),
        sa.ForeignKeyConstraint(["study"], ["studies.name"], name="fk_requests_study_studies"),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
        sa.UniqueConstraint("source", "event_id", name="uq_requests_source_event_id"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_requests_unanswered",
        "requests",
        ["study"],
        sqlite_where=sa.text("answered_at IS NULL"),
        postgresql_where=sa.text("answered_at IS NULL"),
    )
    op.create_index("ix_requests_study_answered_at", "requests", ["study", "answered_at"])


def _derivations() -> None:
    """What each recommendation was made from."""
    op.create_table(
        "derivations",
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("recommendation_id", sa.Text(), nullable=False),
        sa.Column("context_key", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("said_at", INSTANT, nullable=False),
        sa.Column("message", sa.LargeBinary(), nullable=False),
        sa.Column("basis", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["study"], ["studies.name"], name="fk_derivations_study_studies"),
        sa.PrimaryKeyConstraint("study", "recommendation_id", name="pk_derivations"),
    )
    op.create_index("ix_derivations_recommendation_id", "derivations", ["recommendation_id"])
    op.create_index("ix_derivations_study_said_at", "derivations", ["study", "said_at"])
