"""The command line: one file per group of commands, imported when the command is used.

``tunerd --help`` imports click and nothing else. Exit codes are those of the daemon, for every
command: 0 stopped (or done), 1 crashed, 2 misconfigured or used wrongly.
"""

import errno
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

import tunerd.threads  # noqa: F401 - before numpy
from tunerd import __version__
from tunerd.errors import (
    AlreadyRunningError,
    MisconfiguredError,
    TunerdError,
    UnknownStudyError,
)

__all__ = ["CRASHED", "MISCONFIGURED", "STOPPED", "main", "run"]

STOPPED, CRASHED, MISCONFIGURED = 0, 1, 2

COLLECT_AFTER = 10_000
"""Objects between two runs of the garbage collector. Imports make some hundred thousand that stay;
at Python's 700 the collector looks through them again and again, for a tenth of a command's start.
And a batch of events makes thousands that all live until it is committed."""

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Refusals of the machine that come without a file's name."""

COMMANDS = {
    "init": ("init", "Draft a study from a table of old jobs."),
    "run": ("run", "Run the daemon until it is told to stop."),
    "exec": ("exec_", "Run a program with what is recommended, and report how it went."),
    "tail": ("tail", "Report a training from its log."),
    "subscribe": ("subscribe", "Keep a local file of recommendations fresh."),
    "webhook": ("webhook", "Fill recommended parameters into Kubernetes Jobs."),
    "reload": ("reload", "Take up study files that were changed."),
    "check": ("check", "Validate settings and studies, and say what is in them."),
    "import": ("import_", "Import old jobs from tables: CSV, JSON lines, Parquet."),
    "status": ("status", "Show what the daemon does and has found."),
    "instances": ("instances", "Show which instances share the store, and what each does."),
    "attempts": ("attempts", "List jobs of which a half is missing."),
    "rejected": ("rejected", "Say what was rejected, by reason."),
    "replay-rejected": ("rejected", "Send rejected records again that would be accepted now."),
    "quarantine": ("quarantine", "List jobs that nothing is learned from; release them."),
    "ui": ("ui", "Show what a store knows as pages in a browser."),
    "simulate": ("simulate", "Let tunerd tune on old jobs: how soon does it find what is fast?"),
    "backtest": ("backtest", "Say how well old jobs would have been predicted."),
    "report": ("report", "Say what was predicted, recommended and to be gained in a study."),
    "ledger": ("ledger", "Say what following recommendations was worth."),
    "forecast": ("forecast", "Say what a study's signals will be, and what is planned on that."),
    "explain": ("explain", "Say what matters in a study, and why something is recommended."),
    "derive": ("derive", "Make a recommendation again from history: is it the same?"),
    "demo": ("demo", "Tune a simulated cluster: see it work in two minutes."),
    "campaign": ("campaign", "Ask for profiling rounds in one context."),
    "recommend": ("recommend", "Say what to launch in a context, seen or not."),
    "approve": ("approve", "Approve what studies in mode approve propose."),
    "decline": ("approve", "Turn down what studies in mode approve propose."),
    "pause": ("overrides", "Stop recommending, for a study or some of its contexts."),
    "resume": ("overrides", "Recommend again."),
    "pin": ("overrides", "Recommend only configurations with given values."),
    "forbid": ("overrides", "Never recommend configurations with given values together."),
    "lift": ("overrides", "Lift a pin, a forbidden configuration or a pause."),
    "models": ("models", "List the versions of a study's model; go back to one."),
    "commands": ("commands", "Show who asked for what, why, and what came of it."),
    "end": ("end", "End a study: withdraw everything and say nothing more."),
    "store": ("store", "Move studies between stores: export and load."),
    "recover": ("recover", "After restoring a backup: take up what was published since."),
    "cluster": ("cluster", "Run a simulated cluster that sends events and follows advice."),
    "map": ("map_", "Show what a sample of records would become."),
    "schema": ("schema", "Print the JSON Schema of what others write and read."),
}
"""Command: module of this package that has it, and what it does."""


class _LazyGroup(click.Group):
    """Commands that are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        name = COMMANDS[cmd_name][0]
        module = importlib.import_module(f"tunerd.cli.{name}")
        # Python's own names, such as import, have an underscore, the module's too.
        command: click.Command = getattr(
            module, name if name.endswith("_") else cmd_name.replace("-", "_")
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from tunerd.core.expressions import suggestion

            hint = suggestion(args[0], COMMANDS)
            raise click.UsageError(f"there is no command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tunerd")
def cli() -> None:
    """A service that makes a cluster tune itself.

    It listens to finished jobs, learns to predict their speed from how they were configured,
    searches for faster configurations and tells the schedulers.
    """


def main() -> None:
    """Entry point of the ``tunerd`` program."""
    gc.set_threshold(COLLECT_AFTER)
    # The program of `exec` has closed what its caller closed.
    _open_standard_streams(inherited=sys.argv[1:2] != ["exec"])
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(encoding="utf-8")  # as JSON is, whatever the locale
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a τ that a terminal lacks ends no command
    code = run(sys.argv[1:])
    if sys.argv[1:2] == ["run"]:
        # The interpreter would free a gigabyte and join threads, for seconds where cores are busy.
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _open_standard_streams(*, inherited: bool) -> None:
    """Where somebody has closed one, the next file to be opened, a store perhaps, would take its
    number, and get what libraries write there."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            os.set_inheritable(number, inherited)
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: SIM115


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    try:
        done: Any = cli.main(list(arguments), prog_name="tunerd", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return MISCONFIGURED
    except click.Abort:
        click.echo("tunerd: interrupted", err=True)
        return CRASHED
    except MisconfiguredError as error:
        from tunerd.cli.options import tell_problems

        tell_problems(error.problems)
        return MISCONFIGURED
    except UnknownStudyError as error:
        click.UsageError(str(error)).show()
        return MISCONFIGURED
    except AlreadyRunningError as error:
        click.echo(f"tunerd: {error}", err=True)
        return MISCONFIGURED
    except TunerdError as error:
        click.echo(f"tunerd: {error}", err=True)
        return CRASHED
    except OSError as error:
        if error.filename is None and error.errno not in DISK_FULL:
            raise
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"tunerd: {where}{error.strerror}", err=True)
        return CRASHED
    return done if isinstance(done, int) else STOPPED
