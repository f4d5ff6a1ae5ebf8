"""The paper's Figure 2a (CubicML, arXiv 2409.04585) on the simulated ads cluster.

A real daemon, ``tunerd campaign`` and a simulated cluster over a folder of JSON lines: a random
start of 150 jobs, then three rounds of the best predicted. Between rounds, while the tuner thinks,
the cluster runs the incumbent as any scheduler would; those jobs are left out here. Gains are free
of noise, over the baseline that people sweep by hand and over the best of the random jobs: those of
the best measured configuration, as somebody who looks at the jobs would choose it, and of the
incumbent that tunerd names in the end.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.kit import Bars, Daemon, arguments, counted, running
from tunerd.client import JobReporter, Recommendations
from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Scalar, Value
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.simulation.cluster import TAUGHT_NOTHING, FinishedJob, SimulatedCluster
from tunerd.simulation.shipped import demo_contexts, shipped_study
from tunerd.simulation.simulator import CostSimulator, simulator_for

ROUNDS = 3
MOST = 3
"""Jobs that the cluster runs at most, in sizes of the campaign."""
BEHIND = 24
"""Ended jobs that the tuner may not have learned yet, three times those that run side by side: real
jobs take longer than it does, on any machine and beside any other work."""
WAIT_S = 60.0
"""Longest wait for the daemon: to learn a job, to ask for a round, or to name what it found."""


@dataclass(frozen=True)
class Plan:
    """Sizes of a campaign."""

    jobs: int
    size: int

    @property
    def total(self) -> int:
        """Runs that the campaign wants in all."""
        return self.jobs + ROUNDS * self.size


@dataclass(frozen=True)
class Played:
    """One campaign: its jobs in the order in which they ended."""

    seed: int
    round: FloatArray
    """(n,) number of the round; 0 is the random start."""
    place: FloatArray
    """(n,) place in the round's order, best predicted first, from 1; 0 in the random start."""
    measured: FloatArray
    """(n,) objective; NaN where it did not run."""
    expected: FloatArray
    """(n,) the same without noise."""
    baseline: float
    incumbent: float
    """Without noise, as everything here that gains are made of."""
    seconds: float

    def best(self, first: int, last: int) -> float:
        """Expected objective of the best measured job of some rounds."""
        inside = (self.round >= first) & (self.round <= last) & np.isfinite(self.measured)
        if not inside.any():
            return float("nan")
        return float(self.expected[inside][self.measured[inside].argmax()])

    def order(self) -> list[float]:
        """For each round: rank correlation between the predicted order and what was measured."""
        from scipy.stats import spearmanr

        found = []
        for number in range(1, ROUNDS + 1):
            inside = (self.round == number) & np.isfinite(self.measured) & (self.place > 0)
            if inside.sum() > 2:
                found.append(float(spearmanr(-self.place[inside], self.measured[inside])[0]))
        return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, help="campaigns  [default: 5]")
    parser.add_argument("--jobs", type=int, help="random jobs  [default: 150]")
    parser.add_argument("--round-size", type=int, help="jobs of a round  [default: 30]")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw the figure there")
    options = parser.parse_args(argv)
    plan = Plan(
        options.jobs or (40 if options.quick else 150),
        options.round_size or (10 if options.quick else 30),
    )
    seeds = options.seeds or (1 if options.quick else 5)
    bars, played = Bars("figure2a"), []
    for seed in counted("figure 2a", range(1, seeds + 1)):
        with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
            played.append(_play(Path(folder), plan, seed))
        _tell(bars, played[-1])
    _judge(bars, played, quick=options.quick)
    if options.plots:
        _plot(played, options.plots)
    return bars.end(options)


