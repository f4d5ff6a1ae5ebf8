"""Which jobs are known and which are asked for: pure, seeded, the same for every predictor.

A split is a way of leaving jobs out that stands for a question: how well is a mixture predicted
(``random``), the future (``time``), what nobody has run yet (``group:COLUMN``), a larger scale
(``above:COLUMN=VALUE``), and how many jobs does it take (``curve``)? ``--known`` says how much of
what is asked about may be known; several amounts make several cells, from the same draws.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.observation import Observation, Scalar
from tunerd.core.study import Study
from tunerd.errors import MisconfiguredError, ValidationProblem

__all__ = ["SplitFold", "SplitSpec", "TrainingAmount", "folds", "parse_known", "parse_split"]

PARTS = 5
"""Of a random split without ``--known``: each is asked for once, from the other four."""
HELD_OUT = 0.2
"""Share of the jobs that a learning curve asks for; the same ones at every amount known."""
CUTS = ("50%", "60%", "70%", "80%", "90%")
CURVE = (30, 75, 150, 300, 750, 1_500, 3_000, 7_500, 15_000, 30_000)
FEW = 8
"""Jobs left to ask about below which a cell is not made: too few to rank."""
LEAST_IN_GROUP = 4
"""Jobs of a group below which it is not asked about: too few to tell anything by."""
MOST_GROUPS = 100
"""Groups that are left out in turn; of more, as many drawn at random."""
WHOLE_CONTEXT = "context_key"
"""``group:context_key`` leaves one context out at a time."""

KINDS = ("random", "time", "group:COLUMN", "above:COLUMN=VALUE", "curve")


@dataclass(frozen=True, slots=True)
class TrainingAmount:
    """How many jobs are known: a number, or a share of what there is."""

    amount: float
    is_share: bool = False

    def of(self, n: int) -> int:
        """How many of n, rounded."""
        return round(self.amount * n) if self.is_share else int(self.amount)

    def __str__(self) -> str:
        return f"{self.amount * 100:g}%" if self.is_share else f"{self.amount:g}"


@dataclass(frozen=True, slots=True)
class SplitSpec:
    """One way of leaving jobs out."""

    kind: str
    """``random``, ``time``, ``group``, ``above`` or ``curve``."""
    column: str = ""
    """Of ``group`` and ``above``."""
    value: float = 0.0
    """Of ``above``: larger ones are asked for."""

    def __str__(self) -> str:
        match self.kind:
            case "group":
                return f"group:{self.column}"
            case "above":
                return f"above:{self.column}={self.value:g}"
        return self.kind


@dataclass(frozen=True)
class SplitFold:
    """What is known and what is asked for, once. Indices into the observations, ascending."""

    split: str
    known: str
    """The amount known, as one asked for it; results are told by split and amount."""
    repeat: int
    part: str
    """Which group, or which fifth: folds that differ in this alone are judged together."""
    train: IntArray
    asked: IntArray


# ── words ────────────────────────────────────────────────────────────────────────────────────


def parse_split(text: str, study: Study) -> SplitSpec:
    """Read ``random``, ``time``, ``group:COLUMN``, ``above:COLUMN=VALUE`` or ``curve``.

    Columns are the study's context features and parameters, and ``context_key`` for a group.

    Raises:
        MisconfiguredError: it is none of these, or there is no such column.
    """
    kind, _, rest = text.partition(":")
    columns = [f.name for f in study.context] + [p.name for p in study.parameters]
    if kind in ("random", "time", "curve"):
        if rest:
            raise _mistake("--split", f"{kind} takes nothing after it, not {rest!r}")
        return SplitSpec(kind)
    if kind == "group":
        return SplitSpec(kind, _column(rest, [*columns, WHOLE_CONTEXT], "group:COLUMN"))
    if kind == "above":
        column, equals, value = rest.partition("=")
        column = _column(column, columns, "above:COLUMN=VALUE")
        try:
            limit = float(value) if equals else math.nan
        except ValueError:
            limit = math.nan
        if not math.isfinite(limit):
            raise _mistake("--split", f"above:{column} needs a number, above:{column}=64")
        return SplitSpec(kind, column, limit)
    raise _mistake("--split", f"{text!r} is none of {', '.join(KINDS)}")


def parse_known(text: str) -> tuple[TrainingAmount, ...]:
    """Read amounts of known jobs: ``30``, ``5%``, or several, ``0,5,10,20``.

    Raises:
        MisconfiguredError: one is neither a count nor a share.
    """
    return tuple(_known(part.strip()) for part in text.split(","))


def _known(text: str) -> TrainingAmount:
    matched = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text)
    if matched is None or (not matched[2] and "." in matched[1]):
        raise _mistake("--known", f"{text!r} is neither a number of jobs (20) nor a share (5%)")
    amount = float(matched[1])
    if matched[2] and amount > 100:
        raise _mistake("--known", f"{text} is more than there is")
    return TrainingAmount(amount / 100, is_share=True) if matched[2] else TrainingAmount(amount)


def _column(name: str, there: Sequence[str], usage: str) -> str:
    if not name:
        raise _mistake("--split", f"name a column: {usage}; there are {', '.join(there)}")
    if name not in there:
        raise _mistake("--split", f"no column {name!r}; there are {', '.join(there)}")
    return name


def _mistake(where: str, message: str) -> MisconfiguredError:
    return MisconfiguredError([ValidationProblem(where, message)])


# ── folds ────────────────────────────────────────────────────────────────────────────────────


def folds(
    study: Study,
    split: SplitSpec,
    observations: Sequence[Observation],
    known: Sequence[TrainingAmount] = (),
    repeats: int = 1,
    seed: int = 0,
) -> list[SplitFold]:
    """Leave jobs out. The same arguments give the same folds.

    ``observations`` are in the order in which they were learned, oldest first where dated.
    Without ``known`` every split has amounts of its own.

    Raises:
        MisconfiguredError: the table has nothing for this split, and why.
    """
    made = list(_MAKERS[split.kind](_SplitTask(study, split, observations, known, repeats, seed)))
    if not made:
        raise _mistake(
            f"--split {split}",
            f"{len(observations)} jobs leave fewer than {FEW} to ask about, or nothing known",
        )
    return made


@dataclass(frozen=True)
class _SplitTask:
    study: Study
    split: SplitSpec
    observations: Sequence[Observation]
    known: Sequence[TrainingAmount]
    repeats: int
    seed: int

    def __len__(self) -> int:
        return len(self.observations)

    def rng(self, repeat: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, repeat])

    def fold(
        self, known: object, repeat: int, part: str, train: IntArray, asked: IntArray
    ) -> SplitFold:
        return SplitFold(str(self.split), str(known), repeat, part, np.sort(train), np.sort(asked))

    def values(self) -> list[Scalar]:
        """The split's column."""
        name = self.split.column
        if name in {f.name for f in self.study.context}:
            return [self.study.clean_context(o.context)[name] for o in self.observations]
        for parameter in self.study.parameters:
            if parameter.name == name:
                return [_scalar(parameter.clean(parameter.of(o.config))) for o in self.observations]
        return [self.study.context_key(o.context) for o in self.observations]


