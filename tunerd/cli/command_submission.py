"""Giving a command: it is put into the store, and what comes of it is waited for a moment."""

import sys
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import click

from tunerd.cli.options import (
    next_step,
    open_the_store,
    read_settings,
    stored_study,
    tell_json,
    who,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tunerd.core.study import Study
    from tunerd.settings import Settings
    from tunerd.store import Store

__all__ = ["CommandSubmitter", "giving"]

PATIENCE_S = 10.0
"""How long to wait for the daemon. It looks for commands twice a second, between steps."""
REFUSED = 2
"""Exit code when a command was refused: as for a command line that makes no sense."""


@dataclass
class CommandSubmitter:
    """Gives commands of one command line."""

    settings: "Settings"
    store: "Store"
    why: str
    as_json: bool = False
    given: dict[int, str] = field(default_factory=dict)
    """Study by number of the command."""

    def study(self, name: str) -> "Study":
        """A study as it stands in the store.

        Raises:
            click.UsageError: the store knows none of this name; with those that it knows.
        """
        return stored_study(self.store, name)

    def give(self, commands: Iterable[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Put commands into the store, all or none: study, command and arguments."""
        from tunerd.cli.commands import words

        now, giver = datetime.now(UTC), who()
        lines = []
        with self.store.transaction() as tx:
            for study, command, arguments in commands:
                number = tx.add_command(study, command, arguments, who=giver, why=self.why, now=now)
                self.given[number] = study
                lines.append(f"Command {number}: {study}: {words(number, command, arguments)}.")
        for line in lines:  # not before they are kept
            self._say(line)

    def follow(self, **more: Any) -> int:
        """Say what came of the commands, or when they are carried out. Returns the exit code.

        ``more`` is what a program is told beside the commands.
        """
        waiting, code = dict(self.given), 0
        deadline = monotonic() + (PATIENCE_S if self._is_running() else 0.0)
        while waiting and monotonic() < deadline:
            for number in list(waiting):
                command = self.store.command(number)
                if command is not None and command.result is not None:
                    del waiting[number]
                    refused = command.result.startswith("refused")
                    code = REFUSED if refused else code
                    self._say(f"Command {number}: {command.result}.", err=refused)
            if waiting:
                sleep(0.1)
        for study in dict.fromkeys(waiting.values()):
            self._say(next_step(self.settings, study))
        if self.as_json:
            from tunerd.cli.commands import told

            given = [command for number in self.given if (command := self.store.command(number))]
            tell_json({"commands": [told(command) for command in given], **more})
        return code

    def _say(self, line: str, *, err: bool = False) -> None:
        """For a person."""
        if not self.as_json:
            click.echo(line, err=err)

    def _is_running(self) -> bool:
        from tunerd.cli.daemon_probe import probe

        return probe(self.settings.http)["running"] is True

    def confirm(self, study: str, what: str, *, sure: bool) -> None:
        """Say to a person on a terminal what is about to happen, and ask.

        Raises:
            click.Abort: they would rather not.
        """
        if sure or self.as_json or not _on_a_terminal():
            return
        running = sum(row.state == "active" for row in self.store.recommendations(study))
        recommendations = f"{running} recommendation{'' if running == 1 else 's'}"
        click.echo(
            f"{recommendations} of {study} will be withdrawn: jobs are then launched as people ask "
            f"for, as without tunerd. {what}"
        )
        click.confirm("Go on?", abort=True)


@contextmanager
def giving(file: Path | None, why: str, *, as_json: bool = False) -> "Iterator[CommandSubmitter]":
    """A giver, with the store open."""
    settings = read_settings(file)
    with open_the_store(settings, upgrade=False) as store:
        yield CommandSubmitter(settings, store, why, as_json)


def _on_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
