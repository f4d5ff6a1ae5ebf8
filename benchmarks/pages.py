"""How long pages take over a large store: 50 studies, 10,000 contexts, 200,000 jobs.

One study has nearly all of it, as one does in a cluster; 49 have a few contexts each. Pages come
from `tunerd ui`, a process of its own. How long it takes until everything was read once is told.
Each page is asked for under addresses of its own, as pages are given again for two seconds. Then
ten readers ask at the same time.
"""

import http.client
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from urllib.parse import quote

from msgspec import structs

from benchmarks.kit import Bars, Daemon, arguments, counted, free_port, percentile, resident_mib
from benchmarks.many_contexts import STUDY, Template, recommended, templates
from tests.servers import tied
from tunerd.core.evidence.prequential import LedgerEntry, PrequentialRecord
from tunerd.core.observation import Observation, Scalar
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.lab.simulation.shipped import shipped_study
from tunerd.settings import load_settings
from tunerd.store import ContextRow, Store, TuneStep, open_store
from tunerd.ui.render import context_url

FIRST_BYTE_S, WHOLE_S = 0.3, 1.0
STUDIES, CONTEXTS, JOBS = 50, 10_000, 200_000
QUICK = (5, 200, 2_000)
FEW = 4
"""Contexts of each of the small studies."""
PORTION = 500
READERS, READ_S = 10, 15.0
REPEATS = 3


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(__doc__).parse_args(argv)
    bars = Bars("pages")
    studies, contexts, jobs = QUICK if options.quick else (STUDIES, CONTEXTS, JOBS)
    with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
        daemon = Daemon(Path(folder), {STUDY: shipped_study(STUDY)})
        key = fill(load_settings(daemon.file, {}).store.url, studies, contexts, jobs)
        with serving(daemon.file) as (port, pid):
            started = time.perf_counter()
            first, _ = asked(port, "/")
            bars.say("the first page of all, while everything is read", first, "s")
            while b"being read" in fetched(port, "/")[2] or waits(port, f"/studies/{STUDY}"):
                time.sleep(0.1)
            bars.say("everything is read after", time.perf_counter() - started, "s")
            for name, path in pages(key):
                times = [
                    asked(port, f"{path}{'&' if '?' in path else '?'}n={n}") for n in range(REPEATS)
                ]
                byte, whole = min(byte for byte, _ in times), min(whole for _, whole in times)
                bars.hold(f"{name}: first byte", byte, byte < FIRST_BYTE_S, "< 0.3", "s")
                bars.hold(f"{name}: complete", whole, whole < WHOLE_S, "< 1", "s")
            together = ten_readers(port, [path for _, path in pages(key)])
            bars.say(f"{READERS} readers at once: answers a second", len(together) / READ_S)
            bars.say(f"{READERS} readers at once: median", percentile(together, 0.5), "s")
            bars.say(f"{READERS} readers at once: p95", percentile(together, 0.95), "s")
            bars.say("memory of the process", resident_mib(pid), "MiB")
    return bars.end(options)


def pages(key: str) -> Iterator[tuple[str, str]]:
    """Every kind of page."""
    study = f"/studies/{STUDY}"
    yield "studies", "/"
    yield "ledger of all", "/ledger?days=30"
    yield "study", study
    yield "contexts", f"{study}/contexts"
    yield "contexts, searched and sorted", f"{study}/contexts?search=n_gpus+64&sort=-gain&page=3"
    yield "context", context_url(STUDY, key)
    yield "jobs", f"{study}/jobs"
    yield "jobs of a user", f"{study}/jobs?user=user-7"
    yield "job", f"{study}/jobs/1000"
    yield "ledger, 7 days", f"{study}/ledger"
    yield "ledger, 30 days", f"{study}/ledger?days=30"
    yield "form", f"{study}/try"
    yield "report", f"{study}/report"
    yield "what matters, not there yet", f"{study}/importance"


