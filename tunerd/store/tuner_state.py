"""What the tune stage keeps: states, steps and checkpoints.

A checkpoint is named by its content, so that a damaged one cannot be taken for a whole one, and
a library that would abort the process over it never sees it.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa

from tunerd.errors import CorruptDataError
from tunerd.store.access import StoreReads, StoreWrites
from tunerd.store.json_text import context_id, from_json, to_json, whole_json
from tunerd.store.tables import checkpoints, context_states, studies, study_states, tune_steps

__all__ = [
    "CheckpointRow",
    "ContextRow",
    "CorruptCheckpointError",
    "StudyState",
    "TuneStep",
    "TunerStateReads",
    "TunerStateWrites",
    "checkpoint_name",
]


T = TypeVar("T")

ROWS_AT_ONCE = 500
"""Context states that are read together: one at a time takes twice as long."""
BEGINS = 8
"""Bytes of a checkpoint that are listed with it, to tell what it is."""


class CorruptCheckpointError(CorruptDataError):
    """Raised when a checkpoint's content does not match its name. Use an earlier one."""


@dataclass(frozen=True, slots=True)
class StudyState:
    """What a study remembers from step to step."""

    state: dict[str, Any]
    epoch: int
    """Of the lease under which it was saved."""
    saved_at: datetime


