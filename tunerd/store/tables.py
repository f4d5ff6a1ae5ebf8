"""The schema as it is today. The migrations lead here; a test holds the two together.

JSON is kept as text: nothing inside it is queried, text gives back exactly what was written, and
both databases treat it alike.
"""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator, TypeEngine

from tunerd.errors import CorruptDataError
from tunerd.store.engine import instant_text

__all__ = [
    "UtcDateTime",
    "attempts",
    "checkpoints",
    "commands",
    "context_states",
    "daemons",
    "derivations",
    "forecast_plans",
    "generations",
    "instances",
    "issued",
    "leases",
    "metadata",
    "models",
    "observations",
    "outbox",
    "positions",
    "predictions",
    "prunings",
    "quarantine",
    "recommendations",
    "requests",
    "search_tasks",
    "signal_points",
    "signals",
    "studies",
    "study_states",
    "tune_steps",
]


class UtcDateTime(TypeDecorator[datetime]):
    """A moment: TIMESTAMP WITH TIME ZONE, in SQLite ISO 8601 text in UTC. Comes back in UTC."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, instead: datetime | None = None) -> None:
        super().__init__()
        self.instead = instead
        """What stands in for a damaged one; without it, that raises."""

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        """The column's type."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.TIMESTAMP(timezone=True))
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> object:
        """Towards the database."""
        if value is None:
            return None
        text = instant_text(value)
        return value if dialect.name == "postgresql" else text

    def process_result_value(self, value: object, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        """From the database."""
        if value is None:
            return None
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError as error:
                if self.instead is not None:
                    return self.instead
                raise CorruptDataError(f"a time is damaged: {error}") from error
        assert isinstance(value, datetime)
        return value if value.tzinfo is UTC else value.astimezone(UTC)


_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""SQLite counts up only what is called INTEGER."""

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    }
)


def _study(*, primary_key: bool = False) -> sa.Column[str]:
    return sa.Column(
        "study", sa.Text, sa.ForeignKey("studies.name"), primary_key=primary_key, nullable=False
    )


def _context_id() -> sa.Column[str]:
    """Stands for the context key in indexes, which cannot hold very long ones."""
    return sa.Column("context_id", sa.Text, primary_key=True)


studies = sa.Table(
    "studies",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("last_sequence", sa.BigInteger, nullable=False),
    sa.Column("learned_sequence", sa.BigInteger, nullable=False),
)

generations = sa.Table(
    "generations",
    metadata,
    _study(primary_key=True),
    sa.Column("generation", sa.BigInteger, primary_key=True),
    sa.Column("content_hash", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("published_at", UtcDateTime, nullable=False),
    sa.Column("published_by", sa.Text, nullable=False),
)

observations = sa.Table(
    "observations",
    metadata,
    _study(primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("content_hash", sa.Text, nullable=False),
    sa.Column("job_id", sa.Text, nullable=False),
    sa.Column("attempt", sa.BigInteger, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("finished_at", UtcDateTime, nullable=False),
    sa.Column("received_at", UtcDateTime, nullable=False),
    sa.Column("measured_s", sa.Double),
    sa.Column("gpus", sa.BigInteger),
    sa.Column("username", sa.Text),
    sa.Column("recommendation_id", sa.Text),
    sa.Column("candidate_id", sa.Text),
    sa.Column("context", sa.Text, nullable=False),
    sa.Column("config", sa.Text, nullable=False),
    sa.Column("metrics", sa.Text, nullable=False),
    sa.Column("extra", sa.Text, nullable=False),
    sa.Column("history", sa.Boolean, server_default=sa.false(), nullable=False),
    sa.Column("corrects", sa.BigInteger),
    sa.Column("released", sa.Boolean, server_default=sa.false(), nullable=False),
    sa.UniqueConstraint("source", "event_id"),
)

_corrected = observations.c.corrects.is_not(None)
sa.Index(
    "ix_observations_study_corrects",
    observations.c.study,
    observations.c.corrects,
    sqlite_where=_corrected,
    postgresql_where=_corrected,
)

prunings = sa.Table(
    "prunings",
    metadata,
    _study(primary_key=True),
    sa.Column("jobs", sa.BigInteger, nullable=False),
    sa.Column("forgotten", sa.BigInteger, nullable=False),
    sa.Column("last_sequence", sa.BigInteger, nullable=False),
    sa.Column("pruned_at", UtcDateTime, nullable=False),
)

quarantine = sa.Table(
    "quarantine",
    metadata,
    _study(primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("value", sa.Double),
    sa.Column("context_key", sa.Text, nullable=False),
    sa.Column("config_id", sa.Text, nullable=False),
    sa.Column("held_at", UtcDateTime, nullable=False),
    sa.Column("settled_at", UtcDateTime),
    sa.Column("settled_by", sa.Text),
    sa.Column("why", sa.Text),
)
sa.Index("ix_quarantine_study_state", quarantine.c.study, quarantine.c.state)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("attempt", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("study", sa.Text),
    sa.Column("missing", sa.Text, nullable=False),
    sa.Column("ended", sa.Boolean, nullable=False),
    sa.Column("first_at", UtcDateTime, nullable=False),
    sa.Column("last_at", UtcDateTime, nullable=False),
    sa.Column("sequence", sa.BigInteger),
    sa.Column("corrections", sa.BigInteger, nullable=False),
    sa.Column("material", sa.Text),
    # Last, as blobs are.
    sa.Column("halves", sa.Text, nullable=False),
)
sa.Index("ix_attempts_ended_last_at", attempts.c.ended, attempts.c.last_at)

predictions = sa.Table(
    "predictions",
    metadata,
    _study(primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True),
    sa.Column("finished_at", UtcDateTime, nullable=False),
    sa.Column("history", sa.Boolean, nullable=False),
    sa.Column("context_key", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
)
sa.Index("ix_predictions_study_finished_at", predictions.c.study, predictions.c.finished_at)

positions = sa.Table(
    "positions",
    metadata,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("topic", sa.Text, primary_key=True),
    sa.Column("partition", sa.Text, primary_key=True),
    sa.Column("next_offset", sa.BigInteger, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
)

outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("message_id", sa.Text, nullable=False),
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("key", sa.LargeBinary),
    sa.Column("value", sa.LargeBinary),
    sa.Column("headers", sa.Text, nullable=False),
    sa.Column("study", sa.Text),
    sa.Column("context_id", sa.Text),
    sa.Column("context_key", sa.Text),
    sa.Column("revision", sa.BigInteger),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("settled_at", UtcDateTime),
    sa.Column("outcome", sa.Text),
    # An id is never given twice, even after everything was pruned: mark_sent goes by id.
    sqlite_autoincrement=True,
)
_waiting = outbox.c.settled_at.is_(None)
sa.Index("ix_outbox_waiting", outbox.c.id, sqlite_where=_waiting, postgresql_where=_waiting)
sa.Index(
    "ix_outbox_waiting_key",
    outbox.c.study,
    outbox.c.context_id,
    sqlite_where=_waiting,
    postgresql_where=_waiting,
)
_settled = outbox.c.settled_at.is_not(None)
sa.Index("ix_outbox_settled", outbox.c.settled_at, sqlite_where=_settled, postgresql_where=_settled)

recommendations = sa.Table(
    "recommendations",
    metadata,
    _study(primary_key=True),
    _context_id(),
    sa.Column("context_key", sa.Text, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("recommendation_id", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("proposal", sa.Text),
    sa.Column("issued_at", UtcDateTime, nullable=False),
    sa.Column("valid_until", UtcDateTime, nullable=False),
    sa.Column("renew_at", UtcDateTime),
)

tune_steps = sa.Table(
    "tune_steps",
    metadata,
    _study(primary_key=True),
    sa.Column("step", sa.BigInteger, primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("sequence_from", sa.BigInteger, nullable=False),
    sa.Column("sequence_to", sa.BigInteger, nullable=False),
    sa.Column("seeds", sa.Text, nullable=False),
    sa.Column("model", sa.Text),
    sa.Column("swapped_model", sa.Text),
    sa.Column("contexts", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("finished_at", UtcDateTime, nullable=False),
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    _study(primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("created_at", UtcDateTime, nullable=False),
    # Last: SQLite reads a row from the front, and nobody who asks for the time wants the blob.
    sa.Column("blob", sa.LargeBinary, nullable=False),
)

models = sa.Table(
    "models",
    metadata,
    _study(primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("checkpoint", sa.Text),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("fitted_sequence", sa.BigInteger, nullable=False),
    sa.Column("decided_sequence", sa.BigInteger, nullable=False),
    sa.Column("took_over", sa.Boolean, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("decided_at", UtcDateTime, nullable=False),
)

derivations = sa.Table(
    "derivations",
    metadata,
    _study(primary_key=True),
    sa.Column("recommendation_id", sa.Text, primary_key=True),
    sa.Column("context_key", sa.Text, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("said_at", UtcDateTime, nullable=False),
    sa.Column("message", sa.LargeBinary, nullable=False),
    sa.Column("basis", sa.LargeBinary, nullable=False),
)
sa.Index("ix_derivations_recommendation_id", derivations.c.recommendation_id)
sa.Index("ix_derivations_study_said_at", derivations.c.study, derivations.c.said_at)

issued = sa.Table(
    "issued",
    metadata,
    _study(primary_key=True),
    sa.Column("recommendation_id", sa.Text, primary_key=True),
    sa.Column("context_key", sa.Text, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("said_at", UtcDateTime, nullable=False),
    sa.Column("message", sa.LargeBinary, nullable=False),
)
sa.Index("ix_issued_recommendation_id", issued.c.recommendation_id)
sa.Index("ix_issued_study_said_at", issued.c.study, issued.c.said_at)

# Beside `studies`, not in it: ingest rewrites that row with every batch.
study_states = sa.Table(
    "study_states",
    metadata,
    _study(primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("saved_at", UtcDateTime, nullable=False),
)

context_states = sa.Table(
    "context_states",
    metadata,
    _study(primary_key=True),
    _context_id(),
    sa.Column("context_key", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("last_job_at", UtcDateTime),
    sa.Column("searched_sequence", sa.BigInteger, nullable=False),
)

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
"""Of a command that somebody wrote with a time that is none: others must not wait for it."""

commands = sa.Table(
    "commands",
    metadata,
    sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
    _study(),
    sa.Column("command", sa.Text, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("at", UtcDateTime(_LONG_AGO), nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("finished_at", UtcDateTime(_LONG_AGO)),
    sa.Column("result", sa.Text),
    sqlite_autoincrement=True,
)
_pending = commands.c.finished_at.is_(None)
sa.Index("ix_commands_pending", commands.c.study, sqlite_where=_pending, postgresql_where=_pending)

requests = sa.Table(
    "requests",
    metadata,
    sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
    _study(),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("content_hash", sa.Text, nullable=False),
    sa.Column("username", sa.Text),
    sa.Column("context", sa.Text, nullable=False),
    sa.Column("requested_at", UtcDateTime),
    sa.Column("received_at", UtcDateTime, nullable=False),
    sa.Column("answered_at", UtcDateTime),
    sa.Column("answer", sa.Text),
    sa.UniqueConstraint("source", "event_id"),
    sqlite_autoincrement=True,
)
_unanswered = requests.c.answered_at.is_(None)
sa.Index(
    "ix_requests_unanswered",
    requests.c.study,
    sqlite_where=_unanswered,
    postgresql_where=_unanswered,
)
sa.Index("ix_requests_study_answered_at", requests.c.study, requests.c.answered_at)

signals = sa.Table(
    "signals",
    metadata,
    sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("last_at", UtcDateTime, nullable=False),
    sa.UniqueConstraint("name"),
    sqlite_autoincrement=True,
)

signal_points = sa.Table(
    "signal_points",
    metadata,
    sa.Column("signal_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at_ms", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("value", sa.Double, nullable=False),
)

forecast_plans = sa.Table(
    "forecast_plans",
    metadata,
    _study(primary_key=True),
    sa.Column("made_at", UtcDateTime, nullable=False),
    sa.Column("document", sa.Text, nullable=False),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text),
    sa.Column("expires_at", UtcDateTime, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("load", sa.Double, server_default=sa.text("0"), nullable=False),
    sa.Column("load_at", UtcDateTime),
)

instances = sa.Table(
    "instances",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("installation", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.BigInteger, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("stages", sa.Text, nullable=False),
    sa.Column("started_at", UtcDateTime, nullable=False),
    sa.Column("heartbeat_at", UtcDateTime, nullable=False),
    sa.Column("tuner_at", UtcDateTime),
    sa.Column("partitions", sa.Text, nullable=False),
    sa.Column("lag", sa.BigInteger),
    sa.Column("searched", sa.BigInteger, server_default=sa.text("0"), nullable=False),
    sa.Column("searches_as", sa.Text),
)

search_tasks = sa.Table(
    "search_tasks",
    metadata,
    sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
    _study(),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("context_key", sa.Text, nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("made_by", sa.Text, nullable=False),
    sa.Column("offered_at", UtcDateTime, nullable=False),
    sa.Column("claimed_by", sa.Text),
    sa.Column("claimed_until", UtcDateTime),
    sa.Column("finished", sa.Boolean, server_default=sa.false(), nullable=False),
    # Last, as blobs are.
    sa.Column("basis", sa.LargeBinary, nullable=False),
    sa.Column("result", sa.LargeBinary),
    sqlite_autoincrement=True,
)
sa.Index("ix_search_tasks_study", search_tasks.c.study)

daemons = sa.Table(
    "daemons",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("pid", sa.BigInteger, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("since", UtcDateTime, nullable=False),
)
