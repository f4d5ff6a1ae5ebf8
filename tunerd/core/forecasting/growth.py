"""Contexts that come because a number grows: 8, 16 and 32 GPUs, and next 64.

Contexts that differ in one number only are a family. Where the largest of a family was new again
and again, the next larger one is foreseen: by the same step once two steps were alike, else the
next larger number that another family has had, else twice the largest where that was twice the one
before.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from tunerd.core.observation import Scalar
from tunerd.core.study import Study
from tunerd.core.study.context_key import clean_value
from tunerd.core.study.parts import ContextFeature

__all__ = ["GrownContext", "contexts_by_growth"]

LEAST_SIZES = 2
"""Sizes, each larger than all before it, that make a growth."""
ALIKE = 0.01
"""Steps that differ by less than this share are the same step."""

_Family = tuple[tuple[str, Scalar], ...]
"""The features in which the contexts of a family are the same."""


class GrownContext(NamedTuple):
    """A context that nobody has run, one step beyond the largest of its family."""

    context: dict[str, Scalar]
    feature: str
    """That grows."""
    grew_at: datetime
    """When the largest so far first came."""


def contexts_by_growth(
    study: Study,
    known: Mapping[str, tuple[Mapping[str, Scalar], int]],
    now: datetime,
    lately: timedelta,
    most: int,
) -> dict[str, GrownContext]:
    """The next size of each family that grew lately, by context key; those that grew last first.

    Args:
        known: by key, contexts with jobs, and the hour since 1970 in which each first came.
        lately: a family whose largest has been there for longer is not expected to grow on.
        most: so many contexts at most.
    """
    grown: list[tuple[int, str, GrownContext]] = []
    for feature in study.context:
        if feature.type not in ("int", "float") or feature.key == "ignore" or feature.signal:
            continue
        families = _families(feature, known.values())
        ladder = sorted({size for family in families.values() for size in family})
        for rest, sizes in families.items():
            records = _records(sizes)
            following = _following([size for size, _ in records], ladder)
            if following is None or not math.isfinite(following):
                continue
            whole = round(following) if feature.type == "int" else following
            value = clean_value(whole, feature.type)
            context = study.clean_context({**dict(rest), feature.name: value})
            key, at = study.context_key(context), _moment(records[-1][1])
            if value is not None and key not in known and now - at < lately:
                grown.append((-records[-1][1], key, GrownContext(context, feature.name, at)))
    latest: dict[str, GrownContext] = {}
    for _, key, entry in sorted(grown, key=lambda entry: entry[:2]):
        latest.setdefault(key, entry)
    return dict(islice(latest.items(), most))


def _families(
    feature: ContextFeature, contexts: Iterable[tuple[Mapping[str, Scalar], int]]
) -> dict[_Family, dict[float, int]]:
    """By what else is the same: sizes of a feature, and the hour in which each first came."""
    families: dict[_Family, dict[float, int]] = {}
    for context, hour in contexts:
        size = context.get(feature.name)
        if isinstance(size, bool) or not isinstance(size, int | float) or not math.isfinite(size):
            continue
        rest = tuple((name, value) for name, value in context.items() if name != feature.name)
        family = families.setdefault(rest, {})
        family[size] = min(family.get(size, hour), hour)
    return families


def _records(sizes: Mapping[float, int]) -> list[tuple[float, int]]:
    """Sizes that were larger than all before when they first came, and the hours. Of those that
    came in one hour only the largest counts: a table of old jobs may have one time for all."""
    records: list[tuple[float, int]] = []
    for size, hour in sorted(sizes.items(), key=lambda entry: (entry[1], -entry[0])):
        if not records or (size > records[-1][0] and hour > records[-1][1]):
            records.append((size, hour))
    return records


def _following(sizes: Sequence[float], ladder: Sequence[float]) -> float | None:
    """The size after some that grew; None where nothing tells it."""
    if len(sizes) < LEAST_SIZES:
        return None
    if len(sizes) > LEAST_SIZES:
        first, second, third = sizes[-3:]
        if first > 0 and math.isclose(second / first, third / second, rel_tol=ALIKE):
            return third * (third / second)
        if math.isclose(second - first, third - second, rel_tol=ALIKE):
            return third + (third - second)
    place, doubled = bisect_right(ladder, sizes[-1]), 2 * sizes[-2]
    if place < len(ladder):
        return ladder[place]
    return 2 * sizes[-1] if math.isclose(sizes[-1], doubled, rel_tol=ALIKE) else None


def _moment(hour: int) -> datetime:
    return datetime.fromtimestamp(3600 * hour, UTC)
