"""What operators ask for: rows that whoever holds the study's lease carries out."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tunerd.store.access import StoreReads, StoreWrites
from tunerd.store.json_text import text_problem, to_json, whole_json
from tunerd.store.tables import commands

__all__ = ["CommandReads", "CommandWrites", "OperatorCommand"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCommand:
    """One command, with who gave it and what came of it."""

    id: int
    study: str
    command: str
    """E.g. ``approve``, ``campaign``."""
    arguments: Mapping[str, Any]
    who: str
    at: datetime
    why: str
    finished_at: datetime | None
    result: str | None
    """For a person; None while it waits."""


_DAMAGED: dict[str, Any] = {}


class CommandReads(StoreReads):
    """Looking at commands."""

    def commands(self, study: str | None = None, *, pending: bool = True) -> list[OperatorCommand]:
        """Commands in the order given: those that wait, or all of them."""
        statement = sa.select(commands).order_by(commands.c.id)
        if study is not None:
            statement = statement.where(commands.c.study == study)
        if pending:
            statement = statement.where(commands.c.finished_at.is_(None))
        with self._reading() as connection:
            return list(map(_command, connection.execute(statement)))

    def latest_commands(self, study: str, limit: int) -> list[OperatorCommand]:
        """The latest commands, carried out or not, newest first."""
        statement = (
            sa.select(commands)
            .where(commands.c.study == study)
            .order_by(commands.c.id.desc())
            .limit(limit)
        )
        with self._reading() as connection:
            return list(map(_command, connection.execute(statement)))

    def command(self, number: int) -> OperatorCommand | None:
        """One command; None where there is none of this number."""
        statement = sa.select(commands).where(commands.c.id == number)
        with self._reading() as connection:
            row = connection.execute(statement).one_or_none()
            return None if row is None else _command(row)


class CommandWrites(CommandReads, StoreWrites):
    """Giving and finishing commands."""

    def add_command(
        self,
        study: str,
        command: str,
        arguments: Mapping[str, object],
        *,
        who: str,
        why: str,
        now: datetime,
    ) -> int:
        """Give a command; returns its id.

        Raises:
            LookupError: the store has no such study.
            ValueError: ``who``, ``why`` or an argument is no text.
        """
        if problem := text_problem((study, command, who, why)):
            raise ValueError(f"the command {problem}")
        statement = (
            sa.insert(commands)
            .values(
                study=study,
                command=command,
                arguments=to_json(arguments, "arguments"),
                who=who,
                at=now,
                why=why,
            )
            .returning(commands.c.id)
        )
        try:
            return int(self._connection.execute(statement).scalar_one())
        except sa.exc.IntegrityError as error:
            raise LookupError(f"study {study!r} is not in the store") from error

    def finish_command(self, number: int, result: str, now: datetime) -> None:
        """Say what came of a command, in words for the person who gave it."""
        self._connection.execute(
            sa.update(commands)
            .where(commands.c.id == number, commands.c.finished_at.is_(None))
            .values(finished_at=now, result=result)
        )


def _command(row: sa.Row[Any]) -> OperatorCommand:
    arguments = whole_json(row.arguments, f"command {row.id}", _DAMAGED)
    if arguments is _DAMAGED:  # nobody knows what it asked for; who carries it out refuses it
        return OperatorCommand(**dict(row._mapping) | {"command": "damaged", "arguments": {}})
    return OperatorCommand(**dict(row._mapping) | {"arguments": arguments})