def _play(folder: Path, plan: Plan, seed: int) -> Played:
    started = time.monotonic()
    # Seeds of the study are those of its random start and its searches.
    text = shipped_study("ads-fsdp") + f"\n[search]\nseeds = [{seed}, {seed + 100}, {seed + 200}]\n"
    study = parse_study(text)
    context = study.clean_context(demo_contexts(study.name)[0])
    simulator = simulator_for(study)
    daemon = Daemon(folder, {study.name: text})
    stream = folder / "data" / "stream"
    with running(daemon):
        follower = Recommendations.follow_jsonl(stream, daemon.recommendations)
        reporter = JobReporter.jsonl(stream, daemon.jobs, "figure-2a")
        command = [sys.executable, "-m", "tunerd", "campaign", study.name]
        command += ["--settings", str(daemon.file), "--why", "figure 2a", "--jobs", str(plan.jobs)]
        command += ["--rounds", str(ROUNDS), "--round-size", str(plan.size)]
        command += [f"--context={name}={value}" for name, value in context.items()]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rounds = _Rounds(daemon, follower, study.context_key(context))
        rounds.wait_for(0)
        cluster = SimulatedCluster(
            simulator, [context], reporter, follower, seed=seed, name="figure", pace=rounds.pace
        )
        jobs = []
        for job in cluster.run(MOST * plan.total):
            jobs.append(job)
            if rounds.over:
                break
        config = _incumbent(rounds, daemon, len(jobs))
        reporter.close()
        follower.close()
    if not rounds.over:
        raise RuntimeError(f"the campaign was not over after {len(jobs)} jobs")
    return _played(study, simulator, context, jobs, rounds.asked, config, seed, started)


@dataclass
class _Rounds:
    """What the campaign asked for, as its messages come."""

    daemon: Daemon
    follower: Recommendations
    key: str
    ended: int = 0
    """Jobs so far."""
    learned: float = 0.0
    """Of them, the last time that somebody looked."""
    asked: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Round and place in it, by candidate."""
    over: bool = False

    def pace(self) -> None:
        """Called before every job's end: look at what is asked for, and let the tuner keep up."""
        deadline = time.monotonic() + WAIT_S
        while self.ended - self.learned > BEHIND:
            if time.monotonic() > deadline:
                raise RuntimeError(f"of {self.ended} jobs {self.learned:g} were learned")
            time.sleep(0.02)
            self.learned = _learned(self.daemon)
        self.ended += 1
        self.look()

    def look(self) -> None:
        """Note what the newest message asks for."""
        self.follower.poll()
        message = self.follower.find(self.key)
        if message is None:
            return
        number = message["round"]
        if number is None:
            self.over = any(known == ROUNDS for known, _ in self.asked.values())
            return
        for candidate in message["candidates"]:
            if candidate.get("wanted", 0) > 0 and candidate["candidate_id"] not in self.asked:
                place = 1 + sum(known == number for known, _ in self.asked.values())
                self.asked[candidate["candidate_id"]] = (number, place)

    def wait_for(self, number: int) -> None:
        """Wait until a round is asked for."""
        deadline = time.monotonic() + WAIT_S
        while all(known != number for known, _ in self.asked.values()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"round {number} was not asked for within {WAIT_S:g} s")
            self.look()
            time.sleep(0.05)


