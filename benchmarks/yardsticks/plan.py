"""What the yardsticks measure: every table, every question, everyone who answers.

A *cell* is one of each; it is the unit that is run, written as one line, and skipped by a run that
takes up where another was killed. Which column of a table stands for a group and which for scale
is stated for the five that the project is measured on, and guessed for any other from its roles
and values.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.peers import OPTIMIZERS, PREDICTORS
from benchmarks.tables import read_table
from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Scalar, Value
from tunerd.core.predictors import PREDICTORS as OWN
from tunerd.core.study_file import parse_study
from tunerd.lab.evaluation.closed_loop import BenchmarkPlan

__all__ = [
    "CHECKS",
    "DRAWS",
    "MODES",
    "Cell",
    "Description",
    "cells",
    "describe",
    "loop_plan",
    "table_names",
]

CHECKS = {"oracle": 2, "shuffled_lightgbm_log": 20}
"""Predictors that judge the yardsticks, one that knows everything and one that was taught
nonsense, and how often they are asked: nonsense is noise, and only its mean is nothing."""
SMALL = ("5%", "30", "75", "150", "300")
DRAWS = 8
"""Of those few jobs: with three of 30 jobs, a tenth of which ran, one lucky job decided who led."""
TARGET_KNOWN = ("0", "5", "10", "20")
"""Jobs known of the group or scale that is asked about."""
FEWER = 4
"""Times fewer draws of those: all the other jobs are known as well, and learned each time."""
SCALE = ("gpu", "replica", "worker", "node", "device", "rank", "core", "size", "n_")
"""What columns of a scale are called, the likeliest first."""
QUICK_ROWS = 400
QUICK_CONTEXTS = 1
MOST_GROUPS = 12
"""Values above which a column is no group to leave out one by one."""

Kind = Literal["predict", "loop"]
Columns = Mapping[str, Sequence[Scalar]]
"""Name → value of each job."""

MODES: Mapping[str, str] = {
    "none": "from nothing: 15 random jobs, the same for all, then batches of 5",
    "five": "from nothing: 5 random jobs, the same for all, then batches of 5",
    "others": "all other contexts known: batches of 5 from the first job on",
}
"""Ways to play closed loops."""


@dataclass(frozen=True)
class Description:
    """What a table has to offer."""

    name: str
    group: str | None
    """Context column to leave out value by value."""
    above: str | None
    """``COLUMN=VALUE``: larger ones are the large scale."""
    dated: bool
    as_context: tuple[str, ...] = ()
    """Tunables that are given in closed loops."""
    unknown: str | None = None
    """Context feature whose value is wholly unknown in closed loops with history."""


FIVE = {
    one.name: one
    for one in (
        Description("vtrain_megatron", "hidden_size", "n_gpus=8", dated=False),
        Description("llmfoundry_fsdp", "gpu", "n_gpus=8", dated=True),
        # More GPUs always win on samples/s, so that they are given when something is searched.
        Description("pollux_dp", "app", "num_replicas=16", False, ("num_replicas",), "app"),
        Description("trimtuner_ps", "model", "n_workers=16", dated=True),
        Description("calculon_simulated_16k", "model", "n_gpus=1024", dated=False),
    )
}


@dataclass(frozen=True)
class Cell:
    """One measurement; its fields are what it depends on."""

    kind: Kind
    table: str
    question: str
    """A split, or a mode of closed loops."""
    known: str
    """Amount of jobs known, as the split wants it; empty for the split's own, and for loops."""
    who: str
    repeats: int = 1
    """Draws of the known jobs."""
    seed: int = 0
    rows: int = 0
    """Jobs of the table that are used at most, 0 for all: --quick."""
    contexts: int = 0
    """Contexts that are played at most, 0 for all: --quick."""

    @property
    def name(self) -> str:
        """Names the line of results."""
        parts = [self.kind, self.table, self.question, self.known, self.who, f"seed {self.seed}"]
        return "/".join(part for part in parts if part)

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def table_names(data: Path) -> list[str]:
    """The described tables of a folder."""
    return sorted(
        path.stem
        for path in data.glob("*.json")
        if any((data / f"{path.stem}.csv{end}").exists() for end in ("", ".gz"))
    )


def describe(name: str, data: Path) -> Description:
    """What a table has to offer, as it is stated or by what its columns hold.

    Raises:
        FileNotFoundError: there is no such table.
    """
    if name in FIVE:
        return FIVE[name]
    table = read_table(name, data)
    study = parse_study(table.study)
    context: Columns = {
        feature.name: [study.clean_context(job.context)[feature.name] for job in table.observations]
        for feature in study.context
    }
    tuned: Columns = {
        parameter.name: [_scalar(job.config.get(parameter.name)) for job in table.observations]
        for parameter in study.parameters
    }
    above = _scale(context) or _scale(tuned)
    return Description(name, _group(context), above, table.dated)


