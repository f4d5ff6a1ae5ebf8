"""Rebuilds: is the model that takes over the better one, and what does comparing cost?

Jobs of streams (:mod:`tunerd.lab.evaluation.streams`) are predicted, then learned, as the tuner
does it (``boosted_trees``, one member of 40 trees, for speed). At every rebuild champion and
challenger are compared on the jobs since it began (:mod:`tunerd.core.model.comparison`); whoever
wins serves. The loser is kept as well, for as many jobs again: what it would have predicted of them
says whether the verdict was right. Every third rebuild is spoiled on purpose: a third of its jobs
have the speeds of other jobs, as after an importer's mistake. Beside the contest: always taking
over, and taking over when Kendall's τ within contexts was at least as large.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.kit import Bars, arguments, counted
from benchmarks.streams import AS_CONTEXT
from benchmarks.tables import DATA, TABLES, read_table
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.features.replay import ReplayBuffer
from tunerd.core.model.comparison import (
    ModelComparison,
    ModelScore,
    contest,
)
from tunerd.core.model.history_weights import days
from tunerd.core.model.model import StudyModel
from tunerd.core.model.training import GROWTH, RECENT, SMALL, SWAP_AFTER
from tunerd.core.predictors.predictions import Predictions
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError
from tunerd.lab.evaluation.streams import DriftStream, WorkloadOptions, make_stream
from tunerd.lab.evaluation.tabular import measured

STEP = 10
KINDS = ("nothing", "slower", "reversed")
SPOILED = 3
"""Every so many-th rebuild learns wrong speeds …"""
WRONG = 1 / 3
"""… for this share of its jobs."""
DRAWS = 2_000


@dataclass
class Verdict:
    """One comparison, and how both did afterwards."""

    found: ModelComparison
    spoiled: bool
    champion: ModelScore
    challenger: ModelScore
    """On as many jobs after the decision."""

    def later(self, rule: str) -> float | None:
        """τ within contexts on the jobs afterwards of whoever a rule would have let serve."""
        found = self.found
        won = found.won
        if rule == "always":
            won = True
        if rule == "tau" and found.champion.kendall is not None:
            won = (found.challenger.kendall or 0.0) >= found.champion.kendall
        return (self.challenger if won else self.champion).kendall


class Side:
    """A model and what it said of jobs before it learned them."""

    def __init__(self, model: StudyModel) -> None:
        self.model = model
        self.forget()

    def forget(self) -> None:
        self.told = Predictions.of_scores(np.empty(0), np.empty(0))

    def meet(self, rows: FeatureRows, recent: FeatureRows, at: int) -> None:
        self.told = self.told.concat(self.model.predictor.predict(rows))
        self.model.update(rows, recent, at)


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    parser.add_argument("--tables", nargs="+", default=TABLES, help="which ones")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=3_000, help="of each stream")
    options = parser.parse_args(argv)
    if options.quick:
        options.tables, options.seeds, options.jobs = options.tables[:1], 1, 1_500
    bars = Bars("rebuilds")
    if not (options.data / f"{options.tables[0]}.json").exists():
        bars.say("skipped: no tables in", str(options.data), "(--data says where they are)")
        return 1 if options.check else 0
    started = time.perf_counter()
    verdicts = [one for stream in _streams(options) for one in follow(stream)]
    bars.say("comparisons", len(verdicts))
    for spoiled in (False, True):
        _judge(bars, [one for one in verdicts if one.spoiled is spoiled], spoiled=spoiled)
    bars.say("seconds", time.perf_counter() - started)
    return bars.end(options)


def _judge(bars: Bars, verdicts: list[Verdict], *, spoiled: bool) -> None:
    name = "spoiled rebuilds" if spoiled else "sound rebuilds"
    told = [one for one in verdicts if one.champion.kendall is not None]
    if not told:
        return
    bars.say(f"{name}: turned down", sum(not one.found.won for one in told) / len(told))
    later = {
        rule: np.array([one.later(rule) or 0.0 for one in told])
        for rule in ("contest", "always", "tau")
    }
    for rule, taus in later.items():
        bars.say(f"{name}: tau afterwards, {rule}", float(taus.mean()))
    difference = later["contest"] - later["always"]
    rng = np.random.default_rng(0)
    means = rng.choice(difference, (DRAWS, len(difference))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    said = f"{float(difference.mean()):+.4f} [{low:+.4f}, {high:+.4f}]"
    bars.say(f"{name}: contest against always", said)
    if spoiled:
        bars.hold(f"{name}: contest is better", float(low), low > 0, "> 0")
    else:
        bars.hold(f"{name}: contest is not worse", float(high), high >= 0, ">= 0")


def _streams(options: argparse.Namespace) -> Iterator[DriftStream]:
    for name in counted("tables", options.tables):
        read = read_table(name, options.data, as_context=AS_CONTEXT.get(name, ()))
        study = parse_study(read.study)
        quick = replace(study.predictor, name="boosted_trees", members=1, trees=40)
        table = measured(replace(study, predictor=quick), read.observations)
        for kind in KINDS:
            for seed in range(options.seeds):
                traffic = WorkloadOptions(jobs=options.jobs, noise=0.03)
                try:
                    yield make_stream(table, [kind], traffic, seed)
                except MisconfiguredError:
                    continue
                print(f"  {name} {kind} seed {seed}", flush=True)


def follow(stream: DriftStream) -> Iterator[Verdict]:
    """Every comparison of a stream."""
    study, features, replay = stream.study, FeatureMap(stream.study), ReplayBuffer()
    rng = np.random.default_rng(stream.seed)
    jobs = [one.job for one in stream.jobs()]
    champion: Side | None = None
    challenger: Side | None = None
    loser: Side | None = None
    started = decided = rebuilds = 0
    found: ModelComparison | None = None
    for first in range(0, len(jobs), STEP):
        portion = jobs[first : first + STEP]
        rows, at = features.rows(portion), portion[-1].sequence
        replay.add(rows, np.arange(at - len(rows) + 1, at + 1), days(portion))
        recent = replay.recent(RECENT).rows
        for side in (champion, challenger, loser):
            if side is not None:
                side.meet(rows, recent, at)
        if champion is None:
            if at >= SMALL:
                champion = Side(_fit(study, features, replay.sample().rows, at))
                started = at
        elif found is not None and loser is not None and at >= decided + SWAP_AFTER:
            since = replay.since(decided).rows
            after = contest(since.context_key, since.score, loser.told, champion.told)
            winner, other = after.challenger, after.champion
            pair = (other, winner) if found.won else (winner, other)
            yield Verdict(found, rebuilds % SPOILED == 0, *pair)
            found = loser = None
        elif challenger is not None and at >= started + SWAP_AFTER:
            since = replay.since(started).rows
            found = contest(since.context_key, since.score, champion.told, challenger.told)
            champion, loser = (challenger, champion) if found.won else (champion, challenger)
            challenger, decided = None, at
            champion.forget()
            loser.forget()
        elif challenger is None and loser is None and at >= started * (1 + GROWTH):
            rebuilds += 1
            sample = replay.sample().rows
            if rebuilds % SPOILED == 0:
                sample = _spoiled(sample, rng)
            challenger, started = Side(_fit(study, features, sample, at)), at
            champion.forget()


def _fit(study: Study, features: FeatureMap, rows: FeatureRows, at: int) -> StudyModel:
    return StudyModel.fit(study, features, rows, at)


def _spoiled(rows: FeatureRows, rng: np.random.Generator) -> FeatureRows:
    score = rows.score.copy()
    wrong = rng.choice(len(score), int(WRONG * len(score)), replace=False)
    score[wrong] = score[rng.permutation(wrong)]
    return replace(rows, score=score)


if __name__ == "__main__":
    sys.exit(main())
