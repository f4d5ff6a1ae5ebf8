"""Stands in for the tuner process: does what its settings say, a list of lines.

``began STUDY``, ``helping STUDY``, ``stepped STUDY``, ``progressed``, ``ready`` report; ``say
TEXT`` prints; ``sleep SECONDS``; ``labour TIMES SECONDS`` uses ten milliseconds of a processor so
many times, and waits for so long in between, until SIGTERM; ``deaf`` ignores SIGTERM; ``crash``
aborts; ``wait`` waits for SIGTERM or the end of standard input, as the real one does. ``began`` and
``crash`` pass over a study that is set aside, ``helping`` and ``crash --alone`` where the child is
to help nobody. A study that the parent names later begins at once.
"""

import json
import os
import signal
import sys
import threading
import time

from tunerd.telemetry import (
    Report,
    StageProgressed,
    StepCommitted,
    StepStarted,
    TunerReady,
    dump_report,
)


def main() -> None:
    script, arguments = json.loads(sys.stdin.buffer.readline()), sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    for line in script:
        word, _, rest = line.partition(" ")
        match word:
            case "ready":
                _say(TunerReady())
            case "began" | "helping" if not {rest, "--alone"} & {*arguments}:
                _say(StepStarted(study=rest, helping=word == "helping"))
            case "stepped":
                _say(StepCommitted(study=rest, sequence=1))
            case "progressed":
                _say(StageProgressed(stage="tune"))
            case "say":
                print(rest, flush=True)
            case "sleep":
                time.sleep(float(rest))
            case "crash" if rest not in arguments:
                os.abort()
            case "labour":
                _labour(stop, *map(float, rest.split()))
            case "deaf":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            case "wait":
                stop.wait()


def _say(report: Report) -> None:
    sys.stdout.buffer.write(dump_report(report) + b"\n")
    sys.stdout.buffer.flush()


def _labour(stop: threading.Event, times: float, pause_s: float) -> None:
    for _ in range(int(times)):
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass
        if stop.wait(pause_s):
            return


def _end_with_parent() -> None:
    while data := os.read(0, 1024):
        for study in data.decode().split():
            _say(StepStarted(study=study))
    os._exit(0)


main()
