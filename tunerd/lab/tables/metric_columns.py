"""Columns that were measured."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from tunerd.core.arrays import BoolArray
from tunerd.events.quantities import SPREAD
from tunerd.lab.tables.column_names import ColumnName, is_of_parameters
from tunerd.lab.tables.full_grid import came_out, full_grid, goes_its_own_way
from tunerd.lab.tables.metadata_columns import meaning
from tunerd.lab.tables.own_values import is_drawn, is_own_valued
from tunerd.lab.tables.profile import ColumnProfile, TableProfile
from tunerd.lab.tables.relations import explained, gaps_of
from tunerd.lab.tables.roles import ColumnGuess, sureness
from tunerd.lab.tables.vocabulary import OUTCOMES, SENSORS, STATISTICS

__all__ = ["FEW", "chosen_weight", "find_measured", "many_digits", "shape_of"]

A_GUESS = 0.8
"""A margin with which a person is asked."""
MOST_INPUTS = 64
"""Inputs that may explain a number: in a wide table some of all columns do by chance."""
FEW = 12
"""Values that people choose from. More, in numbers that follow no grid, come out of a clock."""


def shape_of(column: ColumnProfile) -> tuple[float, str]:
    """How much a number's values look measured (positive) or chosen (negative), and why."""
    if not column.numeric or column.distinct < 2:
        return -1.0, "is constant" if column.numeric else "holds no numbers"
    ratio = column.distinct / max(1, column.present)
    if column.distinct <= FEW and ratio <= 0.34:
        return -2.5, f"has {column.distinct} values only"
    if _on_a_grid(column) and ratio < 0.9:
        return -2.0, f"has {column.distinct} values on a grid"
    if ratio >= 0.5 or (ratio >= 0.2 and column.distinct > 30):
        digits = column.kind == "float" and many_digits(column)
        return (
            2.5 if digits else 1.5
        ), f"has {column.distinct:,} values in {column.present:,} rows"
    if column.kind == "float" and column.distinct > 40 and many_digits(column):
        return 1.0, f"has {column.distinct:,} values that follow no grid"
    return (-1.0 if ratio < 0.05 else 0.0), f"has {column.distinct:,} values"


def _on_a_grid(column: ColumnProfile) -> bool:
    """Whether the values are evenly spaced, or powers of one number."""
    values = np.array([float(v) for v in column.counts if isinstance(v, int | float)])
    if len(values) < 3:
        return True
    gaps = np.diff(values)
    if np.allclose(gaps, gaps[0], rtol=1e-6):
        return True
    return bool(
        values[0] > 0 and np.allclose(np.diff(np.log(values)), np.log(values[1] / values[0]))
    )


def many_digits(column: ColumnProfile) -> bool:
    """Whether most values have four significant digits or more."""
    values = [float(v) for v in list(column.counts)[:1_000] if isinstance(v, int | float)]
    long = sum(1 for value in values if float(f"{value:.3g}") != value)
    return 2 * long > len(values)


def find_measured(
    profile: TableProfile, names: Mapping[str, ColumnName], known: Mapping[str, ColumnGuess]
) -> dict[str, ColumnGuess]:
    """The measured columns, all as metrics; columns in ``known`` are left as they are."""
    open_ = [c for c in profile.columns if c.name not in known and c.numeric]
    counts = _repeats(open_, names)
    open_ = [c for c in open_ if c.name not in counts]
    failed = _failed(known.values())
    margins = {c.name: _margin(c, names[c.name], failed) for c in open_}
    bare = [c.name for c in open_ if _is_bare_statistic(names[c.name])]
    certain = {c.name for c in open_ if names[c.name].certainly_measured or _has_spread(c)}
    certain |= set(bare) if len(bare) > 1 else set()
    leaves = {names[c.name].leaf.lower(): c.name for c in open_}
    if leaves.keys() >= _OF_TIME:  # what the command ``time`` says
        certain |= {leaves[leaf] for leaf in _OF_TIME}
    for column in open_:
        if names[column.name].words == ("node",) and is_own_valued(column):
            margins[column.name] = A_GUESS, "nobody runs on as many numbers of nodes: of a search"
    limits = {c.name for c in open_ if _is_limit(c, names[c.name])}
    certain -= limits
    margins |= dict.fromkeys(limits, (-2.0, "is a limit of a few values"))
    margins |= {c.name: _certain(c, margins[c.name]) for c in open_ if c.name in certain}
    results = _behind(profile, names, margins, known, certain)
    results |= _came_out(profile, names, margins, known, certain)
    margins |= results
    sure = {name for name, (margin, _) in margins.items() if margin >= 2}
    sure |= {guess.column.name for guess in known.values() if guess.role in ("objective", "metric")}
    first = min((profile.column(name).place for name in sure), default=len(profile.columns))
    inputs = [
        c for c in profile.columns if c.name not in known and margins.get(c.name, (-1,))[0] < 0
    ]
    inputs.sort(key=lambda column: -chosen_weight(names[column.name]))
    del inputs[MOST_INPUTS:]
    measured_gaps = Counter(gaps_of(profile.column(name)) for name in sure)
    guesses: dict[str, ColumnGuess] = {}
    for column in open_:
        name = names[column.name]
        margin, why = margins[column.name]
        if (
            column.place > first
            and margin < 2
            and chosen_weight(name) < 4
            and column.name not in results
            and not is_of_parameters(column.name)
        ):
            margin += _bonus(column, inputs)
        gaps = gaps_of(column)
        if gaps is not None and measured_gaps[gaps] > (column.name in sure):
            margin, why = margin + 2.0, f"{why}; is missing where other measurements are"
        silent = not name.said and column.name not in certain and column.name not in results
        if silent and 0 < margin < 3 and sure and explained(column, inputs) < 0.05:
            continue  # drawn at random, like a learning rate: nothing that was chosen explains it
        open_name = column.name not in certain and column.name not in results
        if open_name and not name.weight("measured") and is_own_valued(column):
            margin = min(margin, A_GUESS)  # a search may have drawn it from a range
        if margin > 0:
            guesses[column.name] = ColumnGuess(
                column, name, "metric", sureness(margin), f"measured: {why}"
            )
    return guesses | counts


