"""Tables whose rows are no runs with different settings: an inventory, the moments of one run."""

import math
from collections.abc import Collection, Iterator
from datetime import datetime

import numpy as np

from tunerd.lab.tables.column_names import ColumnName, read_name
from tunerd.lab.tables.exports.pivoted import is_matrix
from tunerd.lab.tables.own_values import DRAWN
from tunerd.lab.tables.profile import ColumnProfile, TableProfile
from tunerd.lab.tables.roles import SAID, ColumnGuess
from tunerd.lab.tables.values import status_in

__all__ = ["no_trials", "rises_evenly", "summed_up"]

FEWEST_RUNS = 4
FEWEST_MOMENTS = 8
RARELY = 6 * 3_600.0
"""Seconds between moments of one run at most: nightly benchmarks are runs."""
EVEN = 0.02
"""Share by which the steps of a clock may differ."""
FEWEST_STATISTICS = 4
_STATISTICS = {
    *("count", "mean", "std", "min", "25%", "50%", "75%", "max"),
    *("min.", "1st qu.", "median", "3rd qu.", "max."),
}
"""Rows of ``pandas.DataFrame.describe()`` and of R's ``summary()``."""
_MARGINS = {"all", "total", "sum", "gesamt", "summe"}
_IDS = {"id", "uuid", "uid", "hash", "sha"}
_STEPS = {"step", "epoch", "iteration", "time", "timestamp", "elapsed", "timestep", "datetime"}


def no_trials(profile: TableProfile, guesses: Collection[ColumnGuess]) -> tuple[str, ...]:
    """Why the rows of a table may be no runs with different settings; () where nothing says so."""
    if any(guess.why == SAID and guess.role == "parameter" for guess in guesses):
        return ()
    return tuple(_doubts(profile, guesses))


def _doubts(profile: TableProfile, guesses: Collection[ColumnGuess]) -> Iterator[str]:
    if profile.rows < FEWEST_RUNS:
        yield f"{profile.rows} rows are too few to tell what is set from what comes out"
    if profile.export is not None:
        return
    if summary := summed_up(profile):
        yield summary
        return
    settings = [guess for guess in guesses if guess.role == "parameter" and not guess.unsure]
    chosen = [guess for guess in settings if DRAWN.isdisjoint(guess.name.words)]
    for guess in guesses if not chosen else ():
        if _is_step(guess.column, guess.name):
            yield (
                f"{guess.column.name} rises evenly from row to row: rows may be moments of one run,"
                " and no runs"
            )
            return
    for guess in guesses if not settings else ():
        if _names_things(guess) and guess.column.distinct == profile.rows:
            yield (
                f"each row is of another {guess.column.name}, and nothing is called like a setting:"
                " rows may be no runs"
            )
            return


def summed_up(profile: TableProfile) -> str:
    """What the rows are where they sum up other rows or count them; "" where they do neither."""
    names = [column.name.strip().casefold() for column in profile.columns]
    for column in profile.columns:
        if column.distinct != profile.rows:
            continue
        values = {str(value).strip().casefold() for value in column.counts}
        if len(values & _STATISTICS) >= FEWEST_STATISTICS and len(values - _STATISTICS) <= 1:
            return "rows are named like statistics (mean, min) of other rows: they may be no runs"
        others = set(names) - {column.name.strip().casefold()}
        if _STATISTICS.issuperset(others) and len(others) > 2 and _are_columns(values):
            return (
                "rows are named like columns of another table, and columns like their statistics:"
                " rows are no runs"
            )
        if is_matrix(values, others - _MARGINS):
            return "rows and columns have the same names, as in a matrix: rows may be no runs"
    return _counted(profile)


def _are_columns(names: Collection[str]) -> bool:
    """Whether most names are of settings or measurements."""
    known = sum(max(read_name(name).weights.values(), default=0.0) >= 1 for name in names)
    return 2 * known >= len(names)


def _counted(profile: TableProfile) -> str:
    """Why the cells may count other rows; "" where nothing says so."""
    cells = [column for column in profile.columns if column.numeric]
    known = [column for column in cells if max(read_name(column.name).weights.values(), default=0)]
    whole = all(
        column.kind == "int" and column.numbers.min() >= 0 for column in cells if column.distinct
    )
    if len(cells) < 2 or not whole:
        return ""
    ends = [column for column in cells if status_in(column.name) is not None]
    totals = [column for column in cells if column.name.strip().casefold() in _MARGINS]
    rest = [column for column in cells if column not in totals]
    sums = np.sum([column.numbers for column in rest], axis=0)
    if any(np.array_equal(column.numbers, sums) for column in totals):
        return f"{totals[0].name} is the sum of the others: cells may be counts, and rows no runs"
    if len(ends) >= 2 and len(ends) == len(rest):
        return f"columns are called like ends of jobs ({ends[0].name}): cells may be counts"
    if not known and not totals and any(0 in column.counts for column in cells):
        return "cells are whole numbers, some of them 0, and have no name: they may be counts"
    return ""


def _names_things(guess: ColumnGuess) -> bool:
    """Whether a column has names of what jobs bring, and not of jobs."""
    named = guess.column.kind in ("category", "text") and _IDS.isdisjoint(guess.name.words)
    aside = guess.role in ("label", "context") or (guess.role == "parameter" and guess.unsure)
    return named and aside and guess.name.weight("context") >= 1


def _is_step(column: ColumnProfile, name: ColumnName) -> bool:
    if column.kind == "datetime":
        return rises_evenly(column, RARELY)
    if name.words[-1:] in (("step",), ("iteration",)) and not _leaps(column):
        return False  # numbers the trials of a search
    return not _STEPS.isdisjoint(name.words) and rises_evenly(column)


def _leaps(column: ColumnProfile) -> bool:
    steps = np.diff(column.numbers)
    return bool(len(steps) and steps[0] != 1)


def rises_evenly(column: ColumnProfile, most: float = math.inf) -> bool:
    """Whether a number or a time rises by the same in each row, and by less than ``most``."""
    codes = column.codes[column.codes >= 0]
    if len(codes) < max(FEWEST_MOMENTS, len(column.codes) - 1):
        return False
    if column.kind == "datetime":
        times = np.array(
            [datetime.fromisoformat(str(value)).timestamp() for value in column.counts]
        )
        steps = np.diff(times[codes])
    elif column.numeric:
        steps = np.diff(column.numbers[column.codes >= 0])
    else:
        return False
    return bool((steps > 0).all() and steps[0] < most and np.ptp(steps) <= EVEN * steps.mean())
