"""Does ``tunerd report`` estimate right what people would have gained?

A simulated cluster of people who have their habits runs jobs for a month; the tune stage watches
them through a real store, as in mode ``observe``, and the report is made from what it kept. The
simulator knows without noise what each job would have gained had it run what was recommended at
that moment. Both are printed side by side, for several ways in which people behave.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, cast

import numpy as np

from benchmarks.kit import Bars, arguments, counted
from tunerd import logs, telemetry
from tunerd.core.observation import Observation, Scalar, Value
from tunerd.core.recommendation import candidate_id
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.events import from_bytes
from tunerd.lab.simulation.shipped import demo_contexts, shipped_study
from tunerd.lab.simulation.simulator import CostSimulator, job_rng, simulator_for
from tunerd.report.compute import compute
from tunerd.report.formatting import VERDICTS, percent, span
from tunerd.report.gather import gather
from tunerd.report.model import StudyReport
from tunerd.settings.model import TuneSettings
from tunerd.stages.tune import TuneStage
from tunerd.store import Store, open_store

__all__ = ["Month", "observe"]

START = datetime(2026, 11, 1, tzinfo=UTC)
HABITS = 5
"""Configurations that a person launches again and again, the baseline among them."""
PEOPLE = 7

People = Literal["vary", "same", "random", "follow"]
SCENARIOS: tuple[People, ...] = ("vary", "same", "random", "follow")


@dataclass
class Month:
    """A month of one study on a simulated cluster."""

    people: People
    jobs: int
    seed: int
    study_name: str = "ads-fsdp"
    contexts: Sequence[Mapping[str, Scalar]] = ()
    days: float = 30.0
    study: Study = field(init=False)
    simulator: CostSimulator = field(init=False)
    known: dict[str, dict[str, Value]] = field(init=False, default_factory=dict)
    """Every configuration that was run or recommended, by its id."""

    def __post_init__(self) -> None:
        mode = "publish" if self.people == "follow" else "observe"
        text = shipped_study(self.study_name).replace('mode = "publish"', f'mode = "{mode}"')
        self.study = parse_study(text, self.study_name)
        self.simulator = simulator_for(self.study)
        given = self.contexts or demo_contexts(self.study_name)
        self.places = [self.study.clean_context(one) for one in given]
        self.keys = [self.study.context_key(one) for one in self.places]
        self.spaces = [SearchSpace(self.study, one) for one in self.places]
        self.rng = np.random.default_rng(self.seed)
        self.habits = [[self._habit(c) for _ in range(PEOPLE)] for c in range(len(self.places))]

    def run(self, store: Store, batch: int = 4) -> StudyReport:
        """Let the month pass; the report on it."""
        clock = _Clock()
        store.publish_generation(
            self.study.name, self.study.content_hash, self.study.text, "benchmark", START
        )
        quiet = cast(logs.Log, _Quiet())
        tune = TuneStage(
            store, TuneSettings(), "r", telemetry.NullListener(), quiet, clock.now, clock.monotonic
        )
        for first in range(1, self.jobs + 1, batch):
            count = min(batch, self.jobs + 1 - first)
            clock.time = START + timedelta(days=self.days * (first + count) / self.jobs)
            made = [self._job(first + i, store, clock.time) for i in range(count)]
            with store.transaction() as tx:
                tx.add_observations(self.study.name, made, clock.time)
            clock.pass_()
            while tune.step():
                pass
            self._note(store)
        self.material = gather(store, self.study.name, START, clock.time, past=False)
        return compute(self.material, clock.time)

    def truth(self) -> tuple[float, int]:
        """Mean gain without noise of the jobs that ran something else, in log units, and how many
        jobs that is."""
        gains = []
        places = dict(zip(self.keys, self.places, strict=True))
        for one in self.material.live:
            outcome = one.outcome
            told = outcome.incumbent
            if told is None or outcome.score is None or outcome.following == "followed":
                continue
            if outcome.predicted is None or told.config_id == outcome.config_id:
                continue
            pair = [self.known[told.config_id], self.known[outcome.config_id]]
            aim, own = self.simulator.expected(places[one.context_key], pair)
            score = [self.study.score({self.study.objective.metric: v}) for v in (aim, own)]
            if score[0] is not None and score[1] is not None:
                gains.append(score[0] - score[1])
        return (float(np.mean(gains)) if gains else float("nan")), len(gains)

    def _habit(self, c: int) -> list[dict[str, Value]]:
        """The baseline and a few variations of it that run, as one person launches them."""
        base = dict(self.study.baseline(self.places[c]) or {})
        if self.people == "same":
            return [base]
        habits = [base]
        while len(habits) < HABITS:
            other = self.spaces[c].decode(self.spaces[c].sample(1, self.rng)[0])
            config = dict(base)
            for name in self.rng.permutation(list(config))[: 1 + int(self.rng.integers(2))]:
                config[name] = other[name]
            if self.spaces[c].encode(config) is not None and np.isfinite(
                self.simulator.expected(self.places[c], [config])[0]
            ):
                habits.append(config)
        return habits

    def _job(self, number: int, store: Store, at: datetime) -> Observation:
        c = int(self.rng.integers(len(self.places)))
        config, ids = self._choice(c, store)
        outcome = self.simulator.run(
            self.places[c], config, job_rng(self.seed, self.places[c], config, number)
        )
        own = self.spaces[c].encode(config)
        named = self.spaces[c].decode(own) if own is not None else config
        self.known[candidate_id(self.study.name, self.keys[c], named)] = config
        n_gpus = self.places[c].get("n_gpus")
        gpus = int(n_gpus) if isinstance(n_gpus, int) else None
        started = at - timedelta(seconds=outcome.duration_s)
        return Observation(
            study=self.study.name,
            source="benchmark",
            event_id=str(number),
            job_id=str(number),
            status=outcome.status,
            finished_at=at,
            context=self.places[c],
            config=config,
            metrics=outcome.metrics,
            gpus=gpus,
            recommendation_id=ids[0],
            candidate_id=ids[1],
            extra={"started_at": started.isoformat()},
            content_hash=str(number),
        )

    def _choice(
        self, c: int, store: Store
    ) -> tuple[dict[str, Value], tuple[str | None, str | None]]:
        if self.people == "random":
            return self.spaces[c].decode(self.spaces[c].sample(1, self.rng)[0]), (None, None)
        person = int(self.rng.integers(PEOPLE))
        if self.people == "follow" and person < PEOPLE // 2:
            row = store.recommendation(self.study.name, self.keys[c])
            if row is not None:
                told = from_bytes(row.value.encode())
                ids = told.recommendation_id
                lot = float(self.rng.random())
                for candidate in told.candidates:
                    lot -= candidate.share
                    if lot < 0:
                        return dict(candidate.config), (ids, candidate.candidate_id)
                if told.incumbent is not None:
                    return dict(told.incumbent.config), (ids, None)
        habits = self.habits[c][person]
        return habits[min(int(self.rng.geometric(0.45)) - 1, len(habits) - 1)], (None, None)

    def _note(self, store: Store) -> None:
        for row in store.recommendations(self.study.name):
            told = from_bytes((row.proposal or row.value).encode())
            for candidate in told.candidates:
                self.known[candidate.candidate_id] = dict(candidate.config)
            if told.incumbent is not None:
                name = candidate_id(told.study, told.context_key, told.incumbent.config)
                self.known[name] = dict(told.incumbent.config)


def observe(month: Month, folder: Path) -> StudyReport:
    """Let a month pass in a store of its own."""
    with open_store(f"sqlite:///{folder}/store.sqlite") as store:
        return month.run(store)


def main() -> int:
    """The program."""
    parser = arguments(__doc__)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--study", default="ads-fsdp")
    parser.add_argument("--people", choices=SCENARIOS, action="append")
    options = parser.parse_args()
    if options.quick:
        options.jobs, options.seeds = 120, 1
    bars = Bars("observed")
    covered = claimed = asked = 0
    for people in options.people or SCENARIOS:
        for seed in counted("seeds", range(1, options.seeds + 1)):
            month = Month(people, options.jobs, seed, options.study)
            with tempfile.TemporaryDirectory() as folder:
                report = observe(month, Path(folder))
            name = f"{people} {seed}"
            would, beyond = report.would, report.candidates
            if would is None:
                print(f"  {name:10} {report.headline}", flush=True)
            else:
                truth, jobs = month.truth()
                print(
                    f"  {name:10} {would.jobs:4} jobs, {would.matched:3} matched "
                    f"({would.compared:5.1f}), {would.near:4} near; "
                    f"predicted {percent(would.predicted):>7} estimated "
                    f"{percent(would.gain.value if would.gain else None):>7} "
                    f"({span(would.gain):>18}) {VERDICTS[would.verdict]:17} "
                    f"truth {percent(float(np.expm1(truth))):>7} of {jobs}",
                    flush=True,
                )
                if would.gain is not None and np.isfinite(truth):
                    asked += 1
                    low, high = would.gain.low, would.gain.high
                    assert low is not None
                    assert high is not None
                    covered += low <= np.expm1(truth) <= high
                    claimed += low > 0 and truth <= 0
            if beyond is not None:
                print(f"      {beyond.sentence}", flush=True)
            quality = report.quality
            if quality is not None and quality.kendall is not None:
                print(
                    f"      τ {quality.kendall.value:.2f}, in the band "
                    f"{percent(quality.coverage.value, sign=False)}, "
                    f"error {percent(quality.median_error, sign=False)}",
                    flush=True,
                )
    bars.say("estimates", asked)
    if asked:
        bars.hold("truth inside the 90 % interval", covered / asked, covered >= 0.8 * asked, "0.8")
    bars.hold("gains claimed where there were none", claimed, claimed == 0, "0")
    return bars.end(options)


class _Quiet:
    def info(self, event: str, **detail: object) -> None: ...

    warning = error = info


@dataclass
class _Clock:
    time: datetime = START
    seconds: float = 0.0

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        self.seconds += 0.001
        return self.seconds

    def pass_(self) -> None:
        self.seconds += 11.0


if __name__ == "__main__":
    sys.exit(main())
