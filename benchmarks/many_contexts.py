"""How long ``tunerd status`` and ``tunerd ledger`` take where a study has 50,000 contexts.

A tuner learns jobs of a dozen contexts and advises on each; what it keeps of them and what it says
is then written to a store under 50,000 context keys, through the store's own interface, with two
live jobs of each that followed. The commands run as an operator runs them, a process each. The bar
is on processor time, so that whatever else the machine does counts less.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from benchmarks.kit import Bars, Daemon, arguments, counted
from benchmarks.learning import CONTEXTS, simulated
from tunerd.core.decisions.lifecycle import compose
from tunerd.core.evidence.prequential import LedgerEntry, PrequentialRecord
from tunerd.core.observation import Observation, Scalar
from tunerd.core.recommendation import MadeFrom
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.events import to_bytes
from tunerd.lab.evaluation.tunerd_forecaster import InlineExecutor
from tunerd.lab.simulation.shipped import shipped_study
from tunerd.settings import load_settings
from tunerd.store import ContextRow, RecommendationRow, TuneStep, open_store

MOST_S = 3.0
STUDY, MANY, QUICK = "llm-pretrain", 50_000, 2_000
JOBS, LEARNED, PORTION = 2, 72, 1_000
COMMANDS = (
    ("status",),
    ("status", STUDY),
    ("status", STUDY, "--json"),
    ("ledger", STUDY),
    ("ledger", STUDY, "--json"),
    ("ledger", STUDY, "--context", "n_gpus=64"),
)


@dataclass(frozen=True)
class Template:
    """One context as a tuner knows it: its state, what is said there, and a job of it."""

    state: dict[str, Any]
    said: dict[str, Any]
    judged: PrequentialRecord


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(__doc__).parse_args(argv)
    bars = Bars("many_contexts")
    count = QUICK if options.quick else MANY
    with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
        daemon = Daemon(Path(folder), {STUDY: shipped_study(STUDY)})
        fill(load_settings(daemon.file, {}).store.url, count)
        for command in COMMANDS:
            wall, took = min(seconds(daemon.file, command) for _ in range(2))
            title = f"tunerd {' '.join(command)}, {count:,} contexts"
            if "--json" in command:  # writes 300 MB of all that is said
                bars.say(title, took, "s")
            else:
                bars.hold(title, took, took < MOST_S, f"< {MOST_S:g}", "s")
            bars.say(f"{title}: by the wall", wall, "s")
    return bars.end(options)


def seconds(settings: Path, command: Sequence[str]) -> tuple[float, float]:
    """How long a command takes, its start included: by the wall, and of a processor's time."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "tunerd", *command, "--settings", str(settings)],
        check=True,
        stdout=subprocess.DEVNULL,
        env=os.environ,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - started, spent


def fill(url: str, count: int) -> None:
    """Write a store of a study with so many contexts."""
    study = parse_study(shipped_study(STUDY))
    known, now = templates(study), datetime.now(UTC)
    with open_store(url) as store:
        store.publish_generation(study.name, study.content_hash, study.text, "benchmark", now)
        epoch = store.take_lease("benchmark", "benchmark", 60.0) or 1
        for first in counted("contexts", range(0, count, PORTION)):
            portion = list(range(first, min(first + PORTION, count)))
            rows, said, judged = [], [], []
            for number in portion:
                one = known[number % len(known)]
                context: dict[str, Scalar] = {**one.state["context"], "global_batch": 64 + number}
                key, at = study.context_key(context), now - timedelta(seconds=count - number)
                state = {**one.state, "context": context, "last_job_at": at.isoformat()}
                rows.append(ContextRow(key, state, at, JOBS * number))
                message = {**one.said, "context_key": key, "context": context}
                said.append(recommended(study, key, message, at))
                judged += list(jobs_of(one.judged, key, at, JOBS * number))
            with store.transaction() as tx:
                tx.save_context_states(study.name, rows)
                tx.add_predictions(study.name, judged)
                for row in said:
                    tx.save_recommendation(row)
        with store.transaction() as tx:
            tx.save_step(
                TuneStep(
                    study=study.name,
                    epoch=epoch,
                    generation=1,
                    sequence_from=1,
                    sequence_to=JOBS * count,
                    seeds=study.search.seeds,
                    model=None,
                    finished_at=now,
                )
            )


def templates(study: Study) -> list[Template]:
    """What a tuner makes of some contexts."""
    study = replace(study, predictor=replace(study.predictor, name="boosted_trees"))
    tuner = Tuner(study, InlineExecutor())
    observations: list[Observation] = list(islice(simulated(study), LEARNED))
    seen = {one.context_key: one for one in tuner.learn(observations).judged}
    made_from = MadeFrom(
        sequence=LEARNED, model=None, study=study.content_hash, seeds=(1,), tunerd="0"
    )
    found = []
    for context in CONTEXTS:
        key = study.context_key(study.clean_context(context))
        advice = tuner.advise(key, None)
        message = compose(
            study,
            key,
            tuner.state(key),
            advice,
            made_from,
            revision=1,
            now=datetime.now(UTC),
            valid=timedelta(days=14),
        )
        said = msgspec.json.decode(to_bytes(message))
        found.append(Template(dict(tuner.state(key).dump()), said, seen[key]))
    return found


def recommended(study: Study, key: str, message: dict[str, Any], at: datetime) -> RecommendationRow:
    """A row of what is published."""
    return RecommendationRow(
        study=study.name,
        context_key=key,
        revision=1,
        recommendation_id=f"r-{key}",
        state="active",
        value=msgspec.json.encode(message).decode(),
        issued_at=at,
        valid_until=at + timedelta(days=14),
        renew_at=at + timedelta(days=7),
    )


def jobs_of(
    one: PrequentialRecord, key: str, at: datetime, first: int
) -> Iterator[PrequentialRecord]:
    """Live jobs of a context that followed."""
    entry = LedgerEntry(lead=0.01, ahead=0.02, promised=0.03, kind="exploit")
    for number in range(JOBS):
        outcome = structs.replace(
            one.outcome,
            following="followed",
            told_to_try=number == 0,
            gpu_hours=1.0,
            recommendation_id=f"r-{key}",
            entry=entry,
        )
        yield PrequentialRecord(
            first + number + 1, at - timedelta(hours=number), False, key, outcome
        )


if __name__ == "__main__":
    sys.exit(main())
