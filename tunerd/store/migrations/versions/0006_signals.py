"""Signals: numbers over time, and what is planned on their forecasts.

Only adds: a tunerd that knows nothing of it goes on beside.

Revision ID: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

INSTANT = sa.Text().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "signals",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("last_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_signals"),
        sa.UniqueConstraint("name", name="uq_signals_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "signal_points",
        sa.Column("signal_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("signal_id", "at_ms", name="pk_signal_points"),
    )
    op.create_table(
        "forecast_plans",
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("made_at", INSTANT, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["study"], ["studies.name"], name="fk_forecast_plans_study_studies"
        ),
        sa.PrimaryKeyConstraint("study", name="pk_forecast_plans"),
    )
