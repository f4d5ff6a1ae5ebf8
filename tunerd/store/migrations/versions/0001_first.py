"""The first schema.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Written out, not imported: the tables move on, this step does not.
INSTANT = sa.Text().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "daemons",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("since", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_daemons"),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text()),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )
    op.create_table(
        "outbox",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("key", sa.LargeBinary()),
        sa.Column("value", sa.LargeBinary()),
        sa.Column("headers", sa.Text(), nullable=False),
        sa.Column("study", sa.Text()),
        sa.Column("context_id", sa.Text()),
        sa.Column("context_key", sa.Text()),
        sa.Column("revision", sa.BigInteger()),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("settled_at", INSTANT),
        sa.Column("outcome", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_outbox_settled",
        "outbox",
        ["settled_at"],
        sqlite_where=sa.text("settled_at IS NOT NULL"),
        postgresql_where=sa.text("settled_at IS NOT NULL"),
    )
    op.create_index(
        "ix_outbox_waiting",
        "outbox",
        ["id"],
        sqlite_where=sa.text("settled_at IS NULL"),
        postgresql_where=sa.text("settled_at IS NULL"),
    )
    op.create_index(
        "ix_outbox_waiting_key",
        "outbox",
        ["study", "context_id"],
        sqlite_where=sa.text("settled_at IS NULL"),
        postgresql_where=sa.text("settled_at IS NULL"),
    )
    op.create_table(
        "positions",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "topic", "partition", name="pk_positions"),
    )
    op.create_table(
        "studies",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.Column("learned_sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_studies"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["study"], ["studies.name"], name="fk_checkpoints_study"),
        sa.PrimaryKeyConstraint("study", "name", name="pk_checkpoints"),
    )
    op.create_table(
        "commands",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("finished_at", INSTANT),
        sa.Column("result", sa.Text()),
        sa.ForeignKeyConstraint(["study"], ["studies.name"], name="fk_commands_study"),
        sa.PrimaryKeyConstraint("id", name="pk_commands"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_commands_pending",
        "commands",
        ["study"],
        sqlite_where=sa.text("finished_at IS NULL"),
        postgresql_where=sa.text("finished_at IS NULL"),
    )
    op.create_table(
        "context_states",
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("context_id", sa.Text(), nullable=False),
        sa.Column("context_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("last_job_at", INSTANT),
        sa.Column("searched_sequence", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["study"], ["studies.name"], name="fk_context_states_study"),
        sa.PrimaryKeyConstraint("study", "context_id", name="pk_context_states"),
    )
    op.create_table(
        "generations",
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("published_at", INSTANT, nullable=False),
        sa.Column("published_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["study"], ["studies.name"], name="fk_generations_study"),
        sa.PrimaryKeyConstraint("study", "generation", name="pk_generations"),
    )
    op.create_table(
        "observations",
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("finished_at", INSTANT, nullable=False),
        sa.Column("received_at", INSTANT, nullable=False),
        sa.Column("measured_s", sa.Double()),
        sa.Column("gpus", sa.BigInteger()),
        sa.Column("username", sa.Text()),
        sa.Column("recommendation_id", sa.Text()),
        sa.Column("candidate_id", sa.Text()),
        sa.Column("context", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["study"], ["studies.name"], name="fk_observations_study"),
        sa.PrimaryKeyConstraint("study", "sequence", name="pk_observations"),
        sa.UniqueConstraint("source", "event_id", name="uq_observations_source_event_id"),
    )
    op.create_table(
        "recommendations",
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("context_id", sa.Text(), nullable=False),
        sa.Column("context_key", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("recommendation_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("proposal", sa.Text()),
        sa.Column("issued_at", INSTANT, nullable=False),
        sa.Column("valid_until", INSTANT, nullable=False),
        sa.Column("renew_at", INSTANT),
        sa.ForeignKeyConstraint(["study"], ["studies.name"], name="fk_recommendations_study"),
        sa.PrimaryKeyConstraint("study", "context_id", name="pk_recommendations"),
    )
    op.create_table(
        "study_states",
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("saved_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["study"], ["studies.name"], name="fk_study_states_study"),
        sa.PrimaryKeyConstraint("study", name="pk_study_states"),
    )
    op.create_table(
        "tune_steps",
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("sequence_from", sa.BigInteger(), nullable=False),
        sa.Column("sequence_to", sa.BigInteger(), nullable=False),
        sa.Column("seeds", sa.Text(), nullable=False),
        sa.Column("model", sa.Text()),
        sa.Column("swapped_model", sa.Text()),
        sa.Column("contexts", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("finished_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["study"], ["studies.name"], name="fk_tune_steps_study"),
        sa.PrimaryKeyConstraint("study", "step", name="pk_tune_steps"),
    )
