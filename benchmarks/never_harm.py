"""Does following tunerd ever do harm? A month of 10,000 jobs in 20 contexts, and what became of it.

A simulated cluster pre-trains language models. Its people launch a good configuration that they
know; tunerd advises them through the daemon's own tuner and the reader that schedulers import. The
cluster is made to deceive: noise has heavy tails, and of all other configurations four in ten are
unstable, as TUNA found of configurations that had measured best ("up to 63 % degrade by 30 % when
deployed"): half of their runs are 30 % slower, or, for one in four of them, most of those after
they have been made the incumbent. On day 10 the A100 machines slow down by a fifth, on day 20 a
change of software takes 15 % from every configuration that computes in bf16. On day 15, in every
fourth context that has left its baseline, what serves there falls to 60 % for good. Staying with
what a change has made worse than a measured alternative counts as harm too, once there was time to
see it.

What each job would have given under another configuration is known without noise. Beside tunerd
runs the policy that publishes the top prediction for all jobs, with the same predictor.
"""

import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from multiprocessing import get_context

import numpy as np

from benchmarks.kit import Bars, arguments
from tunerd import __version__
from tunerd.client import Choice, Recommendations
from tunerd.core.arrays import Codes, FloatArray
from tunerd.core.decisions.lifecycle import compose, is_news
from tunerd.core.evidence.rollout import RolloutResult
from tunerd.core.observation import Observation, Scalar, Status, Value
from tunerd.core.recommendation import MadeFrom, Recommendation, candidate_id
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.events import to_bytes
from tunerd.lab.evaluation.tunerd_forecaster import InlineExecutor
from tunerd.lab.simulation.shipped import shipped_study
from tunerd.lab.simulation.simulator import CostSimulator, FaultModel, simulator_for

__all__ = ["Cluster", "Month", "Passed", "Ran"]

START = datetime(2026, 11, 1, tzinfo=UTC)
DAYS = 30.0
NOISE = 0.02
"""Typical size of a run's noise on a log scale: Student's t with three degrees of freedom."""
STRAGGLERS = 0.02
"""Share of runs that are up to 40 % slower for a reason of their own."""
UNSTABLE = 0.4
DEGRADED = float(np.log(0.7))
ON_DUTY = 0.25
"""Share of the unstable ones that only degrade once they serve."""
KNOWN = 0.85
"""The configuration that people know is as good as this quantile of those that run."""
SLOWER = 0.05
"""What counts as harm."""
FALLEN = float(np.log(0.6))
"""What becomes of a configuration that falls on day 15."""
GRACE = 80
"""Jobs of a context after a change in which the former order may still be followed."""
MEASURED = 3
"""Runs that make a configuration a measured alternative."""


def contexts(count: int) -> list[dict[str, Scalar]]:
    """Models of two sizes on clusters of three sizes and two kinds."""
    found: list[dict[str, Scalar]] = [
        {"gpu": gpu, "n_gpus": n, "model_params": m, "global_batch": batch, "seq_len": 4096}
        for n in (64, 256, 1024)
        for batch in (512, 1536)
        for m in (7e9, 30e9)
        for gpu in ("H100", "A100")
        if gpu == "H100" or n < 1024
    ]
    return found[:count]


