"""Tables whose rows are no runs with different settings: an inventory, the moments of one run."""

from collections.abc import Collection, Iterator

import numpy as np

from tunerd.lab.tables.column_names import ColumnName
from tunerd.lab.tables.own_values import DRAWN
from tunerd.lab.tables.profile import ColumnProfile, TableProfile
from tunerd.lab.tables.roles import SAID, ColumnGuess

__all__ = ["no_trials", "rises_evenly"]

FEWEST_RUNS = 4
FEWEST_MOMENTS = 8
EVEN = 0.02
"""Share by which the steps of a clock may differ."""
FEWEST_STATISTICS = 4
_STATISTICS = {
    *("count", "mean", "std", "min", "25%", "50%", "75%", "max"),
    *("min.", "1st qu.", "median", "3rd qu.", "max."),
}
"""Rows of ``pandas.DataFrame.describe()`` and of R's ``summary()``."""
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
    if summary := _summary(profile):
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


def _summary(profile: TableProfile) -> str:
    """What the rows are where they sum up other rows; "" where they do not."""
    for column in profile.columns:
        if column.kind not in ("category", "text") or column.distinct != profile.rows:
            continue
        names = {str(value).strip().casefold() for value in column.counts}
        if len(names & _STATISTICS) >= FEWEST_STATISTICS and len(names - _STATISTICS) <= 1:
            return "rows are named like statistics (mean, min) of other rows: they may be no runs"
        others = {other.name.strip().casefold() for other in profile.columns if other is not column}
        if names == others:
            return "rows and columns have the same names, as in a matrix: rows may be no runs"
    return ""


def _names_things(guess: ColumnGuess) -> bool:
    """Whether a column has names of what jobs bring, and not of jobs."""
    named = guess.column.kind in ("category", "text") and _IDS.isdisjoint(guess.name.words)
    aside = guess.role in ("label", "context") or (guess.role == "parameter" and guess.unsure)
    return named and aside and guess.name.weight("context") >= 1


def _is_step(column: ColumnProfile, name: ColumnName) -> bool:
    if column.kind == "datetime":
        return False
    if name.words[-1:] in (("step",), ("iteration",)) and not _leaps(column):
        return False  # numbers the trials of a search
    return not _STEPS.isdisjoint(name.words) and rises_evenly(column)


def _leaps(column: ColumnProfile) -> bool:
    steps = np.diff(column.numbers)
    return bool(len(steps) and steps[0] != 1)


def rises_evenly(column: ColumnProfile) -> bool:
    """Whether a number rises by the same in each row."""
    if not column.numeric or len(column.codes) < FEWEST_MOMENTS:
        return False
    steps = np.diff(column.numbers)
    return bool((steps > 0).all() and np.ptp(steps) <= EVEN * steps.mean())