def _scalar(value: object) -> Scalar:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _random(task: _SplitTask) -> Iterator[SplitFold]:
    for repeat in range(task.repeats):
        order = task.rng(repeat).permutation(len(task))
        if not task.known:
            if len(task) < 2 * PARTS:
                return
            for part in range(PARTS):
                asked = order[part::PARTS]
                rest = np.setdiff1d(order, asked)
                yield task.fold(f"{1 - 1 / PARTS:.0%}", repeat, f"{part + 1}", rest, asked)
        for known in task.known:
            n = known.of(len(task))
            if 0 < n <= len(task) - FEW:
                yield task.fold(known, repeat, "", order[:n], order[n:])


def _curve(task: _SplitTask) -> Iterator[SplitFold]:
    amounts = task.known or [TrainingAmount(n) for n in CURVE]
    for repeat in range(task.repeats):
        order = task.rng(repeat).permutation(len(task))
        cut = len(task) - round(HELD_OUT * len(task))
        if len(task) - cut < FEW:
            return
        for known in amounts:
            n = known.of(cut)
            if 0 < n <= cut:
                yield task.fold(known, repeat, "", order[:n], order[cut:])
        if not task.known:
            yield task.fold(f"{1 - HELD_OUT:.0%}", repeat, "", order[:cut], order[cut:])


def _time(task: _SplitTask) -> Iterator[SplitFold]:
    """Everything up to a moment known, all that finished later asked for. Jobs of one moment are
    never torn apart, so that where dates are coarse several cuts fall together."""
    finished = np.array([o.finished_at.timestamp() for o in task.observations])
    order = np.argsort(finished, kind="stable")
    later = np.flatnonzero(np.diff(finished[order]) > 0) + 1
    if not len(later):
        raise _mistake("--split time", "all jobs finished at the same moment: nothing is dated")
    amounts = task.known or [_known(cut) for cut in CUTS]
    used = set()
    for known in amounts:
        cut = int(later[np.argmin(np.abs(later - known.of(len(task))))])
        if cut in used or len(task) - cut < FEW:
            continue
        used.add(cut)
        for repeat in range(task.repeats):
            yield task.fold(known, repeat, "", order[:cut], order[cut:])


def _group(task: _SplitTask) -> Iterator[SplitFold]:
    groups: dict[str, list[int]] = {}
    for i, value in enumerate(task.values()):
        groups.setdefault("~" if value is None else str(value), []).append(i)
    if len(groups) < 2:
        raise _mistake(f"--split {task.split}", f"{task.split.column} has a single value")
    large = [name for name, rows in groups.items() if len(rows) >= LEAST_IN_GROUP]
    if len(large) > MOST_GROUPS:
        drawn = task.rng(0).permutation(len(large))[:MOST_GROUPS]
        large = [large[i] for i in np.sort(drawn).tolist()]
    for name in large:
        yield from _target(task, name, np.array(groups[name]))


def _above(task: _SplitTask) -> Iterator[SplitFold]:
    values = task.values()
    numbers: FloatArray = np.array(
        [v if isinstance(v, int | float) else math.nan for v in values], dtype=np.float64
    )
    large = np.flatnonzero(numbers > task.split.value)
    there = np.unique(numbers[np.isfinite(numbers)])
    if not len(there):
        raise _mistake(f"--split {task.split}", f"{task.split.column} holds no numbers")
    if not len(large) or len(large) == len(task):
        raise _mistake(
            f"--split {task.split}",
            f"every job is on the same side; {task.split.column} goes from {there[0]:g} to"
            f" {there[-1]:g}",
        )
    yield from _target(task, "", large)


def _target(task: _SplitTask, part: str, rows: IntArray) -> Iterator[SplitFold]:
    """The jobs ``rows`` asked for, from all others and a few of them."""
    others = np.setdiff1d(np.arange(len(task)), rows)
    for repeat in range(task.repeats):
        rng = np.random.default_rng([task.seed, repeat, *part.encode()])
        order = rng.permutation(rows)
        for known in task.known or (TrainingAmount(0),):
            n = known.of(len(rows))
            if n == 0 or n <= len(rows) - FEW:
                train = np.concatenate([others, order[:n]])
                yield task.fold(known, repeat, part, train, order[n:])


_MAKERS = {"random": _random, "curve": _curve, "time": _time, "group": _group, "above": _above}
