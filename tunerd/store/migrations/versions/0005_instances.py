"""Several instances: who is there, and what tuning a study costs.

Only adds: a tunerd that knows nothing of it goes on beside.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

INSTANT = sa.Text().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")


def upgrade() -> None:
    """Add the table of instances, and the load of a lease."""
    op.create_table(
        "instances",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("installation", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("stages", sa.Text(), nullable=False),
        sa.Column("started_at", INSTANT, nullable=False),
        sa.Column("heartbeat_at", INSTANT, nullable=False),
        sa.Column("tuner_at", INSTANT),
        sa.Column("partitions", sa.Text(), nullable=False),
        sa.Column("lag", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name", name="pk_instances"),
    )
    op.add_column(
        "leases", sa.Column("load", sa.Double(), server_default=sa.text("0"), nullable=False)
    )
    op.add_column("leases", sa.Column("load_at", INSTANT))