@dataclass(frozen=True, slots=True)
class ContextRow:
    """What a study remembers of one context."""

    context_key: str
    state: Mapping[str, Any]
    last_job_at: datetime | None
    searched_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneStep:
    """What one step of the tune stage did: enough to do it again."""

    study: str
    epoch: int
    generation: int
    sequence_from: int
    """First observation that was learned."""
    sequence_to: int
    """Last one."""
    seeds: Sequence[int]
    model: str | None
    """Checkpoint that served before the step."""
    swapped_model: str | None = None
    """Checkpoint that the step put in its place."""
    contexts: Sequence[str] = ()
    """Context keys that were searched."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Durations, scores of the predictions: for people and metrics."""
    finished_at: datetime
    step: int = 0
    """Counts up from 1 within the study; given by the store."""


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint without its content."""

    name: str
    created_at: datetime
    size: int
    """Bytes."""
    begins: bytes
    """Its first :data:`BEGINS` bytes."""


class TunerStateReads(StoreReads):
    """Recovering."""

    def study_state(self, study: str) -> StudyState | None:
        """What was saved last; None before the first step.

        Raises:
            DamagedError: it cannot be read any more.
        """
        statement = sa.select(study_states).where(study_states.c.study == study)
        with self._reading() as connection:
            row = connection.execute(statement).one_or_none()
            if row is None:
                return None
            state = from_json(row.state, f"the state of study {study!r}")
            return StudyState(state, row.epoch, row.saved_at)

    def study_part(self, study: str, kind: type[T]) -> T | None:
        """Parts of what a study saved last, those that a msgspec struct names; None before the
        first step.

        Raises:
            CorruptDataError: it is no JSON any more, or has other parts.
        """
        statement = sa.select(study_states.c.state).where(study_states.c.study == study)
        with self._reading() as connection:
            state = connection.execute(statement).scalar_one_or_none()
        try:
            return None if state is None else msgspec.json.decode(state, type=kind)
        except (ValueError, RecursionError) as error:
            raise CorruptDataError(f"the state of study {study!r} is damaged: {error}") from error

    def latest_contexts(self, study: str, most: int) -> list[str]:
        """Keys of the contexts with the latest jobs, these first; those without a job last."""
        table = context_states.c
        latest = table.last_job_at.desc().nulls_last()
        statement = sa.select(table.context_key).where(table.study == study)
        with self._reading() as connection:
            ordered = statement.order_by(latest, table.context_key).limit(most)
            return list(connection.execute(ordered).scalars())

    def context_states(self, study: str, *, whole_ones: bool = False) -> list[ContextRow]:
        """What was saved last of each context, by key; only what can be read, if ``whole_ones``.

        Raises:
            DamagedError: one of them cannot be read any more.
        """
        table = context_states
        columns = [table.c.context_key, table.c.state, table.c.last_job_at]
        statement = sa.select(*columns, table.c.searched_sequence).where(table.c.study == study)
        rows_read = []
        with self._reading() as connection:
            for row in connection.execute(statement.order_by(table.c.context_key)):
                try:
                    state = from_json(row[1], f"the state of context {row[0]!r}")
                except CorruptDataError:
                    if not whole_ones:
                        raise
                else:
                    rows_read.append(ContextRow(row[0], state, row[2], row[3]))
        return rows_read

    def context_state(self, study: str, context_key: str) -> ContextRow | None:
        """What was saved last of one context; None where there is none.

        Raises:
            DamagedError: it cannot be read any more.
        """
        table = context_states.c
        statement = sa.select(
            table.context_key, table.state, table.last_job_at, table.searched_sequence
        ).where(table.study == study, table.context_id == context_id(context_key))
        with self._reading() as connection:
            row = connection.execute(statement).one_or_none()
        if row is None:
            return None
        state = from_json(row[1], f"the state of context {row[0]!r}")
        return ContextRow(row[0], state, row[2], row[3])

    def context_parts(
        self, study: str, kind: type[T], keys: Collection[str] | None = None
    ) -> dict[str, T]:
        """Parts of what was saved of each context, by key: those that a msgspec struct names. The
        rest is skipped, which takes a tenth of the time of reading it. ``keys`` says of which
        contexts, all by default; a thousand at most.

        Raises:
            DamagedError: a state is no JSON any more.
            msgspec.ValidationError: a state has other parts.
        """
        table, decode = context_states.c, msgspec.json.Decoder(kind).decode
        statement = sa.select(table.context_key, table.state).where(table.study == study)
        if keys is not None:
            statement = statement.where(table.context_id.in_([context_id(key) for key in keys]))
        parts = {}
        with self._reading() as connection:
            # By parts: a row at a time takes twice as long, all at once a gigabyte.
            result = connection.execute(statement)
            for key, state in chain.from_iterable(result.partitions(ROWS_AT_ONCE)):
                try:
                    parts[key] = decode(state)
                except msgspec.ValidationError:
                    raise
                except (ValueError, RecursionError) as error:
                    raise CorruptDataError(
                        f"the state of context {key!r} is damaged: {error}"
                    ) from error
        return dict(sorted(parts.items()))  # a database would sort the states, too

    def last_jobs(self, study: str) -> dict[str, datetime]:
        """When the latest job ended in each of the contexts that jobs ran in, by key. Reads no
        states."""
        statement = sa.select(context_states.c.context_key, context_states.c.last_job_at).where(
            context_states.c.study == study, context_states.c.last_job_at.is_not(None)
        )
        with self._reading() as connection:
            return {row.context_key: row.last_job_at for row in connection.execute(statement)}

    def steps(self, study: str, limit: int = 20) -> list[TuneStep]:
        """The last steps, newest first."""
        statement = (
            sa.select(tune_steps)
            .where(tune_steps.c.study == study)
            .order_by(tune_steps.c.step.desc())
            .limit(limit)
        )
        with self._reading() as connection:
            return list(map(_step, connection.execute(statement)))

    def steps_between(self, study: str, after: int, until: int) -> list[TuneStep]:
        """Steps that learned an observation above ``after`` and none above ``until``, oldest
        first."""
        table = tune_steps.c
        statement = (
            sa.select(tune_steps)
            .where(
                table.study == study,
                table.sequence_from <= table.sequence_to,
                table.sequence_to > after,
                table.sequence_to <= until,
            )
            .order_by(table.step)
        )
        with self._reading() as connection:
            return list(map(_step, connection.execute(statement)))

    def learned_until(self, study: str) -> dict[int, int]:
        """The last observation that each generation learned, the latest generation first."""
        table = tune_steps.c
        statement = (
            sa.select(table.generation, sa.func.max(table.sequence_to))
            .where(table.study == study, table.sequence_from <= table.sequence_to)
            .group_by(table.generation)
            .order_by(table.generation.desc())
        )
        with self._reading() as connection:
            return {row[0]: row[1] for row in connection.execute(statement)}

    def checkpoint(self, study: str, name: str) -> bytes:
        """The content of a checkpoint.

        Raises:
            LookupError: there is none with this name.
            DamagedCheckpointError: it is not what was saved.
        """
        statement = sa.select(checkpoints.c.blob).where(
            checkpoints.c.study == study, checkpoints.c.name == name
        )
        with self._reading() as connection:
            content = connection.execute(statement).scalar_one_or_none()
        if content is None:
            raise LookupError(f"study {study!r} has no checkpoint {name}")
        blob = bytes(content)
        if checkpoint_name(blob) != name:
            raise CorruptCheckpointError(f"checkpoint {name} of study {study!r} is damaged")
        return blob

    def checkpoints(self, study: str) -> list[CheckpointRow]:
        """What checkpoints there are, newest first."""
        statement = (
            sa.select(
                checkpoints.c.name,
                checkpoints.c.created_at,
                sa.func.length(checkpoints.c.blob),
                sa.func.substr(checkpoints.c.blob, 1, BEGINS, type_=sa.LargeBinary),
            )
            .where(checkpoints.c.study == study)
            .order_by(checkpoints.c.created_at.desc(), checkpoints.c.name)
        )
        with self._reading() as connection:
            return [CheckpointRow(*row) for row in connection.execute(statement)]


class TunerStateWrites(TunerStateReads, StoreWrites):
    """Saving. Call ``fence`` first in the same transaction."""

    def save_study_state(
        self, study: str, state: Mapping[str, object], *, epoch: int, now: datetime
    ) -> None:
        """Replace what the study remembers; ``state`` is made of JSON values."""
        values = {"epoch": epoch, "state": to_json(state, "state"), "saved_at": now}
        self._connection.execute(
            self._database.insert(study_states)
            .values(study=study, **values)
            .on_conflict_do_update(index_elements=["study"], set_=values)
        )

    def save_context_states(self, study: str, rows: Collection[ContextRow]) -> None:
        """Replace what the study remembers of these contexts; others stay as they are."""
        if not rows:
            return
        insert = self._database.insert(context_states)
        changed = ("state", "last_job_at", "searched_sequence")
        self._connection.execute(
            insert.on_conflict_do_update(
                index_elements=["study", "context_id"],
                set_={name: insert.excluded[name] for name in changed},
            ),
            [
                {
                    "study": study,
                    "context_id": context_id(row.context_key),
                    "context_key": row.context_key,
                    "state": to_json(row.state, f"state of {row.context_key}"),
                    "last_job_at": row.last_job_at,
                    "searched_sequence": row.searched_sequence,
                }
                for row in rows
            ],
        )

    def forget_contexts(self, study: str, keys: Collection[str]) -> None:
        """Drop what the study remembers of these contexts; their revisions go on counting."""
        self._connection.execute(
            sa.delete(context_states).where(
                context_states.c.study == study,
                context_states.c.context_id.in_(map(context_id, keys)),
            )
        )

    def save_step(self, step: TuneStep) -> int:
        """Keep a step; returns its number."""
        self._connection.execute(
            sa.select(studies.c.name)
            .where(studies.c.name == step.study)
            .with_for_update(key_share=True)
        )
        last = self._connection.execute(
            sa.select(sa.func.max(tune_steps.c.step)).where(tune_steps.c.study == step.study)
        ).scalar_one()
        number = int(last or 0) + 1
        self._connection.execute(
            sa.insert(tune_steps).values(
                study=step.study,
                step=number,
                epoch=step.epoch,
                generation=step.generation,
                sequence_from=step.sequence_from,
                sequence_to=step.sequence_to,
                seeds=to_json(step.seeds, "seeds"),
                model=step.model,
                swapped_model=step.swapped_model,
                contexts=to_json(step.contexts, "contexts"),
                detail=to_json(step.detail, "detail"),
                finished_at=step.finished_at,
            )
        )
        return number

    def save_checkpoint(self, study: str, blob: bytes, now: datetime) -> str:
        """Keep a checkpoint; returns its name, ``sha256:…``. The same content is kept once; one
        that was damaged is whole again."""
        name = checkpoint_name(blob)
        insert = self._database.insert(checkpoints)
        self._connection.execute(
            insert.values(study=study, name=name, blob=blob, created_at=now).on_conflict_do_update(
                index_elements=["study", "name"],
                set_={"blob": insert.excluded.blob},
                where=checkpoints.c.blob != insert.excluded.blob,
            )
        )
        return name

    def delete_checkpoints(self, study: str, names: Collection[str]) -> None:
        """Drop checkpoints that nothing refers to any more."""
        self._connection.execute(
            sa.delete(checkpoints).where(
                checkpoints.c.study == study, checkpoints.c.name.in_(list(names))
            )
        )


def checkpoint_name(blob: bytes) -> str:
    """What a blob is called as a checkpoint: ``sha256:…``."""
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _step(row: sa.Row[Any]) -> TuneStep:
    what = f"step {row.step} of study {row.study!r}"
    return TuneStep(
        study=row.study,
        epoch=row.epoch,
        generation=row.generation,
        sequence_from=row.sequence_from,
        sequence_to=row.sequence_to,
        seeds=tuple(whole_json(row.seeds, what, [])),
        model=row.model,
        swapped_model=row.swapped_model,
        contexts=tuple(whole_json(row.contexts, what, [])),
        detail=whole_json(row.detail, what, {}),
        finished_at=row.finished_at,
        step=row.step,
    )
