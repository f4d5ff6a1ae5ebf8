"""Contexts to come: how many jobs have a recommendation before the first job of the day?

A simulated cluster (`tunerd/lab/simulation/llm.py`) trains language models by a weekly plan: some
contexts come every weekday, most once a week, some every fifth week, some whenever somebody wants
(these cannot be foreseen). Jobs start up to three quarters of an hour late, and one planned day in
twenty is left out. Each run is the daemon's own tune stage on a store of its own, with a clock that
the benchmark moves: once with `[forecast] rhythm`, once without.

A recommendation is lost when a context was quiet for `active_days`, or when more than
`max_contexts` others were busier. So three installations are played: as tunerd comes, one that
forgets after five days, and one with few contexts. In a fourth contexts come on dates of the month
for seven months, and it forgets after five days, too. In a fifth the number of GPUs of some models
grows, once with `[forecast] growth` and once without.

With `--trace FILE` the contexts are those of a trace of jobs that you have
(`benchmarks/job_traces.py` says in which formats), as tunerd comes and with five days' memory. When
which context comes is the trace's, and nothing else: each job runs a made-up program with one
parameter. Of each context only the first job of a day is played.

Figures are of all seeds together. Plan, left-out days and delays differ from seed to seed.
"""

import argparse
import calendar
import heapq
import itertools
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.job_traces import Arrival, read_trace
from benchmarks.kit import Bars, arguments
from tests.stages.fakes import Heard, Time
from tests.stages.tuning import Lines
from tunerd import logs, telemetry
from tunerd.core.observation import Observation, Scalar, Status, Value
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError
from tunerd.events import from_bytes
from tunerd.lab.simulation.shipped import shipped_study
from tunerd.lab.simulation.simulator import SimulatedRun, job_rng, simulator_for
from tunerd.settings.model import TuneSettings
from tunerd.stages.tune import TuneStage
from tunerd.store import Store, open_store

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
"""A Monday."""
DAYS, QUICK_DAYS, DATE_DAYS = 112, 42, 212
SEEDS = (1, 2, 3)
GAP, PRECISE, COST = 0.5, 0.5, 1.5
"""Bars: share of first jobs without a recommendation that get one, share of what is foreseen that
comes, and searches beside those without foresight. Of six sizes of a model that grows, three can be
foreseen, so that half of that gap cannot be closed."""
LATE_H, LEFT_OUT = 0.75, 0.05
SMALL = """
[predictor]
name = "boosted_trees"
members = 2
trees = 20
[search]
searcher = "random"
seeds = [1]
evaluations = 64
keep = 16
[forecast]
rhythm = {rhythm}
growth = {growth}
"""
"""How well is recommended is not the question here: a search takes as little as it can."""
SCENARIOS = {
    "as it comes": TuneSettings(),
    "forgets after five days": TuneSettings(active_days=5.0),
    "few contexts": TuneSettings(max_contexts=6),
    "by the date": TuneSettings(active_days=5.0),
    "growing": TuneSettings(),
    "trace": TuneSettings(),
    "trace, forgets after five days": TuneSettings(active_days=5.0),
}
TRACED = [name for name in SCENARIOS if name.startswith("trace")]
TRACE_STUDY = """
schema = 1
name = "trace"
mode = "publish"
objective = {{ metric = "speed", goal = "maximize", unit = "1/s", scale = "log" }}
[context]
{context}
[parameters]
threads = {{ type = "int", values = [1, 2, 4, 8, 16], scale = "log" }}
[[baseline]]
config = {{ threads = 1 }}
"""


def context(model: int, gpu: str, gpus: int) -> dict[str, Scalar]:
    return {
        "model_params": model * 1e9,
        "gpu": gpu,
        "n_gpus": gpus,
        "global_batch": 1024,
        "seq_len": 4096,
    }