def study_text(
    baselines: Sequence[tuple[Mapping[str, Scalar], Mapping[str, Value]]], predictor: str | None
) -> str:
    """The shipped study in everyday use: an explore share of a tenth, what people launch in each
    context, and no context or pipeline tricks, so that a context has some 800 configurations."""
    text = shipped_study("llm-pretrain").partition("[[baseline]]")[0]
    for old, new in (
        ("explore_share = 0.8", "explore_share = 0.1"),
        ("values = [1, 2, 4] }\nmicro", "values = [1] }\nmicro"),
        (
            'interleave = { type = "int", scale = "log", values = [1, 2, 4] }',
            'interleave = { type = "int", scale = "log", values = [1] }',
        ),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    if predictor is not None:
        text += f'[predictor]\nname = "{predictor}"\n'
    for context, config in baselines:
        when = " and ".join(f"{name} == {_toml(value)}" for name, value in context.items())
        what = ", ".join(f"{name} = {json.dumps(value)}" for name, value in config.items())
        text += f'[[baseline]]\nwhen = "{when}"\nconfig = {{ {what} }}\n'
    return text


def _toml(value: Scalar) -> str:
    return f"'{value}'" if isinstance(value, str) else repr(value)


@dataclass
class Place:
    """One context, and what everything would give there."""

    context: dict[str, Scalar]
    key: str
    space: SearchSpace
    codes: Codes
    truth: FloatArray
    """(n,) logarithm of the speed, NaN where it does not run."""
    unstable: FloatArray
    """(n,) 0 stable, 1 at all times, 2 on duty."""
    bf16: FloatArray
    rows: dict[bytes, int]
    known: int
    """What people launch."""

    def index(self, config: Mapping[str, Value]) -> int:
        code = self.space.encode(config)
        assert code is not None
        return self.rows[code.astype(np.int32).tobytes()]


@dataclass
class Cluster:
    """Runs jobs, and knows what they would have given without noise."""

    count: int
    seed: int
    predictor: str | None = None
    """None for the study's default."""
    study: Study = field(init=False)
    places: list[Place] = field(init=False)
    fallen: dict[str, int] = field(init=False, default_factory=dict)
    """Context key, and which configuration fell there."""

    def __post_init__(self) -> None:
        bare = parse_study(study_text((), self.predictor), "bare")
        simulator = simulator_for(bare, FaultModel(noise=0.0, preempted=0.0))
        self.places = [self._place(bare, simulator, one) for one in contexts(self.count)]
        known = [(one.context, one.space.decode(one.codes[one.known])) for one in self.places]
        self.study = parse_study(study_text(known, self.predictor), "never-harm")

    def _place(self, study: Study, simulator: CostSimulator, context: dict[str, Scalar]) -> Place:
        space = SearchSpace(study, context)
        codes = space.table(20_000)
        assert codes is not None
        configs = [space.decode(code) for code in codes]
        truth = np.log(simulator.expected(context, configs))
        key = study.context_key(study.clean_context(context))
        lots = np.array([_lot(self.seed, key, config) for config in configs])
        unstable = np.where(lots < UNSTABLE * ON_DUTY, 2.0, np.where(lots < UNSTABLE, 1.0, 0.0))
        aim = np.nanquantile(truth, KNOWN)
        known = int(np.nanargmin(np.abs(truth - aim)))
        unstable[known] = 0.0
        bf16 = np.array([float(config["precision"] == "bf16") for config in configs])
        rows = {code.astype(np.int32).tobytes(): i for i, code in enumerate(codes)}
        return Place(context, key, space, codes, truth, unstable, bf16, rows, known)

    def level(self, place: Place, index: int, day: float) -> float:
        """Logarithm of the speed of a configuration on its good days."""
        level = float(place.truth[index])
        if day >= 15 and self.fallen.get(place.key) == index:
            level += FALLEN
        if day >= 10 and place.context["gpu"] == "A100":
            level += np.log(0.8)
        if day >= 20 and place.bf16[index]:
            level += np.log(0.85)
        return level

    def typical(self, place: Place, index: int, day: float, serving: bool = True) -> float:
        """The same, mean over good and bad days."""
        bad = place.unstable[index] == 1.0 or (place.unstable[index] == 2.0 and serving)
        return self.level(place, index, day) + (0.5 * DEGRADED if bad else 0.0)


def _lot(seed: int, key: str, config: Mapping[str, Value]) -> float:
    text = f"{seed}|{key}|{json.dumps(config, sort_keys=True)}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


@dataclass(frozen=True)
class Ran:
    """One job, and what it would have given otherwise. Logarithms, without noise."""

    place: int
    kind: str
    """``baseline``, ``incumbent``, ``exploit``, ``confirm``, ``explore``, or ``top``."""
    value: float
    """NaN where it did not run."""
    baseline: float
    incumbent: float
    """What the incumbent of the moment would have given; the baseline where there is none."""
    former: float
    """What the one that it replaced would give today, if it gave way since the last drift; else as
    ``baseline``."""
    lagging: bool
    """Whether a drift made the incumbent slower than one that gave way before."""
    behind: bool
    """Whether it served though a change had long made it worse than a measured alternative."""
    fallen: bool
    """Whether it ran what had just fallen, which nobody could know."""
    promised: float | None = None
    """Probability to run that was told of a new configuration; None where none was."""

    @property
    def gain(self) -> float:
        """Relative to what people would have launched; a job that did not run loses all."""
        return -1.0 if np.isnan(self.value) else float(np.expm1(self.value - self.baseline))

    def slower_than(self, reference: float) -> bool:
        return bool(np.isnan(self.value) or self.value < reference + np.log1p(-SLOWER))


@dataclass(frozen=True)
class Passed:
    """What became of a month."""

    places: int
    ran: list[Ran]
    judged: Counter[str]
    """Promotions and withdrawals, right and wrong."""
    said: str
    """A name of every message in order."""
    messages: int
    seconds: float

    @cached_property
    def gains(self) -> FloatArray:
        """(contexts,) sum over jobs of the gain over what people would have launched."""
        sums = np.zeros(self.places)
        for job in self.ran:
            sums[job.place] += job.gain
        return sums

    def harmed(self, kinds: Sequence[str]) -> int:
        """Jobs more than 5 % slower than what stood before would have been, or than a measured
        alternative that was left behind for good."""
        return sum(
            job.behind or job.slower_than(max(job.baseline, job.former))
            if job.kind in ("incumbent", "top")
            else job.slower_than(job.incumbent)
            for job in self.ran
            if job.kind in kinds and not job.fallen
        )


@dataclass
class Month:
    """One month under one policy."""

    cluster: Cluster
    jobs: int
    seed: int
    greedy: bool = False
    """Publish the top prediction for all jobs."""
    batch: int = 100
    """Jobs that end between two looks of the tuner."""
    ran: list[Ran] = field(init=False, default_factory=list)
    said: "hashlib._Hash" = field(init=False, default_factory=hashlib.sha256)
    """Over every message in order."""
    messages: int = field(init=False, default=0)
    seconds: float = field(init=False, default=0.0)
    history: dict[str, list[str]] = field(init=False, default_factory=dict)
    """Incumbents of each context, the latest last."""

    def __post_init__(self) -> None:
        self.tuner = Tuner(self.cluster.study, InlineExecutor())
        self.reader = Recommendations()
        self.running: dict[str, Recommendation] = {}
        self.top: dict[str, int] = {}
        self.retry: set[int] = set()
        self.served: dict[str, list[int]] = {}
        self.since: dict[str, int] = {}
        self.runs: dict[str, Counter[int]] = {one.key: Counter() for one in self.cluster.places}
        self.changes: Counter[str] = Counter()
        """Jobs of a context since the last change there; no key before the first."""
        self.measured: dict[str, list[int]] = {}
        """What was measured in a context when it changed last."""
        self.falls: Counter[str] = Counter()
        """The same since what served there fell."""

    def run(self) -> "Month":
        """Let it pass."""
        began = time.perf_counter()
        rng = np.random.default_rng(self.seed)
        for first in range(1, self.jobs + 1, self.batch):
            count = min(self.batch, self.jobs + 1 - first)
            made = [self._job(first + i, rng) for i in range(count)]
            learned = self.tuner.learn(made)
            for key in self.tuner.due(learned.contexts, learned.contexts):
                if key in self.tuner.contexts:  # the entry for other contexts is not followed
                    self._look(key, made[-1].finished_at)
        self.seconds = time.perf_counter() - began
        return self

    def _day(self, number: int) -> float:
        return DAYS * number / self.jobs

    def _job(self, number: int, rng: np.random.Generator) -> Observation:
        cluster, day = self.cluster, self._day(number)
        self._change(self._day(number - 1), day)
        at = int(rng.integers(len(cluster.places)))
        luck = NOISE * float(rng.standard_t(3))
        straggles, how, bad = rng.random(3)
        place, moment = cluster.places[at], START + timedelta(days=day)
        attempt = 2 if at in self.retry else 1
        self.retry.discard(at)
        choice = self._choice(place, number, attempt, moment)
        index = place.known if choice is None else place.index(choice.config)
        kind = "baseline" if choice is None else choice.kind
        value = cluster.level(place, index, day)
        serving = kind in ("incumbent", "top", "baseline")
        unstable = place.unstable[index]
        if bad < 0.5 and (unstable == 1.0 or (unstable == 2.0 and serving)):
            value += DEGRADED
        self._note(at, index, kind, value, day, choice)
        metrics: dict[str, float] = {}
        if not np.isnan(value):
            self.runs[place.key][index] += 1
            slow = np.log1p(-0.4 * how) if straggles < STRAGGLERS else 0.0
            metrics = {"tokens_per_second_per_gpu": float(np.exp(value + luck + slow))}
        else:
            self.retry.add(at)
        return Observation(
            study=cluster.study.name,
            source="benchmark",
            event_id=str(number),
            job_id=str(number),
            status=Status.SUCCEEDED if metrics else Status.OUT_OF_MEMORY,
            finished_at=moment,
            context=place.context,
            config=place.space.decode(place.codes[index]),
            metrics=metrics,
            sequence=number,
            attempt=attempt,
            gpus=int(str(place.context["n_gpus"])),
            user=f"user-{number % 7}",
            recommendation_id=choice.recommendation_id if choice else None,
            candidate_id=choice.candidate_id if choice else None,
            extra={"started_at": (moment - timedelta(hours=2)).isoformat()},
            content_hash=str(number),
        )

    def _change(self, before: float, day: float) -> None:
        """What serves falls; jobs since a change are counted from its day on."""
        left = [place for place in self.cluster.places if self._serves(place) != place.known]
        fell = {one.key: self._serves(one) for one in left[::4]} if before < 15 <= day else {}
        self.cluster.fallen |= fell
        for place in self.cluster.places:
            slowed = place.context["gpu"] == "A100" and before < 10 <= day
            if place.key in fell or slowed or before < 20 <= day:
                self.changes[place.key] = 0
                runs = self.runs[place.key].items()
                self.measured[place.key] = [one for one, count in runs if count >= MEASURED]

    def _regime(self, place: Place, day: float) -> int:
        return (day >= 10) + (day >= 20) + (place.key in self.cluster.fallen)

    def _serves(self, place: Place) -> int:
        if self.greedy:
            return self.top.get(place.key, place.known)
        served = self.served.get(place.key)
        return served[-1] if served else place.known

    def _choice(self, place: Place, number: int, attempt: int, now: datetime) -> Choice | None:
        if not self.greedy:
            return self.reader.choose(place.key, str(number), attempt=attempt, now=now)
        if place.key not in self.top or attempt > 1:
            return None
        return Choice(place.space.decode(place.codes[self.top[place.key]]), "top", "r", None)

    def _note(
        self, at: int, index: int, kind: str, value: float, day: float, choice: Choice | None
    ) -> None:
        cluster, place = self.cluster, self.cluster.places[at]
        served = self.served.get(place.key, [])
        stands = self._serves(place)
        before = _replaced(served, place.known)
        baseline = cluster.level(place, place.known, day)
        former = cluster.typical(place, before, day)
        same = self.since.get(place.key) == self._regime(place, day)
        lagging = kind == "incumbent" and not same and value < former + np.log1p(-SLOWER)
        self.ran.append(
            Ran(
                at,
                kind,
                value,
                baseline,
                cluster.typical(place, stands, day),
                former if same else baseline,
                bool(lagging),
                self._behind(place, kind, index, day),
                cluster.fallen.get(place.key) == index and self.falls[place.key] <= GRACE,
                self._promised(place, choice) if kind in ("explore", "exploit") else None,
            )
        )

    def _behind(self, place: Place, kind: str, index: int, day: float) -> bool:
        """Whether a job serves what an alternative beats that was measured before a change, long
        after it; both on the mean of good and bad days, for one run's luck is no choice."""
        if place.key not in self.changes:
            return False
        self.changes[place.key] += 1
        self.falls[place.key] += place.key in self.cluster.fallen
        if kind not in ("incumbent", "top") or self.changes[place.key] <= GRACE:
            return False
        own = self.cluster.typical(place, index, day)
        known = self.measured[place.key]
        best = max((self.cluster.typical(place, one, day) for one in known), default=own)
        return bool(own < best + np.log1p(-SLOWER))

    def _promised(self, place: Place, choice: Choice | None) -> float | None:
        if choice is None:
            return None
        told = self.running[place.key].candidates
        return next((one.feasible for one in told if one.candidate_id == choice.candidate_id), None)

    def _look(self, key: str, now: datetime) -> None:
        place = next(one for one in self.cluster.places if one.key == key)
        if self.greedy:
            self._top(place)
            return
        advice = self.tuner.advise(key, self.running.get(key))
        if advice.incumbent is not None:
            served = self.served.setdefault(key, [])
            index = place.index(advice.incumbent.config)
            if not served or served[-1] != index:
                served.append(index)
                self.since[key] = self._regime(place, self._day(self.tuner.sequence))
        if not is_news(self.cluster.study, advice, self.running.get(key)):
            return
        made_from = MadeFrom(
            sequence=self.tuner.sequence,
            model=None,
            study=self.cluster.study.content_hash,
            seeds=self.cluster.study.search.seeds,
            tunerd=__version__,
        )
        before = self.running.get(key)
        message = compose(
            self.cluster.study,
            key,
            self.tuner.contexts[key],
            advice,
            made_from,
            revision=before.revision + 1 if before else 1,
            now=now,
            valid=timedelta(days=60),
        )
        self.running[key] = message
        self.tuner.promise(key, advice)
        raw = to_bytes(message)
        self.said.update(raw)
        self.messages += 1
        self.reader.take(key, json.loads(raw))

    def _top(self, place: Place) -> None:
        model = self.tuner.model
        if model is None:
            return
        seen = model.outlook(self.tuner.features.candidates(place.space, place.codes))
        runs = seen.p_run >= self.cluster.study.min_feasible
        if runs.any():
            self.top[place.key] = int(np.argmax(np.where(runs, seen.mean, -np.inf)))

    # -- what became of it ------------------------------------------------------------------

    @property
    def passed(self) -> Passed:
        """What became of it."""
        places, said = len(self.cluster.places), self.said.hexdigest()
        return Passed(places, self.ran, self.judged(), said, self.messages, self.seconds)

    def judged(self) -> Counter[str]:
        """Promotions and withdrawals that were right and wrong. Right to promote: better than what
        it replaced, on average over good and bad days; right to withdraw: not more than 1 %
        better."""
        found: Counter[str] = Counter()
        names = {
            candidate_id(self.cluster.study.name, one.key, one.space.decode(code)): (one, i)
            for one in self.cluster.places
            for i, code in enumerate(one.codes)
        }
        for key, state in self.tuner.contexts.items():
            place = next(one for one in self.cluster.places if one.key == key)
            incumbent = former = place.known
            for verdict in state.introduction.verdicts:
                _, index = names[verdict.candidate_id]
                day = self._day(verdict.sequence)
                new = self.cluster.typical(place, index, day)
                old = self.cluster.typical(place, incumbent, day)
                found[_right(verdict, new - old)] += 1
                if verdict.outcome == "promoted":
                    incumbent, former = index, incumbent
                elif verdict.outcome == "returned":
                    incumbent = former
        return found


def _replaced(served: Sequence[int], known: int) -> int:
    """What stood before the incumbent, of all that served in turn. One that is back stands where it
    stood: who came and went meanwhile had its turn, and is judged as a promotion and a return."""
    stack = [known]
    for one in served:
        if len(stack) > 1 and one == stack[-2]:
            stack.pop()
        elif one != stack[-1]:
            stack.append(one)
    return stack[-2] if len(stack) > 1 else known


def _right(verdict: RolloutResult, ahead: float) -> str:
    if verdict.outcome == "promoted":
        return "promoted, better" if ahead > 0 else "promoted, worse"
    if verdict.outcome in ("returned", "slowed"):
        return verdict.outcome
    if np.isnan(ahead) or ahead < 0.01:
        return f"{verdict.outcome}, rightly"
    return f"{verdict.outcome}, though better"


def main() -> int:
    """The program."""
    options = arguments(__doc__)
    options.add_argument("--jobs", type=int, help="in the month")
    options.add_argument("--contexts", type=int, help="at most 20")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--predictor", help="instead of the study's default")
    options.add_argument("--workers", type=int, default=1, help="processes, one core each")
    chosen = options.parse_args()
    jobs = chosen.jobs or (2_500 if chosen.quick else 10_000)
    count = chosen.contexts or (5 if chosen.quick else 20)
    bars = Bars("never_harm")
    tasks = [
        (count, jobs, chosen.seed, chosen.predictor, greedy) for greedy in (False, False, True)
    ]
    if chosen.workers == 1:
        found = list(map(play, tasks))
    else:
        with ProcessPoolExecutor(chosen.workers, get_context("spawn")) as pool:
            found = list(pool.map(play, tasks))
    report(bars, *found)
    return bars.end(chosen)


def play(task: tuple[int, int, int, str | None, bool]) -> Passed:
    """Let one month pass: contexts, jobs, seed, predictor, whether the top prediction is
    published."""
    count, jobs, seed, predictor, greedy = task
    cluster = Cluster(count, seed, predictor)
    return Month(cluster, jobs, seed, greedy=greedy, batch=5 * count).run().passed


def report(bars: Bars, month: Passed, again: Passed, top: Passed) -> None:
    """Print, and hold against the bars."""
    jobs = len(month.ran)
    kinds = Counter(job.kind for job in month.ran)
    print(f"{jobs:,} jobs in {month.places} contexts")
    for kind, number in sorted(kinds.items()):
        slow = month.harmed([kind])
        bars.say(f"jobs: {kind}", number, f"of them {slow} more than 5 % slower")
    harmed = month.harmed(["incumbent", "exploit", "confirm"])
    share = harmed / jobs
    bars.hold("harmed jobs, exploration apart", share, share <= 0.01, "at most 0.01")
    told = ["incumbent", "exploit", "confirm", "explore"]
    bars.say("harmed jobs, exploration included", month.harmed(told) / jobs)
    bars.say("harmed where the top prediction is published", top.harmed(["top"]) / jobs)
    lag = sum(job.lagging for job in month.ran) / jobs
    bars.say("jobs of incumbents that a drift made the worse choice", lag)
    bars.say("jobs that stayed behind a measured alternative", sum(job.behind for job in month.ran))
    bars.say("jobs of what fell, until given up", sum(job.fallen for job in month.ran))
    tried = sum(kinds[one] for one in ("exploit", "confirm", "explore")) / jobs
    limit = parse_study(study_text((), None)).explore_share
    bars.hold("jobs that tried something", tried, tried <= limit * 1.1, f"at most {limit}")
    losing = int((month.gains < 0).sum())
    bars.hold("contexts with a net loss", losing, losing == 0, "none")
    bars.say("losing where the top prediction is published", int((top.gains < 0).sum()))
    gain, aim = float(month.gains.sum()) / jobs, float(top.gains.sum()) / jobs
    bars.say("mean gain over what people launch", gain)
    bars.say("gain where the top prediction is published", aim)
    bars.hold("of that", gain / aim if aim > 0 else np.inf, gain >= 0.5 * aim, "at least 0.5")
    explored = [job.gain for job in month.ran if job.kind == "explore"]
    bars.say("mean gain of jobs that only explore", float(np.mean(explored)) if explored else 0.0)
    new = [(job.promised, not np.isnan(job.value)) for job in month.ran if job.promised is not None]
    promised, ran = np.mean(new, axis=0) if new else (np.nan, np.nan)
    bars.say("new configurations: promised to run", float(promised))
    bars.say("new configurations: ran", float(ran))
    for what, number in sorted(month.judged.items()):
        bars.say(what, number)
    same = month.said == again.said
    bars.hold("messages that differ when fed again", 0 if same else 1, same, "none")
    bars.say("messages", month.messages)
    bars.say("seconds a month", month.seconds)


if __name__ == "__main__":
    sys.exit(main())