def _scalar(value: Value) -> Scalar:
    return None if isinstance(value, list) else value


def _group(context: Columns) -> str | None:
    """A category if there is one, else the number that has the most values, but few."""

    def size(name: str) -> tuple[bool, int]:
        there = set(context[name]) - {None}
        return any(isinstance(value, str) for value in there), len(there)

    usable = [name for name in context if 2 <= size(name)[1] <= MOST_GROUPS]
    return max(usable, key=size, default=None)


def _scale(columns: Columns) -> str | None:
    """The number that looks most like a scale, cut where the larger ones are as near to a third
    of the jobs as can be."""
    found: dict[str, FloatArray] = {}
    for name, values in columns.items():
        numbers = np.array([v for v in values if _is_number(v)], dtype=np.float64)
        if len(numbers) == len(values) and len(np.unique(numbers)) > 1:
            found[name] = numbers

    def likely(name: str) -> tuple[int, float]:
        place = next((i for i, word in enumerate(SCALE) if word in name.lower()), len(SCALE))
        low, high = found[name].min(), found[name].max()
        return -place, float(high / low) if low > 0 else 0.0

    if not found:
        return None
    name = max(found, key=likely)
    cuts = np.unique(found[name])[:-1]
    cut = min(cuts, key=lambda one: abs(float(np.mean(found[name] > one)) - 1 / 3))
    return f"{name}={cut:g}"


def _is_number(value: Scalar) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def cells(
    descriptions: Sequence[Description],
    *,
    only: Kind | None = None,
    who: Sequence[str] = (),
    modes: Sequence[str] = ("none", "others"),
    seeds: int = 3,
    draws: int = DRAWS,
    quick: bool = False,
) -> list[Cell]:
    """Everything that is to be measured, in the order in which it is run.

    ``who`` restricts predictors and optimizers by name; without it all that are installed.
    """
    found: list[Cell] = []
    for description in descriptions:
        if only != "predict":
            found += _loops(description, who, modes, 1 if quick else seeds, quick)
        if only != "loop":
            found += _predictions(description, who, draws, quick)
    return found


def _predictions(table: Description, who: Sequence[str], draws: int, quick: bool) -> Iterator[Cell]:
    rows = QUICK_ROWS if quick else 0
    peers = [name for name, peer in PREDICTORS.items() if peer.installed]
    for question, known, repeats in _questions(table, draws, quick):
        for name in [*OWN, *peers]:
            if not who or name in who:
                yield Cell("predict", table.name, question, known, name, repeats, rows=rows)
    for name, repeats in CHECKS.items():
        if not who or name in who:
            # Not five folds: the mean of four is low where the fifth is high, so that even a
            # constant ranks the wrong way round when folds are put together.
            yield Cell("predict", table.name, "random", "80%", name, repeats)


def _questions(table: Description, draws: int, quick: bool) -> Iterator[tuple[str, str, int]]:
    """(split, known, draws). What was known is luck where it is little."""
    if quick:
        yield from (("random", known, 1) for known in ("5%", "150"))
    else:
        yield "random", "", 1
        yield from (("random", known, draws) for known in SMALL)
    if table.dated:
        yield from (("time", known, 1) for known in (("80%",) if quick else ("50%", "80%")))
    for kind, target in (("group", table.group), ("above", table.above)):
        if target is not None:
            amounts = TARGET_KNOWN[0 if kind == "group" else 2 :][:1] if quick else TARGET_KNOWN
            few = max(1, draws // FEWER)
            for known in amounts:
                yield f"{kind}:{target}", known, 1 if quick or known == "0" else few


def _loops(
    table: Description, who: Sequence[str], modes: Sequence[str], seeds: int, quick: bool
) -> Iterator[Cell]:
    for mode in modes:
        peers = [
            name
            for name, peer in OPTIMIZERS.items()
            if peer.installed and (peer.history if mode == "others" else peer.cold)
        ]
        if mode == "others":
            peers.append("random")  # the yardstick
        for seed in range(seeds):
            for name in ["tunerd", *peers]:
                if not who or name in who:
                    contexts = QUICK_CONTEXTS if quick else 0
                    yield Cell("loop", table.name, mode, "", name, seed=seed, contexts=contexts)


def loop_plan(cell: Cell, description: Description) -> BenchmarkPlan:
    """What the optimizers of a cell are put through."""
    match cell.question:
        case "others":
            unknown = description.unknown
            return BenchmarkPlan(
                jobs=20, start=0, seeds=(cell.seed,), history="others", unknown=unknown
            )
        case "five":
            return BenchmarkPlan(start=5, seeds=(cell.seed,))
        case _:
            return BenchmarkPlan(seeds=(cell.seed,), jobs=30 if cell.contexts else 60)
