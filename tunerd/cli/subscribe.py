"""``tunerd subscribe``."""

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tunerd.cli.options import settings_option
from tunerd.errors import MisconfiguredError, ValidationProblem

if TYPE_CHECKING:
    from tunerd.service.systemd import SystemdNotifier
    from tunerd.subscriber import EventForwarder, FileSubscriber

__all__ = ["destination_of", "subscribe"]

STOPPED, AWAY = 0, 1
LOOK_EVERY_S = 0.2


@click.command()
@settings_option
@click.option(
    "--file",
    "path",
    required=True,
    metavar="PATH",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to keep fresh; its folder must exist.",
)
@click.option(
    "--spool",
    metavar="PATH",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Send what programs append to this file to the jobs topic, an event a line.",
)
@click.option("--once", is_flag=True, help="Read and send everything that there is, and end.")
def subscribe(file: Path | None, path: Path, spool: Path | None, once: bool) -> int:
    """Keep a local file of recommendations fresh, until SIGTERM.

    For schedulers that must not wait for a broker, such as Slurm's job_submit plugin. Readers see
    the former file or the new one, never half of it. While the stream is away the file stays as it
    is, and this says so.

    Exit code: 0; with --once 1 where the stream is away, or events could not be sent.
    """
    from tunerd.service.systemd import SystemdNotifier
    from tunerd.subscriber import EventForwarder, FileSubscriber

    former = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        destination = destination_of(file)
        _check_folders(path, spool)
        subscriber = FileSubscriber(destination, path, _tell)
        forwarder = None if spool is None else EventForwarder(destination, spool, _tell)
        if once:
            return _once(subscriber, forwarder)
        _forever(subscriber, forwarder, SystemdNotifier.from_environ(os.environ))
    except _EndedError:
        # Without saying goodbye to a broker, which may not answer. Whatever was read is saved, or
        # is read again.
        os._exit(STOPPED)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _once(subscriber: "FileSubscriber", forwarder: "EventForwarder | None") -> int:
    there = subscriber.step()
    while forwarder is not None and forwarder.waiting and not forwarder.failing:
        if forwarder.step():
            time.sleep(LOOK_EVERY_S)
    subscriber.close()
    if forwarder is not None:
        forwarder.close()
    failed = forwarder is not None and forwarder.failing
    return STOPPED if there and subscriber.saved and not failed else AWAY


def _forever(
    subscriber: "FileSubscriber", forwarder: "EventForwarder | None", systemd: "SystemdNotifier"
) -> NoReturn:
    last_status = ""
    systemd.ready("begins")
    while True:
        subscriber.step()
        idle = forwarder is None or forwarder.step()
        systemd.alive()
        where = "the stream is away" if subscriber.away else "fresh"
        if (status := f"{subscriber.contexts:,} contexts, {where}") != last_status:
            last_status = status
            systemd.status(status)
        if idle:
            time.sleep(LOOK_EVERY_S)


def destination_of(file: Path | None) -> Any:
    """Where recommendations come from, by a settings file or the usual one. Raises
    MisconfiguredError."""
    from tunerd.trainers.destination import SETTINGS_VARIABLE, find_destination

    environ = dict(os.environ)
    if file is not None:
        environ[SETTINGS_VARIABLE] = str(file)
    try:
        return find_destination(None, None, {}, environ)
    except (OSError, ValueError) as error:
        named = environ.get(SETTINGS_VARIABLE, "settings")
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise MisconfiguredError([ValidationProblem(named, why)]) from None


def _check_folders(path: Path, spool: Path | None) -> None:
    problems = [
        ValidationProblem(option, f"{file.parent} is no folder")
        for option, file in (("--file", path), ("--spool", spool))
        if file is not None and not file.parent.is_dir()
    ]
    if problems:
        raise MisconfiguredError(problems)


class _EndedError(BaseException):
    """A signal asked for the end."""


def _end(_number: int, _frame: object) -> NoReturn:
    raise _EndedError


def _tell(sentence: str) -> None:
    click.echo(f"tunerd subscribe: {sentence}", err=True)