def _repeats(
    columns: Sequence[ColumnProfile], names: Mapping[str, ColumnName]
) -> dict[str, ColumnGuess]:
    """Columns that say how many runs the mean and the spread beside them are of."""
    of = Counter(_apart(c.name)[0] for c in columns if _is_bare(names[c.name].words[-1:]))
    why = "how many runs were summed up in a row"
    return {
        column.name: ColumnGuess(column, names[column.name], "ignored", 0.8, why)
        for column in columns
        if (parts := _apart(column.name))[1] in ("count", "n", "size", "nobs") and of[parts[0]] > 1
    }


def _apart(name: str) -> tuple[str, str]:
    """A name without its last word, and that word."""
    match = re.fullmatch(r"(.*?)[^a-z0-9]*([a-z0-9]*)", name.lower(), re.DOTALL)
    return (match[1], match[2]) if match else (name, "")


_OF_TIME = {"real", "user", "sys"}


def _is_limit(column: ColumnProfile, name: ColumnName) -> bool:
    """Whether a few values, many rows each, are of the most or the least that is put up with."""
    few = column.distinct <= FEW and 10 * column.distinct <= column.present
    taken = not (OUTCOMES | SENSORS).isdisjoint(name.words)
    return few and not taken and not {"max", "min", "limit", "timeout"}.isdisjoint(name.words)


def _has_spread(column: ColumnProfile) -> bool:
    """Whether its numbers stand beside what they spread by."""
    return column.written.notation.unit == SPREAD


def _is_bare_statistic(name: ColumnName) -> bool:
    """Whether a name says no more than "average" or "max": one of several of the same thing."""
    return _is_bare(name.words)


def _is_bare(words: Sequence[str]) -> bool:
    return bool(words) and _BARE.issuperset(words)


_BARE = STATISTICS | {"mean", "min", "max", "ms", "us", "ns", "s"}


def _came_out(
    profile: TableProfile,
    names: Mapping[str, ColumnName],
    margins: Mapping[str, tuple[float, str]],
    known: Mapping[str, ColumnGuess],
    certain: Collection[str],
) -> dict[str, tuple[float, str]]:
    """The margins of numbers that differ from run to run of a full grid, and that nobody sets; and
    of those that were set, such as the latency of a network, whatever their names say."""
    inputs = {name for name, guess in known.items() if guess.role in ("context", "parameter")}
    settings = [
        column
        for column in profile.columns
        if column.name in inputs
        or (
            column.name not in known
            and column.name not in certain
            and margins.get(column.name, (-1.0,))[0] < (4 if column.distinct <= FEW else 2)
        )
    ]
    settings.sort(key=lambda column: (chosen_weight(names[column.name]) < 2, column.place))
    grid = full_grid(settings)
    named = [c.place for c in profile.columns if margins.get(c.name, (0.0,))[0] >= 2]
    first = min(named, default=len(profile.columns))
    last = max((setting.place for setting in grid), default=-1)
    set_by_hand = [
        c for c in settings if margins.get(c.name, (-1.0,))[0] < 0 and c.place < max(first, last)
    ]
    brought = all(_is_brought(names[setting.name]) for setting in grid)
    if brought or any(goes_its_own_way(column, grid) for column in set_by_hand):
        return {}
    shown = ", ".join(setting.name for setting in grid)
    planned = {
        setting.name: (-2.0, f"is one of the settings of a full grid, {shown}"[:160])
        for setting in grid
        if margins.get(setting.name, (0.0,))[0] > 0 and setting.distinct <= FEW
    }
    why = f"differs from run to run of a full grid of {shown}"[:160]
    outcomes = [
        profile.column(name)
        for name, (margin, _) in margins.items()
        if margin < 2.5
        and chosen_weight(names[name]) < 3
        and came_out(
            profile.column(name), grid, FEW if profile.column(name).place < first else FEW // 2
        )
    ]
    # Before all that was measured stands what was set: it is a guess there.
    least = {c.name: 2.5 if c.place > first else A_GUESS for c in outcomes}
    return planned | {name: (max(margins[name][0], margin), why) for name, margin in least.items()}


