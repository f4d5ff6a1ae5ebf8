"""The tuner process: the tune stage in a process of its own, until its parent lets go of it.

Reports go to standard output, one JSON object a line; standard input holds the settings, one line,
then the names of studies that are to be tried again, and ends when the parent does, however that
came about.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from tunerd import logs
from tunerd.errors import StoreUnavailableError
from tunerd.outage import Outage
from tunerd.service.idle import IdlePause
from tunerd.settings import Settings, restore_settings
from tunerd.stages.build_info import whole_code
from tunerd.telemetry import DependencyUnreachable, Report, StageProgressed, TunerReady, dump_report

TROUBLE_S = 1.0
FILES_REPLACED = 3
"""Exit code where tunerd's files are others than the daemon was started from."""
HEARTBEAT_S = 1.0
"""How often it says that it is there when there is nothing to do."""


class PipeListener:
    """The listener on the other end of standard output."""

    def hear(self, report: Report, /) -> None:
        """Write one line; a parent that is gone is noticed on standard input."""
        try:
            sys.stdout.buffer.write(dump_report(report) + b"\n")
            sys.stdout.buffer.flush()
        except OSError:
            pass


def main() -> int:
    """Run until SIGTERM or the end of standard input."""
    parser = argparse.ArgumentParser(prog="tunerd.service.tuner_main")
    parser.add_argument("--set-aside", action="append", default=[])
    parser.add_argument("--because", action="append", default=[], help="of each that is set aside")
    parser.add_argument("--anew", action="append", default=[])
    parser.add_argument(
        "--alone",
        type=float,
        default=0.0,
        help="seconds in which it searches for no other instance",
    )
    parser.add_argument("--code", default="", help="what the daemon was started from")
    parser.add_argument("--instance", default="", help="name of this one of several instances")
    parser.add_argument("--owner", default="", help="what it holds leases by")
    arguments = parser.parse_args()
    if arguments.code and arguments.code != whole_code():
        return FILES_REPLACED  # what the two say to each other may have changed too
    aside = dict(zip(arguments.set_aside, arguments.because, strict=True))
    line, rest = _first_line()
    settings = restore_settings(line)
    threading.Thread(target=_follow_parent, args=(rest, aside), daemon=True).start()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    # Ctrl-C on a terminal reaches the whole group; the parent then stops this process in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    log = logs.configure(settings.log)
    try:
        placed = {
            "instance": arguments.instance,
            "owner": arguments.owner,
            "alone_s": arguments.alone,
        }
        _run(settings, log, aside, arguments.anew, stop, placed)
    except Exception:
        log.exception("stage crashed", stage="tune")
        return 1
    return 0


def _run(
    settings: Settings,
    log: logs.Log,
    set_aside: Mapping[str, str],
    anew: Collection[str],
    stop: threading.Event,
    placed: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    from tunerd.core.estimators.trees import lightgbm
    from tunerd.stages.tune import TuneStage  # after the environment is as LightGBM needs it

    lightgbm()  # what it lacks is the machine's trouble, and no study's
    pipe = PipeListener()
    tune: TuneStage | None = None
    pause, said_at, outage = IdlePause(), time.monotonic(), Outage()
    while not stop.is_set():
        try:
            if tune is None:
                tune = TuneStage.open(
                    settings, pipe, log, set_aside=set_aside, anew=anew, stop=stop.is_set, **placed
                )
                pipe.hear(TunerReady())
            worked = tune.step()
        except StoreUnavailableError as error:
            if outage.failed(str(error)):
                log.warning("store unavailable, trying again", stage="tune", problem=outage.problem)
            pipe.hear(DependencyUnreachable(stage="tune", what="store", problem=str(error)))
            if tune is not None:
                tune.forget()
            stop.wait(TROUBLE_S)
        else:
            if outage.succeeded(time.monotonic()):
                log.info("store available again", stage="tune")
            if not worked and time.monotonic() - said_at > HEARTBEAT_S:
                said_at = time.monotonic()
                pipe.hear(StageProgressed(stage="tune", worked=False))
            stop.wait(pause.after(worked))
    if tune is not None:
        with suppress(StoreUnavailableError):  # leases run out by themselves
            tune.close()


def _first_line() -> tuple[bytes, bytes]:
    """The first line of standard input, and what came with it."""
    data = b""
    while b"\n" not in data:
        part = os.read(0, 65536)
        if not part:
            os._exit(0)  # the parent is gone before it could say anything
        data += part
    line, _, rest = data.partition(b"\n")
    return line, rest


def _follow_parent(data: bytes, set_aside: dict[str, str]) -> None:
    """Take up studies that were set aside as the parent names them, one a line; end with it."""
    # Not sys.stdin: its lock, held here, would stop the interpreter from ending in order.
    while True:
        *studies, data = data.split(b"\n")
        for study in studies:
            set_aside.pop(study.decode(), None)
        part = os.read(0, 1024)
        if not part:
            # Nothing to save: what is committed is committed, and an open transaction rolls back.
            os._exit(0)
        data += part


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # a fit in the background would be waited for, and all memory be freed