def fetched(port: int, path: str) -> tuple[float, float, bytes, int]:
    """Seconds to the first byte and to the last, the body, the status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    started = time.perf_counter()
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        first = time.perf_counter() - started
        body = answer.read()
        return first, time.perf_counter() - started, body, answer.status
    finally:
        connection.close()


def asked(port: int, path: str) -> tuple[float, float]:
    """Seconds to the first byte and to the last of a page that is there."""
    first, whole, _, status = fetched(port, path)
    assert status in (200, 202, 409), (path, status)
    return first, whole


def waits(port: int, path: str) -> bool:
    """Whether a study is still being read."""
    return fetched(port, path)[3] == 202


def ten_readers(port: int, paths: Sequence[str]) -> list[float]:
    """Seconds of every answer while so many ask one page after the other."""
    times: list[float] = []
    until = time.monotonic() + READ_S
    number = count()

    def read(place: int) -> None:
        while time.monotonic() < until:
            path = paths[(place + next(number)) % len(paths)]
            times.append(asked(port, path)[1])

    readers = [threading.Thread(target=read, args=(place,)) for place in range(READERS)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return times


@contextmanager
def serving(settings: Path) -> Iterator[tuple[int, int]]:
    """Pages of a store; gives port and process id."""
    port = free_port()
    process = subprocess.Popen(
        [
            *(*tied(), sys.executable, "-m", "tunerd", "ui"),
            *("--settings", str(settings), "--port", str(port)),
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it says where it is
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(20)
        assert process.stdout is not None
        process.stdout.close()


def fill(url: str, studies: int, contexts: int, jobs: int) -> str:
    """Write a store of so much; gives the key of a context of the large study."""
    large = parse_study(shipped_study(STUDY))
    known, now = templates(large), datetime.now(UTC)
    few = min(FEW, contexts)
    per_context = max(jobs // contexts, 1)
    with open_store(url) as store:
        for number in range(1, studies):
            name = f"small-{number:02}"
            text = shipped_study(STUDY).replace(f'name = "{STUDY}"', f'name = "{name}"')
            _study(store, parse_study(text), known, few, per_context, now)
        most = contexts - few * (studies - 1)
        return _study(store, large, known, most, per_context, now)


def _study(
    store: Store, study: Study, known: Sequence[Template], contexts: int, jobs: int, now: datetime
) -> str:
    store.publish_generation(study.name, study.content_hash, study.text, "benchmark", now)
    epoch = store.take_lease(f"benchmark {study.name}", "benchmark", 600.0) or 1
    key, total = "", contexts * jobs
    for first in counted(study.name, range(0, contexts, PORTION)):
        portion = range(first, min(first + PORTION, contexts))
        observations: list[Observation] = []
        records: list[PrequentialRecord] = []
        rows, messages = [], []
        for number in portion:
            template = known[number % len(known)]
            context: dict[str, Scalar] = {**template.state["context"], "global_batch": 64 + number}
            key = study.context_key(context)
            for run in range(jobs):
                sequence = number * jobs + run + 1
                at = now - timedelta(days=28 * (1 - sequence / total), minutes=1)
                observations.append(_job(study.name, context, template, sequence, at))
                records.append(_record(template.judged, key, sequence, at, run))
            state = {**template.state, "context": context, "last_job_at": at.isoformat()}
            rows.append(ContextRow(key, state, at, number * jobs + jobs))
            message = {**template.said, "context_key": key, "context": context}
            messages.append(recommended(study, key, {**message, "study": study.name}, at))
        with store.transaction() as tx:
            tx.add_observations(study.name, observations, now)
            tx.add_predictions(study.name, records)
            tx.save_context_states(study.name, rows)
            tx.mark_learned(study.name, records[-1].sequence)
            for row in messages:
                tx.save_recommendation(row)
    with store.transaction() as tx:
        tx.save_step(
            TuneStep(
                study=study.name,
                epoch=epoch,
                generation=1,
                sequence_from=1,
                sequence_to=total,
                seeds=study.search.seeds,
                model=None,
                finished_at=now,
            )
        )
    return key


def _job(
    study: str, context: dict[str, Scalar], template: Template, sequence: int, at: datetime
) -> Observation:
    name, said = f"{study}-{sequence}", template.said
    config = (said["incumbent"] or {}).get("config") or said["candidates"][0]["config"]
    metric = said["objective"]["metric"]
    return Observation(
        study=study,
        source="benchmark",
        event_id=name,
        job_id=f"job-{quote(name)}",
        status=template.judged.outcome.status,
        finished_at=at,
        context=context,
        config=config,
        metrics={metric: 400.0 + sequence % 37},
        gpus=64,
        user=f"user-{sequence % 40}",
        extra={"started_at": (at - timedelta(hours=1)).isoformat()},
        content_hash=name,
    )


def _record(
    judged: PrequentialRecord, key: str, sequence: int, at: datetime, run: int
) -> PrequentialRecord:
    entry = LedgerEntry(lead=0.01, ahead=0.02, promised=0.03, kind="exploit")
    outcome = structs.replace(
        judged.outcome,
        following="followed" if run % 4 else "ignored",
        told_to_try=run % 5 == 1,
        gpu_hours=64.0,
        recommendation_id=f"r-{sequence}",
        entry=entry,
    )
    return PrequentialRecord(sequence, at, False, key, outcome)


if __name__ == "__main__":
    sys.exit(main())
