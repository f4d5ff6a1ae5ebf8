"""``tunerd webhook``."""

import logging
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunerd.cli.options import read_settings, settings_option
from tunerd.errors import CannotStartError

if TYPE_CHECKING:
    from tunerd.subscriber import FileSubscriber

__all__ = ["webhook"]

LOOK_EVERY_S = 0.2


@click.command()
@settings_option
@click.option(
    "--certificate",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="PEM file with the certificate; it is read again when it changes.",
)
@click.option(
    "--key",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="PEM file with its key, without a password.",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on, with TLS."
)
@click.option("--port", default=8443, show_default=True, type=click.IntRange(0, 65535))
@click.option(
    "--recommendations",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File that `tunerd subscribe --file` keeps. Without it, the stream of the settings is"
    " followed.",
)
@click.option(
    "--cluster",
    default="kubernetes",
    show_default=True,
    help="What halves of this cluster's jobs are joined by.",
)
def webhook(
    file: Path | None,
    certificate: Path,
    key: Path,
    host: str,
    port: int,
    recommendations: Path | None,
    cluster: str,
) -> int:
    """Fill recommended parameters into Kubernetes Jobs as they are created, until SIGTERM.

    A mutating admission webhook: POST /mutate takes an AdmissionReview. Jobs say by the annotation
    tunerd.dev/study that they want to be filled. Whatever goes wrong, the Job is admitted as it
    came, with a warning that says why.
    """
    from tunerd.ui.certificate import ReloadingCertificate
    from tunerd.webhook.launch import LaunchPlanner
    from tunerd.webhook.review import answer
    from tunerd.webhook.server import WebhookServer

    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="tunerd webhook: %(message)s"
    )
    settings = read_settings(file)
    tls = ReloadingCertificate.configured(certificate, key, ("--certificate", "--key"))
    with ExitStack() as until_end:
        path, subscriber = recommendations, None
        if path is None:
            folder = until_end.enter_context(tempfile.TemporaryDirectory(prefix="tunerd-webhook-"))
            path = Path(folder, "recommendations.jsonl")
            subscriber = _subscriber(file, path)
            until_end.callback(subscriber.close)
        planner = LaunchPlanner(settings.studies, path)

        def ready() -> Sequence[str]:
            if subscriber is not None and not subscriber.saved:
                return ["the stream of recommendations was not read yet"]
            return []

        try:
            server = WebhookServer(
                host, port, tls, lambda body: answer(body, planner, cluster), ready
            )
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise CannotStartError(f"cannot listen on {host}:{port}: {why}") from None
        until_end.callback(server.close)
        click.echo(f"tunerd webhook: listening on {host}:{server.port}", err=True)
        _until_told(subscriber)
    return 0


def _subscriber(file: Path | None, path: Path) -> "FileSubscriber":
    from tunerd.cli.subscribe import destination_of
    from tunerd.subscriber import FileSubscriber

    return FileSubscriber(
        destination_of(file), path, lambda text: click.echo(f"tunerd webhook: {text}", err=True)
    )


def _until_told(subscriber: "FileSubscriber | None") -> None:
    """Follow the stream until SIGTERM or SIGINT."""
    stop = threading.Event()
    former = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        while not stop.wait(LOOK_EVERY_S):
            if subscriber is not None:
                subscriber.step()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
