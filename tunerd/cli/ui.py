"""``tunerd ui``: the page, from a store, without a daemon."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunerd.cli.options import open_the_store, read_settings, settings_option

if TYPE_CHECKING:
    from tunerd.settings import Settings

__all__ = ["ui"]

HOST = "127.0.0.1"


@click.command()
@settings_option
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--demo", is_flag=True, help="Tune a simulated cluster, and show it as it learns.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port to listen on.  [default: any free one]",
)
def ui(file: Path | None, folder: Path | None, demo: bool, port: int) -> int:
    """Show what a store knows as pages in a browser, until Ctrl-C.

    A daemon serves the same pages on its own port; this needs none. FOLDER holds a tunerd.toml, as
    `tunerd demo` leaves one behind. Listens on loopback only and changes nothing.
    """
    if demo:
        if folder is not None or file is not None:
            raise click.UsageError("--demo makes a folder of its own: name none, and no --settings")
        return _demo(port)
    if folder is not None:
        if file is not None:
            raise click.UsageError("say either --settings or FOLDER, not both")
        file = folder / "tunerd.toml"
    settings = read_settings(file)
    _serve(settings, file, port)
    return 0


def _serve(settings: "Settings", file: Path | None, port: int) -> None:
    from tunerd.ui.app import LOCAL, Pages
    from tunerd.ui.server import HttpServer

    arguments = () if file is None else (f"--settings={file}",)
    with open_the_store(settings, upgrade=False) as store:
        pages = Pages(store, arguments=arguments, hosts=LOCAL)
        try:
            server = HttpServer(HOST, port, pages=pages)
        except OSError as error:
            raise click.UsageError(f"--port: {HOST}:{port}: {error.strerror}") from None
        with _until_stopped() as stopped:
            click.echo(f"tunerd shows {settings.store.url} at {server.url} until Ctrl-C.")
            stopped.wait()
            pages.close()
            server.close()


def _demo(port: int) -> int:
    """A demo whose daemon serves its pages."""
    import tempfile

    from tunerd.lab.demo import DemoProgress, DemoRun

    folder = Path(tempfile.mkdtemp(prefix="tunerd-demo-")) / "demo"
    run = DemoRun(folder=folder, jobs=300, port=port)

    def show(progress: DemoProgress) -> None:
        if progress.done == 1:
            click.echo(f"The page is at {run.url}. {progress.jobs} jobs run, for about a minute.")

    result = run.run(show)
    click.echo(f"The jobs are done: {result.gain_over_baseline:+.1%}. All of it stays in {folder}.")
    file = folder / "tunerd.toml"
    _serve(read_settings(file), file, run.port)
    return 0


@contextmanager
def _until_stopped() -> "Iterator[threading.Event]":
    stopped = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in numbers}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
