"""``tunerd run``."""

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunerd.cli.options import read_settings, settings_option
from tunerd.errors import MisconfiguredError, ValidationProblem

if TYPE_CHECKING:
    from tunerd.settings import Settings

__all__ = ["run"]

STAGES = ("ingest", "requests", "tune", "publish")


def _stages(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    unknown = [stage for stage in chosen if stage not in STAGES]
    if unknown or not chosen:
        raise click.BadParameter(f"{value!r}: choose from {', '.join(STAGES)}, with commas between")
    return chosen


@click.command()
@settings_option
@click.option(
    "--stages",
    callback=_stages,
    default=",".join(STAGES),
    show_default=True,
    metavar="LIST",
    help="Which stages run, with commas between. One daemon has a store to itself: what is left "
    "out waits.",
)
def run(file: Path | None, stages: tuple[str, ...]) -> int:
    """Run the daemon until SIGTERM or Ctrl-C.

    `tunerd reload`, or SIGHUP, reads the studies again. Exit code: 0 stopped, 1 crashed, 2
    misconfigured.
    """
    # One that comes meanwhile would end the process without a word; it waits for its handler.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        settings = read_settings(file, check_studies=True)
        _something_to_run(settings, file)
        from tunerd.service import daemon

        return daemon.run(settings, stages, file)
    finally:
        signal.sigtimedwait({signal.SIGHUP}, 0)  # nothing is left to reload, and why is yet to say
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


FIRST = """\
A study says what is to be made better and what may be tuned. Nothing was made here. First:
  tunerd init old-jobs.csv     drafts a study from a table of old jobs, in {studies}
  tunerd demo                  shows tunerd at work on a simulated cluster, in two minutes
  tunerd run --settings FILE   runs an installation that is somewhere else"""


def _something_to_run(settings: "Settings", file: Path | None) -> None:
    """Leave a folder alone in which there is nothing to run.

    Raises:
        MisconfiguredError: with what to do first.
    """
    from tunerd.settings import is_there

    folder = settings.studies
    missing = not is_there(folder)
    named = file or os.environ.get("TUNERD_SETTINGS") or Path("tunerd.toml").exists()
    installed = named or is_there(settings.data_dir)
    if missing or not (installed or any(folder.glob("*.toml"))):
        what = "there is no such folder" if missing else "has no study (*.toml)"
        first = FIRST.format(studies=os.path.relpath(folder))
        raise MisconfiguredError([ValidationProblem(str(folder), f"{what}\n{first}")])