def _incumbent(rounds: _Rounds, daemon: Daemon, jobs: int) -> Mapping[str, Value] | None:
    """What tunerd names as the best known once it has learned all jobs."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and _learned(daemon) < jobs:
        time.sleep(0.2)
    quiet = time.monotonic() + 2.0
    while time.monotonic() < quiet:
        rounds.follower.poll(0.1)
        time.sleep(0.05)
    message = rounds.follower.find(rounds.key)
    return message["incumbent"]["config"] if message and message["incumbent"] else None


def _learned(daemon: Daemon) -> float:
    with suppress(OSError):
        found = daemon.metrics()
        return max((v for k, v in found.items() if k.startswith("tunerd_learned_sequence")))
    return 0.0


def _played(
    study: Study,
    simulator: CostSimulator,
    context: Mapping[str, Scalar],
    jobs: Sequence[FinishedJob],
    asked: Mapping[str, tuple[int, int]],
    config: Mapping[str, Value] | None,
    seed: int,
    started: float,
) -> Played:
    # A candidate that was asked for may become the incumbent, and is then run again by all: what
    # counts is its first run that said something.
    first: dict[str, FinishedJob] = {}
    for job in jobs:
        name = job.candidate_id or ""
        if name in asked and job.status not in TAUGHT_NOTHING:
            first.setdefault(name, job)
    kept = sorted(first.values(), key=lambda job: job.index)
    places = [asked[job.candidate_id or ""] for job in kept]
    baseline = study.baseline(context)
    assert baseline is not None
    values = simulator.expected(context, [baseline, config or baseline])
    return Played(
        seed=seed,
        round=np.array([number for number, _ in places], float),
        place=np.array([place if number else 0 for number, place in places], float),
        measured=np.array([job.objective for job in kept], float),
        expected=np.array([job.expected for job in kept], float),
        baseline=float(values[0]),
        incumbent=float(values[1]),
        seconds=time.monotonic() - started,
    )


def _tell(bars: Bars, played: Played) -> None:
    random = played.best(0, 0)
    name = f"seed {played.seed}"
    bars.say(f"{name}: jobs", len(played.round))
    bars.say(f"{name}: that ran", int(np.isfinite(played.measured).sum()))
    bars.say(f"{name}: best random job over the baseline", _gain(random, played.baseline), "%")
    for last in range(1, ROUNDS + 1):
        found = played.best(0, last)
        bars.say(
            f"{name}: after round {last} over the baseline", _gain(found, played.baseline), "%"
        )
    bars.say(f"{name}: incumbent over the baseline", _gain(played.incumbent, played.baseline), "%")
    bars.say(f"{name}: incumbent over the best random job", _gain(played.incumbent, random), "%")
    order = ", ".join(f"{one:+.2f}" for one in played.order())
    bars.say(f"{name}: predicted order and measured, round by round", order)
    bars.say(f"{name}: time", played.seconds, "s")


def _judge(bars: Bars, played: Sequence[Played], *, quick: bool) -> None:
    for title, over in (
        ("baseline", [one.baseline for one in played]),
        ("best random job", [one.best(0, 0) for one in played]),
    ):
        gains = [
            _gain(one.best(0, ROUNDS), reference)
            for one, reference in zip(played, over, strict=True)
        ]
        mean = float(np.mean(gains))
        if quick:
            bars.say(f"mean gain over the {title}", mean, "%")
        else:
            bars.hold(f"mean gain over the {title}", mean, mean > 0, "above 0 %", "%")
    order = [one for each in played for one in each.order()]
    if order:
        bars.say("mean rank correlation within rounds", float(np.mean(order)))


def _gain(value: float, reference: float) -> float:
    return 100 * (value / reference - 1)


def _plot(played: Sequence[Played], folder: Path) -> None:
    """Draw each campaign: all jobs, the frontier, and the order within rounds."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    colours = np.array(["#9e9e9e", "#90caf9", "#1e88e5", "#0d47a1"])
    for one in played:
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
        jobs = np.arange(1, len(one.round) + 1)
        ran = np.isfinite(one.measured) & (one.round >= 0)
        numbers = one.round.astype(int)
        left.scatter(jobs[ran], one.measured[ran], s=9, c=colours[numbers[ran]])
        frontier = np.fmax.accumulate(np.where(np.isfinite(one.measured), one.measured, -np.inf))
        left.plot(jobs, np.where(np.isfinite(frontier), frontier, np.nan), color="#d84315", lw=1.6)
        left.axhline(one.baseline, color="#616161", ls="--", lw=1.2)
        left.set(xlabel="jobs ended", ylabel="samples/s, as measured")
        for number in range(1, ROUNDS + 1):
            inside = ran & (numbers == number) & (one.place > 0)
            at = (number - 1) * (one.place.max() + 3) + one.place[inside]
            right.scatter(
                at, one.measured[inside], s=14, c=colours[number], label=f"round {number}"
            )
        right.axhline(one.baseline, color="#616161", ls="--", lw=1.2, label="baseline")
        right.set(xlabel="place in the round, best predicted first", xticks=[])
        right.legend(frameon=False)
        for axes in (left, right):
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        gain = _gain(one.best(0, ROUNDS), one.baseline)
        figure.suptitle(f"seed {one.seed}: {gain:+.1f} % over the baseline")
        figure.savefig(folder / f"figure2a-{one.seed}.png", dpi=130)
        pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
