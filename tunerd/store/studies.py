"""Studies and the versions of their files, called generations.

**An instance with an older file never overwrites a newer one.** Files carry no date that could
be trusted, so the store goes by what it has seen: content that is current stays current; content
that it has never seen is newer and becomes the next generation; content of an earlier generation
is an older file and is refused. To go back to an earlier version on purpose (SIGHUP after an
operator put the old file back), publish with ``force``: it becomes a new generation.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from tunerd.core.expressions import suggestion
from tunerd.errors import UnknownStudyError
from tunerd.store.access import StoreReads, StoreWrites
from tunerd.store.tables import generations, studies

__all__ = ["GenerationOutcome", "StudyGeneration", "StudyReads", "StudyRow", "StudyWrites"]

MOST_NAMED = 20
"""Studies that are named to who mistyped one."""


@dataclass(frozen=True, slots=True)
class StudyRow:
    """A study in numbers."""

    name: str
    generation: int
    last_sequence: int
    """Number of observations."""
    learned_sequence: int
    """Up to here they have been learned."""


@dataclass(frozen=True, slots=True)
class StudyGeneration:
    """One accepted version of a study's file."""

    study: str
    generation: int
    """Counts up from 1."""
    content_hash: str
    text: str
    published_at: datetime
    published_by: str


@dataclass(frozen=True, slots=True)
class GenerationOutcome:
    """What became of a study's file."""

    generation: int
    """The generation that holds now."""
    outcome: Literal["new", "current", "older"]
    """Published; it was current already; refused, because it is an earlier generation's."""


# A tuner asks before each step, idle or not. Most of the price was to make the statement anew.
_STUDIES = sa.select(studies).order_by(studies.c.name)


class StudyReads(StoreReads):
    """Asking for studies."""

    def studies(self) -> list[StudyRow]:
        """All studies by name. Cheap: ask as often as you like for new observations."""
        with self._reading() as connection:
            return list(map(_study, connection.execute(_STUDIES)))

    def study(self, name: str) -> StudyRow | None:
        """One study; None where there is none of this name."""
        with self._reading() as connection:
            row = connection.execute(sa.select(studies).where(studies.c.name == name)).one_or_none()
            return None if row is None else _study(row)

    def unknown_study(self, name: str) -> UnknownStudyError:
        """What to raise where there is no study of this name."""
        known = [row.name for row in self.studies()]
        some = ", ".join(known[:MOST_NAMED]) + (", …" if len(known) > MOST_NAMED else "")
        hint = suggestion(name, known)
        return UnknownStudyError(
            f"the store knows no study {name}; it knows: {some or 'none'}{hint}"
        )

    def generation(self, study: str, number: int | None = None) -> StudyGeneration | None:
        """A generation of a study, the current one by default; None where there is none."""
        wanted: sa.ColumnElement[bool] = generations.c.generation == number
        if number is None:
            wanted = generations.c.generation == studies.c.generation
        statement = (
            sa.select(generations)
            .join(studies, studies.c.name == generations.c.study)
            .where(generations.c.study == study, wanted)
        )
        with self._reading() as connection:
            row = connection.execute(statement).one_or_none()
            return None if row is None else _generation(row)


class StudyWrites(StudyReads, StoreWrites):
    """Publishing and learning."""

    def publish_generation(
        self,
        study: str,
        content_hash: str,
        text: str,
        who: str,
        now: datetime,
        *,
        force: bool = False,
    ) -> GenerationOutcome:
        """Make this content the study's current generation, unless it is an older file.

        Args:
            study: made when it is new.
            content_hash: of the canonical content; tells one content from another.
            text: the file.
            who: for people, e.g. ``start on host-a``.
            now: when.
            force: an operator asks for it: also publish content of an earlier generation.
        """
        current = self._current_generation(study)
        same = self._connection.execute(
            sa.select(sa.func.max(generations.c.generation)).where(
                generations.c.study == study, generations.c.content_hash == content_hash
            )
        ).scalar_one()
        if same is not None and same == current:
            # The content is this one; a text that differs was damaged, or only laid out otherwise.
            self._connection.execute(
                sa.update(generations)
                .where(
                    generations.c.study == study,
                    generations.c.generation == current,
                    generations.c.text != text,
                )
                .values(text=text)
            )
            return GenerationOutcome(current, "current")
        if same is not None and not force:
            return GenerationOutcome(current, "older")
        self._connection.execute(
            sa.insert(generations).values(
                study=study,
                generation=current + 1,
                content_hash=content_hash,
                text=text,
                published_at=now,
                published_by=who,
            )
        )
        self._connection.execute(
            sa.update(studies).where(studies.c.name == study).values(generation=current + 1)
        )
        return GenerationOutcome(current + 1, "new")

    def _current_generation(self, study: str) -> int:
        """Of a study, whose row is locked; 0 where it was made for this."""
        inserted = self._connection.execute(
            self._database.insert(studies)
            .values(name=study, generation=0, last_sequence=0, learned_sequence=0)
            .on_conflict_do_nothing()
        ).rowcount
        if inserted:
            return 0
        current: int = self._connection.execute(
            sa.select(studies.c.generation).where(studies.c.name == study).with_for_update()
        ).scalar_one()
        return current

    def mark_learned(self, study: str, sequence: int) -> None:
        """Say up to which observation a study has learned.

        Raises:
            ValueError: the study has no such observation.
        """
        changed = self._connection.execute(
            sa.update(studies)
            .where(studies.c.name == study, studies.c.last_sequence >= sequence)
            .values(learned_sequence=sequence)
        ).rowcount
        if changed != 1:
            raise ValueError(f"study {study!r} has no observation {sequence}")


def _study(row: sa.Row[Any]) -> StudyRow:
    return StudyRow(row.name, row.generation, row.last_sequence, row.learned_sequence)


def _generation(row: sa.Row[Any]) -> StudyGeneration:
    return StudyGeneration(
        row.study,
        row.generation,
        row.content_hash,
        row.text,
        row.published_at,
        row.published_by,
    )
