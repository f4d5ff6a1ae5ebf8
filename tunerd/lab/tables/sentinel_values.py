"""Which values of an objective mean that a run failed, and the scale that is left without them.

Benchmarks write -1, 0 or 1e20 for a run that did not work. Taken for measurements, they make a
failed configuration the best there is.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tunerd.core.outliers import is_mark
from tunerd.lab.tables.column_names import ColumnName
from tunerd.lab.tables.profile import ColumnProfile

__all__ = ["Meaning", "ObjectiveValues", "objective_values"]

Meaning = Literal["failed", "ran", "value"]
"""What a doubtful value says: the run failed, it ran and was not measured, or it is real."""

FAR = 100.0
"""A value that several rows share, and that is so many times the next, stands for something."""
FAR_ROUND = 10.0
"""… and so many times, where it is one that people choose for that: 999999, 1e20."""
MOST_NEGATIVE = 0.2
"""Share of rows with different negative values from which on these are real, whatever the name."""
NEAR_ZERO = 1e-3
"""Smallest positive value beside the median below which a 0 may be as real, where the name does not
say what was measured."""
_COUNTERS = frozenset(["energy", "joule", "kwh", "edp", "carbon", "co2", "power", "watt"])
"""What a counter measures that may be off while the run goes well."""
_ABOVE_ZERO = frozenset((
    "power", "watt", "memory", "rss", "maxrss", "vram", "peak",
))  # fmt: skip
_MAY_BE_ZERO = frozenset((
    "cost", "dollar", "usd", "expense", "objective", "fitness", "reward", "score", "size",
    "mfu", "hfu",
))  # fmt: skip
_ANYTHING = frozenset((
    "objective", "fitness", "reward", "fom", "merit", "score", "result", "response",
    "outcome", "measurement", "y", "value",
))  # fmt: skip
"""Names that do not say what was measured."""
RANK_OF_SPEED = 5.0
"""From this rank on a measure is a speed, a time, an energy or the like (vocabulary)."""


@dataclass(frozen=True, slots=True)
class ObjectiveValues:
    """What the values of an objective say."""

    scale: Literal["log", "linear"]
    why: str
    low: float | None = None
    """Smallest value that it can have, where that is said."""
    impossible: tuple[float, ...] = ()
    """Values that it cannot have and that occur, the smallest first."""
    failed_values: tuple[float, ...] = ()
    """Values above all others that stand for a failed run."""
    rows: int = 0
    """Rows with one of these."""
    meaning: Meaning = "failed"
    sure: bool = True

    @property
    def shown(self) -> str:
        """The doubtful values for a person."""
        values = [*self.impossible, *self.failed_values]
        more = f" and {len(values) - 3} more" if len(values) > 3 else ""
        return ", ".join(f"{value:.6g}" for value in values[:3]) + more


def objective_values(
    column: ColumnProfile, name: ColumnName, said: Meaning | None = None
) -> ObjectiveValues:
    """Tell values that were measured from those that mean something else.

    ``said`` is what a person has said of the doubtful ones; None for a guess.
    """
    counts = {float(v): n for v, n in column.counts.items() if isinstance(v, int | float)}
    counts = {value: n for value, n in counts.items() if math.isfinite(value)}
    above, counts = _sentinels(counts)
    below = {value: n for value, n in counts.items() if value <= 0}
    positive = sorted(value for value in counts if value > 0)
    rows = sum(above.values())
    if not positive:
        return _linear(counts, below, above)
    if not below:
        why = "all values are positive: compared by ratios"
        if not above:
            return ObjectiveValues("log", why)
        if said == "value":
            return ObjectiveValues("log", why)
        why = f"compared by ratios, without {_rows(rows)} of {_list(above)}"
        return ObjectiveValues(
            "log", why, None, (), tuple(above), rows, said or "failed", said is not None
        )
    improbable, sure = _improbable(below, positive, counts, name)
    if said == "value" or (said is None and not improbable):
        return _linear(counts, below, {} if said == "value" else above)
    rows += sum(below.values())
    meaning: Meaning = "ran" if _COUNTERS & set(name.words) else "failed"
    why = f"compared by ratios, without {_rows(rows)} of {_list(below | above)}"
    return ObjectiveValues(
        "log",
        why,
        None,
        tuple(sorted(below)),
        tuple(above),
        rows,
        said or meaning,
        sure or said is not None,
    )


def _linear(
    counts: Mapping[float, int], below: Mapping[float, int], above: Mapping[float, int]
) -> ObjectiveValues:
    """Values that are not all positive are real."""
    lowest = min(counts, default=0.0)
    why = f"there are values that are not positive ({lowest:.6g})"
    low = 0.0 if below and lowest >= 0 else None
    rows = sum(above.values())
    return ObjectiveValues("linear", why, low, (), tuple(above), rows, "failed", not above)


def _improbable(
    below: Mapping[float, int], positive: list[float], counts: Mapping[float, int], name: ColumnName
) -> tuple[bool, bool]:
    """Whether values of 0 and less are improbable for what was measured, and whether that is
    sure."""
    total = sum(counts.values())
    negative = {value: n for value, n in below.items() if value < 0}
    if len(negative) > 2 and sum(negative.values()) > MOST_NEGATIVE * total:
        return False, True
    if _never_zero(name):
        return True, True
    known = bool(name.measure) and not _ANYTHING & set(name.measure.split())
    marks = all(is_mark(-value) for value in negative)
    if negative and not (marks and len(negative) <= 2):
        return False, True
    if known and not negative:
        return False, True  # a loss, a count or an accuracy of 0 is one
    middle = float(np.median(np.repeat(positive, [counts[value] for value in positive])))
    apart = positive[0] >= NEAR_ZERO * middle
    return apart and 2 * sum(below.values()) < total, False


def _never_zero(name: ColumnName) -> bool:
    """Whether a name says that what was measured is above 0: a time, a speed, an energy."""
    word_set = set(name.measure.split())
    if not word_set or word_set & _MAY_BE_ZERO:
        return False
    if word_set & _ABOVE_ZERO or "per" in word_set:
        return True
    return name.goal is not None and name.measure_rank >= RANK_OF_SPEED


def _sentinels(counts: dict[float, int]) -> tuple[dict[float, int], dict[float, int]]:
    """Values far above all others that stand for a failed run, and the rest."""
    sentinels: dict[float, int] = {}
    rest = dict(counts)
    while len(rest) > 2:
        *_, second, largest = sorted(rest, key=abs)
        times = abs(largest) / abs(second) if second else math.inf
        shared = rest[largest] > 1 and times >= FAR
        marked = is_mark(abs(largest)) and times >= FAR_ROUND and abs(largest) >= 999
        if largest < 0 or not (shared or (marked and (rest[largest] > 1 or times >= FAR))):
            break
        sentinels[largest] = rest.pop(largest)
    if 2 * sum(sentinels.values()) > sum(counts.values()):
        return {}, counts  # what most rows have is no mark
    return dict(sorted(sentinels.items())), rest


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _list(values: Mapping[float, int]) -> str:
    shown = sorted(values)
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return ", ".join(f"{value:.6g}" for value in shown[:3]) + more