def weekly(days: int, rng: np.random.Generator) -> Iterator[Arrival]:
    """First jobs of contexts, by a plan of the week."""
    every = [context(m, "H100", n) for m in (7, 13, 30, 70) for n in (64, 128, 256, 512)]
    plans = ["weekday", *["week"] * 6, *["fifth week"] * 6, *["whenever"] * 3]
    for one, plan in zip(every, plans, strict=True):
        weekday, hour = int(rng.integers(7)), int(rng.integers(24))
        offset = int(rng.integers(2))
        for day in range(days):
            planned = {
                "weekday": day % 7 < 5,
                "week": day % 7 == weekday,
                "fifth week": day % 7 == weekday and day // 7 % 5 == offset,
                "whenever": rng.random() < 1 / 14,
            }[plan]
            late = float(rng.uniform(0, LATE_H))
            if plan == "whenever":
                late = float(rng.uniform(0, 24)) - hour
            if planned and rng.random() >= LEFT_OUT:
                yield Arrival(BEGIN + timedelta(days=day, hours=hour + late), one)


def by_the_date(days: int, rng: np.random.Generator) -> Iterator[Arrival]:
    """First jobs of contexts that come once a month, and of one that comes on weekdays."""
    for number in range(7):
        hour = int(rng.integers(24))
        for day in range(days):
            on = BEGIN + timedelta(days=day)
            length = calendar.monthrange(on.year, on.month)[1]
            working = [d for d in range(1, length + 1) if on.replace(day=d).weekday() < 5]
            planned = (
                on.weekday() < 5,
                on.day == 1,
                on.day == 15,
                on.day == working[0],
                on.day == working[-1],
                on.weekday() == 0 and 8 <= on.day <= 14,
                on.weekday() == 4 and on.day > length - 7,
            )[number]
            if planned and rng.random() >= LEFT_OUT:
                at = timedelta(hours=hour + float(rng.uniform(0, LATE_H)))
                yield Arrival(on + at, context(7 + number, "H100", 64))


def growing(days: int, rng: np.random.Generator) -> Iterator[Arrival]:
    """Models that come every third day: four get twice the GPUs now and then, two never grow."""
    for number, model in enumerate((7, 13, 30, 70, 8, 14)):
        for day in range(0, days, 3):
            doubled = min(day // 15, 5) if number < 4 else 0
            at = timedelta(days=day, hours=8 + number, minutes=float(rng.uniform(0, 50)))
            yield Arrival(BEGIN + at, context(model, "H100", 32 * 2**doubled))


SOURCES = {"growing": growing, "by the date": by_the_date}
BEFORE = {
    "growing": ("never seen before", (0, 0)),
    "by the date": ("that came thrice", (3, 10_000)),
}
"""Of which contexts the gap is counted; else of those that came twice."""


@dataclass
class Outcome:
    """What came of one run."""

    ready: list[tuple[str, int, bool]] = field(default_factory=list)
    """Of each context and day: the key, how many days it came before, and whether something was
    recommended before its first job."""
    searches: int = 0
    foreseen: Counter[str] = field(default_factory=Counter)
    wide: list[float] = field(default_factory=list)
    """Ratio of a band's ends in contexts that nobody had run yet."""

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.ready + other.ready,
            self.searches + other.searches,
            self.foreseen + other.foreseen,
            self.wide + other.wide,
        )

    def share(self, least: int = 0, most: int = 10_000) -> float:
        """Of first jobs of the day that had a recommendation. A context came before so often."""
        counted = [ready for _, before, ready in self.ready if least <= before <= most]
        return sum(counted) / max(len(counted), 1)

    @property
    def precision(self) -> float:
        ended = self.foreseen["came"] + self.foreseen["missed"]
        return self.foreseen["came"] / ended if ended else 1.0


Task = tuple[str, bool, int, int, Path | None]