def _is_brought(name: ColumnName) -> bool:
    """Whether a name is of what a job brings."""
    return name.weight("context") > name.weight("parameter")


def _certain(column: ColumnProfile, margin: tuple[float, str]) -> tuple[float, str]:
    why = f'its name ("{column.name[:40]}") is of something measured'
    return max(margin[0], 2.5), margin[1] if margin[0] > 2.5 else why


def _bonus(column: ColumnProfile, inputs: Sequence[ColumnProfile]) -> float:
    """People write what came out after what went in, and what came out follows what went in."""
    if shape_of(column)[0] < 1.5:
        return 0.75
    return 3.0 if explained(column, inputs) > 0.2 else 1.5


def _failed(known: Iterable[ColumnGuess]) -> BoolArray | None:
    """Which rows of the sample failed, by the status; ``None`` without one or without failures."""
    for guess in known:
        if guess.role != "status":
            continue
        column = guess.column
        good = [meaning(str(value)) == "succeeded" or value in (True,) for value in column.counts]
        if column.kind == "int":
            good = [value == 0 for value in column.counts]
        failed: BoolArray = ~np.array([*good, False])[column.codes]
        return failed if failed.any() and not failed.all() else None
    return None


def _margin(column: ColumnProfile, name: ColumnName, failed: BoolArray | None) -> tuple[float, str]:
    """Evidence that a column was measured, minus that it was chosen."""
    shape, why = shape_of(column)
    weight = name.weight("measured")
    if is_of_parameters(column.name):  # what a tool keeps as set was not measured
        shape, weight = min(shape, 0.0), 0.4 * weight
    margin = weight + shape - chosen_weight(name) - (0.5 if not weight else 0.0)
    if name.measure:
        why = f'its name ("{name.measure}") is of something measured, and it {why}'
    if failed is not None and (column.codes < 0).any():
        gaps = column.codes < 0
        if gaps[failed].mean() > 0.9 and gaps[~failed].mean() < 0.1:
            return margin + 4.0, f"{why}; is missing where jobs failed"
    return margin, why


def _behind(
    profile: TableProfile,
    names: Mapping[str, ColumnName],
    margins: Mapping[str, tuple[float, str]],
    known: Mapping[str, ColumnGuess],
    certain: Collection[str],
) -> dict[str, tuple[float, str]]:
    """The margins of numbers of many values that stand behind what was measured, in a table that
    has all that was set before it. Nobody says so of what stands before that and has no name."""
    inputs = {name for name, guess in known.items() if guess.role in ("context", "parameter")}
    named = [
        c.place
        for c in profile.columns
        if names[c.name].weight("measured") >= 1.5 and margins.get(c.name, (-1.0,))[0] >= 0
    ]
    settings = [
        column.place
        for column in profile.columns
        if column.name in inputs
        or (
            column.name not in known
            and (
                not column.numeric
                or (chosen_weight(names[column.name]) >= 3 and not _is_many(column))
            )
        )
    ]
    if not named or not settings:
        return {}
    first = min(named)
    moved: dict[str, tuple[float, str]] = {}
    for name, (margin, why) in margins.items():
        column = profile.column(name)
        weight = max(names[name].weight("measured"), chosen_weight(names[name]) - 2)
        silent = weight <= 0 and name not in certain
        behind = column.place > first and max(settings) < first
        if (
            not silent
            and behind
            and margin < 2
            and _is_many(column)
            and not is_drawn(column, names[name])
        ):
            counted = _counts_something(column, names[name]) and len(settings) > 1
            moved[name] = (2.5 if counted else A_GUESS), f"{why}; stands behind what was measured"
        if not silent or column.kind == "bool" or column.distinct <= FEW:
            continue
        if column.place > first and max(settings) < first:
            # One thing before it may be what a search drew the rest for.
            least = A_GUESS if len(settings) < 2 and is_own_valued(column) else 2.5
            margin = least if least < 2.5 else max(margin, least)
            moved[name] = margin, f"{why}; stands behind what was measured"
        elif column.place < first and max(settings) < first and min(settings) < column.place:
            moved[name] = min(margin, 0.0), why
    return moved


def _is_many(column: ColumnProfile) -> bool:
    """Whether a number has as many values as those that come out of a run."""
    return column.numeric and column.distinct > FEW and 10 * column.distinct >= 3 * column.present


_COUNTED = {"ms", "us", "ns", "s", "byte", "kb", "mb", "gb", "mib", "gib", "pct", "ratio"}


def _counts_something(column: ColumnProfile, name: ColumnName) -> bool:
    """Whether a name ends in what is counted or timed."""
    counted = re.search(r"count$|counts$|total$|^(num|n)_", column.name, re.IGNORECASE)
    return counted is not None or not _COUNTED.isdisjoint(name.words[-1:])


def chosen_weight(name: ColumnName) -> float:
    """How much a name says that people choose it."""
    return max(name.weight("context"), name.weight("parameter"), name.weight("label"))
