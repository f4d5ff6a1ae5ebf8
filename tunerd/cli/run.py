"""``tunerd run``."""

from pathlib import Path

import click

from tunerd.cli.options import read_settings, settings_option

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

    SIGHUP reads the studies again. Exit code: 0 stopped, 1 crashed, 2 misconfigured.
    """
    settings = read_settings(file, check_studies=True)
    from tunerd import daemon

    return daemon.run(settings, stages, file)