def play(task: Task) -> Outcome:
    """One installation, with or without foresight."""
    scenario, foresees, days, seed, trace = task
    source = SOURCES.get(scenario, weekly)
    rng = np.random.default_rng(seed)
    arrivals = read_trace(trace, days) if trace else list(source(days, rng))
    with (
        tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder,
        open_store(f"sqlite:///{Path(folder)}/store.sqlite") as store,
    ):
        return Cluster(scenario, store, seed, arrivals, foresees=foresees).play(days)


def trace_study(arrivals: Sequence[Arrival]) -> str:
    """A study whose context is what the trace says of a job."""
    features = [f'{name} = {{ type = "category" }}' for name in arrivals[0].context]
    return TRACE_STUDY.format(context="\n".join(features))


def made_up_run(
    context: Mapping[str, Scalar],  # noqa: ARG001
    config: Mapping[str, Value],
    rng: np.random.Generator,
) -> SimulatedRun:
    """What a job of a trace reports."""
    threads = config["threads"]
    assert isinstance(threads, int)
    speed = 100.0 * math.sqrt(threads) * math.exp(rng.normal(0, 0.05))
    return SimulatedRun(Status.SUCCEEDED, {"speed": speed}, 0.0, 0.0)


class Cluster:
    """A store, a tune stage, and the jobs that come."""

    def __init__(
        self,
        scenario: str,
        store: Store,
        seed: int,
        arrivals: Sequence[Arrival],
        *,
        foresees: bool,
    ) -> None:
        traced, grows = scenario in TRACED, scenario == "growing"
        flags = {"rhythm": str(foresees and not grows), "growth": str(foresees and grows)}
        text = trace_study(arrivals) if traced else shipped_study("llm-pretrain")
        text += SMALL.format(**{name: flag.lower() for name, flag in flags.items()})
        self.study, self.store, self.seed = parse_study(text), store, seed
        self.simulate = made_up_run if traced else simulator_for(self.study).run
        self.arrivals = arrivals
        since = min(job.at for job in arrivals) if traced else BEGIN
        self.since = since.replace(hour=0, minute=0, second=0, microsecond=0)
        self.time, self.heard = Time(self.since), Heard()
        self.stage = TuneStage(
            store,
            SCENARIOS[scenario],
            "recommendations",
            self.heard,
            cast(logs.Log, Lines()),
            self.time.now,
            self.time.clock,
        )
        self.numbers = itertools.count(1)
        self.outcome = Outcome()
        name, digest = self.study.name, self.study.content_hash
        store.publish_generation(name, digest, text, "benchmark", self.since)

    def play(self, days: int) -> Outcome:
        """Let the days pass. The stage looks every four hours, and when jobs begin and end."""
        ended: list[tuple[datetime, int, Observation]] = []
        looks = (self.since + timedelta(hours=4 * look) for look in range(6 * days))
        events: list[tuple[datetime, Arrival | None]] = [(at, None) for at in looks]
        events += [(job.at, job) for job in self.arrivals]
        for at, arrival in sorted(events, key=lambda event: event[0]):
            while ended and ended[0][0] <= at:
                self.learn(heapq.heappop(ended)[2])
            self.step(at)
            if arrival is not None:
                job = self.begin(arrival)
                heapq.heappush(ended, (job.finished_at, int(job.job_id), job))
        self.stage.close()
        for step in self.heard.of(telemetry.StepCommitted):
            self.outcome.searches += step.contexts_searched
            self.outcome.foreseen.update(step.contexts_foreseen)
        return self.outcome

    def step(self, at: datetime) -> None:
        self.time.at = max(at, self.time.at)
        while self.stage.step():
            pass

    def learn(self, job: Observation) -> None:
        self.time.at = max(job.finished_at, self.time.at)
        with self.store.transaction() as tx:
            tx.add_observations(self.study.name, [job], self.time.now())
        self.step(self.time.at)

    def begin(self, arrival: Arrival) -> Observation:
        """The first job of a context on a day: what is recommended, every second time."""
        context = arrival.context
        key = self.study.context_key(self.study.clean_context(context))
        row = self.store.recommendation(self.study.name, key)
        ready = row is not None and row.state == "active"
        said = from_bytes(row.value.encode()) if row is not None and ready else None
        before = sum(known == key for known, *_ in self.outcome.ready)
        self.outcome.ready.append((key, before, ready))
        candidates = said.candidates if said is not None else ()
        if candidates and not before and (band := candidates[0].predicted):
            self.outcome.wide.append(band.high / band.low)
        config = dict(self.study.baseline(context) or {})
        if candidates and before % 2:
            config = dict(candidates[0].config)
        return self.run(arrival, config)

    def run(self, arrival: Arrival, config: dict[str, Value]) -> Observation:
        number, context = next(self.numbers), arrival.context
        ran = self.simulate(context, config, job_rng(self.seed, context, config, number))
        return Observation(
            study=self.study.name,
            source="benchmark",
            event_id=str(number),
            job_id=str(number),
            status=ran.status,
            finished_at=arrival.at + arrival.takes + timedelta(seconds=number % 60),
            context=context,
            config=config,
            metrics=ran.metrics,
            extra={"started_at": arrival.at.isoformat()},
            content_hash=str(number),
        )


def measure(options: argparse.Namespace, bars: Bars) -> None:
    days = {name: DATE_DAYS if name == "by the date" else DAYS for name in SCENARIOS}
    seeds = SEEDS[:1] if options.quick or options.trace else options.seeds
    scenarios = TRACED if options.trace else options.scenarios
    tasks: list[Task] = [
        (name, foresees, QUICK_DAYS if options.quick else days[name], seed, options.trace)
        for name in scenarios
        for foresees in (False, True)
        for seed in seeds
    ]
    with ProcessPoolExecutor(2) as pool:
        outcomes = dict(zip(tasks, pool.map(play, tasks), strict=True))
    for name in scenarios:
        reactive, proactive = (
            sum((o for task, o in outcomes.items() if task[:2] == (name, foresees)), Outcome())
            for foresees in (False, True)
        )
        bars.say(f"{name}: first jobs of a day", len(reactive.ready))
        bars.say(f"{name}: ready, reactive", 100 * reactive.share(), "%")
        bars.say(f"{name}: ready, proactive", 100 * proactive.share(), "%")
        what, counted = BEFORE.get(name, ("of contexts that came twice", (2, 10_000)))
        before, after = reactive.share(*counted), proactive.share(*counted)
        bars.say(f"{name}: {what}, reactive", 100 * before, "%")
        bars.say(f"{name}: {what}, proactive", 100 * after, "%")
        closed = (after - before) / (1 - before) if before < 1 else 1.0
        bars.hold(f"{name}: share of the gap closed", closed, closed >= GAP, f">= {GAP:g}")
        foreseen, came = proactive.foreseen["foreseen"], proactive.precision
        bars.say(f"{name}: foreseen", foreseen)
        bars.hold(f"{name}: of those came", 100 * came, came >= PRECISE, f">= {PRECISE:.0%}", "%")
        cost = proactive.searches / max(reactive.searches, 1)
        bars.say(f"{name}: searches, reactive", reactive.searches)
        bars.hold(f"{name}: searches, proactive", cost, cost <= COST, f"<= {COST:g}", "x")
        if proactive.wide:
            bars.say(
                f"{name}: ends of a band in a new context", float(np.median(proactive.wide)), "x"
            )


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    played = [name for name in SCENARIOS if name not in TRACED]
    parser.add_argument("--scenarios", nargs="+", choices=played, default=played)
    parser.add_argument("--trace", type=Path, metavar="FILE", help="play these jobs instead")
    options = parser.parse_args(argv)
    if options.trace:
        try:
            parse_study(trace_study(read_trace(options.trace, 1)))
        except (OSError, ValueError, MisconfiguredError) as error:
            parser.error(f"{options.trace}: {error}")
    bars = Bars("contexts_to_come")
    measure(options, bars)
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
