"""Columns that were measured, which of them people want better, and which way better is."""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tunerd.core.arrays import BoolArray
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.events.quantities import SPREAD
from tunerd.lab.tables.column_names import ColumnName, read_name
from tunerd.lab.tables.full_grid import came_out, full_grid, goes_its_own_way
from tunerd.lab.tables.metadata_columns import meaning
from tunerd.lab.tables.own_values import is_drawn, is_own_valued
from tunerd.lab.tables.profile import ColumnProfile, TableProfile
from tunerd.lab.tables.rates import DOUBTFUL, rate_of
from tunerd.lab.tables.relations import determines, explained, grouped, same_gaps
from tunerd.lab.tables.roles import ColumnGuess, Goal, sureness
from tunerd.lab.tables.vocabulary import OUTCOMES, QUALITY, SENSORS, STATISTICS

__all__ = [
    "find_measured",
    "goal_of",
    "many_digits",
    "pick_objective",
    "refuse_second_best",
    "shape_of",
]

A_GUESS = 0.8
"""A margin with which a person is asked."""
MOST_FOR_PLACE = 0.3
"""How much a place far behind in a table counts against an objective: less than its name."""
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
    guesses: dict[str, ColumnGuess] = {}
    for column in open_:
        name = names[column.name]
        margin, why = margins[column.name]
        if column.place > first and margin < 2 and _chosen(name) < 4 and column.name not in results:
            margin += _bonus(column, inputs)
        if any(same_gaps(column, profile.column(other)) for other in sure - {column.name}):
            margin, why = margin + 2.0, f"{why}; is missing where other measurements are"
        silent = not name.said and column.name not in certain and column.name not in results
        if silent and 0 < margin < 3 and sure and explained(column, inputs) < 0.05:
            continue  # drawn at random, like a learning rate: nothing that was chosen explains it
        if silent and not name.weight("measured") and is_own_valued(column):
            margin = min(margin, A_GUESS)  # a search may have drawn it from a range
        if margin > 0:
            guesses[column.name] = ColumnGuess(
                column, name, "metric", sureness(margin), f"measured: {why}"
            )
    return guesses


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
    word_set = set(name.words)
    return bool(word_set) and word_set <= _BARE


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
    settings.sort(key=lambda column: (_chosen(names[column.name]) < 2, column.place))
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
        and _chosen(names[name]) < 3
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
    margin = weight + shape - _chosen(name) - (0.5 if not weight else 0.0)
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
            and (not column.numeric or (_chosen(names[column.name]) >= 3 and not _is_many(column)))
        )
    ]
    if not named or not settings:
        return {}
    first = min(named)
    moved: dict[str, tuple[float, str]] = {}
    for name, (margin, why) in margins.items():
        column = profile.column(name)
        weight = max(names[name].weight("measured"), _chosen(names[name]) - 2)
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


def _chosen(name: ColumnName) -> float:
    """How much a name says that people choose it."""
    return max(name.weight("context"), name.weight("parameter"), name.weight("label"))


def pick_objective(profile: TableProfile, found: Mapping[str, ColumnGuess]) -> ColumnGuess:
    """The measured column that people most likely want better.

    Raises MisconfiguredError when nothing was measured.
    """
    given = [guess for guess in found.values() if guess.role == "objective"]
    if given:
        return given[0]
    among = [
        guess for guess in found.values() if guess.role == "metric" and guess.column.distinct > 1
    ]
    if not among:
        among = _anything(profile, found)
    if not among:
        message = (
            "no study can be drafted: no column looks measured. An objective is a number that"
            " differs from job to job, such as a speed or a time; name it with --objective COLUMN"
        )
        raise MisconfiguredError([ValidationProblem("table", message + _called_measured(profile))])
    among = [guess for guess in among if not _is_property(guess.column, profile, found)] or among
    ranked = sorted(among, key=_rank, reverse=True)
    best, second = ranked[0], ranked[1] if len(ranked) > 1 else None
    lead = _rank(best) - (_rank(second) if second else 0.0)
    sure = sureness(min(lead + 0.5, _rank(best) / 2))
    quality = None if _is_quality(best) else next(filter(_is_quality, ranked), None)
    if quality is not None:
        sure = min(sure, 0.4)
    why = f'"{best.name.measure}" is what people tune for' if best.name.measure else best.why
    if quality is not None:
        why += f"; {quality.column.name} may be meant instead"
    elif second is not None and second.name.rank > 0:
        why += f"; the next likely is {second.column.name}"
    return replace(best, role="objective", sure=sure, why=why)


def _is_property(
    column: ColumnProfile, profile: TableProfile, found: Mapping[str, ColumnGuess]
) -> bool:
    """Whether a number is one of the things that were chosen, such as the price of a machine: it
    is the same wherever they are, and nothing that is measured is."""
    things = [c for c in profile.columns if c.kind in ("category", "bool") and c.name not in found]
    return column.distinct <= FEW and determines(grouped(things, profile.sampled), column)


def _is_quality(one: ColumnGuess) -> bool:
    """Whether it says how good what was trained is."""
    return not QUALITY.isdisjoint(one.name.measure.split())


def refuse_second_best(
    profile: TableProfile, objective: ColumnGuess, said: Collection[str]
) -> None:
    """Refuse an objective that is one only because a better column cannot be read.

    Columns in ``said`` are what a person has called something. Raises MisconfiguredError.
    """
    for column in profile.columns:
        name = read_name(column.name)
        better = name.rank > objective.name.rank and name.weight("measured") > _chosen(name)
        if column.name not in said and better and column.distinct > FEW and _written_oddly(column):
            message = (
                f"{column.name} looks like what is to be made better, and"
                f" {_why_unread(column)}. To make {objective.column.name} better instead, say"
                f" --objective {shlex.quote(objective.column.name)}"
            )
            raise MisconfiguredError([ValidationProblem("table", message)])


_ODD = re.compile(
    r"[+-]?[$€£]?\s?\d[\d\s.,:'’_-]*[^\d\s]{0,12}(?:\s*(?:±|\+/-|\+-)\s*[\d.,]+\s*[^\d\s]{0,12})?"
)
"""A number as people and spreadsheets write it: 14,108.9, 12.5 tok/s, 00:12:02."""


def _written_oddly(column: ColumnProfile) -> bool:
    """Whether a text holds numbers that only a person can read."""
    if column.kind not in ("category", "text"):
        return False
    texts = [str(value) for value in column.values[:1_000]]
    return 2 * sum(1 for text in texts if _ODD.fullmatch(text)) > len(texts)


def _rank(one: ColumnGuess) -> float:
    gaps = one.column.missing / max(1, one.column.rows)
    known = one.name.rank if one.name.said or one.name.measure else 2.0
    return known - gaps + one.sure - min(0.01 * one.column.place, MOST_FOR_PLACE)


def _anything(profile: TableProfile, found: Mapping[str, ColumnGuess]) -> list[ColumnGuess]:
    """A number with many values that is nothing else yet; the last column most likely."""
    numbers = [c for c in profile.columns if c.name not in found and c.numeric and c.distinct > 1]
    open_ = [c for c in numbers if not _chosen(read_name(c.name))]
    if not open_:
        return []
    best = max(open_, key=lambda c: (read_name(c.name).weight("measured"), c.distinct, c.place))
    why = "no column looks measured; of the numbers this one has the most values"
    return [ColumnGuess(best, read_name(best.name), "metric", 0.1, why)]


def _called_measured(profile: TableProfile) -> str:
    """Why columns that are called like a measurement are none."""
    reason = ""
    for column in profile.columns:
        if not read_name(column.name).measure or column.kind in ("bool", "datetime"):
            continue
        reason += f"; {column.name} {_why_unread(column)}"
    return reason


def _why_unread(column: ColumnProfile) -> str:
    """Why a column that is called like a measurement is none, and what to do about it."""
    text = next((value for value in column.values if isinstance(value, str)), None)
    if text is None:
        if column.distinct > 1:
            return f"has {column.distinct:,} values, which look chosen"
        return "is empty" if column.kind == "empty" else "is the same in all rows"
    if text.startswith(("[", "{")):
        return f"holds lists such as {text[:40]!r}: write each number under a name of its own"
    write = "seconds" if re.search(r"\d:\d\d", text) else "1234.5, without comma or unit"
    return f"holds text such as {text[:40]!r}: write {write}"


def goal_of(
    objective: ColumnGuess, columns: Sequence[ColumnGuess], given: Goal | None
) -> tuple[Goal, float, str]:
    """Which way better is, how sure that is, and why."""
    if given is not None:
        return given, 1.0, "you said so"
    name = objective.name
    if name.goal == "minimize" and "neg" not in name.words and _all_negative(objective.column):
        goal = "maximize" if name.is_time else name.goal
        return goal, DOUBTFUL, f"all its values are negative, and {name.goal_why}"
    if name.goal is not None and name.goal_sure >= 0.5:
        return name.goal, name.goal_sure, name.goal_why
    if (stated := _stated(columns, name.words)) is not None:
        return stated
    if name.goal is not None:
        return name.goal, name.goal_sure, f"its name can be read both ways: {name.goal_why}"
    for column in columns:
        if column.role == "metric" and column.name.goal is not None and column.name.rank >= 5:
            both = np.isfinite(column.column.numbers) & np.isfinite(objective.column.numbers)
            if both.sum() >= 10:
                with np.errstate(all="ignore"):
                    pair = np.corrcoef(objective.column.numbers[both], column.column.numbers[both])
                if abs(pair[0, 1]) > 0.3:
                    alike = pair[0, 1] > 0
                    opposite: Goal = "minimize" if column.name.goal == "maximize" else "maximize"
                    moves = "rises" if alike else "falls"
                    goal = column.name.goal if alike else opposite
                    # What is good and what it costs rise together too.
                    return goal, DOUBTFUL, f"it {moves} with {column.column.name}"
    return "maximize", 0.2, "nothing says which way is better"


def _all_negative(column: ColumnProfile) -> bool:
    numbers = column.numbers[np.isfinite(column.numbers)]
    return bool(numbers.size and (numbers < 0).all())


_BETTER: Mapping[str, Goal] = {
    **dict.fromkeys(("min", "minimize", "minimise", "lower", "smaller", "less", "lib"), "minimize"),
    **dict.fromkeys(("max", "maximize", "maximise", "higher", "larger", "more", "hib"), "maximize"),
    **dict.fromkeys(("lower is better", "smaller is better"), "minimize"),
    **dict.fromkeys(("higher is better", "larger is better"), "maximize"),
}


def _stated(
    columns: Sequence[ColumnGuess], objective: Sequence[str]
) -> tuple[Goal, float, str] | None:
    """Which way better is, where a column says it of every row: a direction, a goal, a unit.

    ``None`` where none does, or two disagree.
    """
    by_goal: dict[Goal, tuple[Goal, float, str]] = {}
    for guess in columns:
        if guess.column.distinct != 1 or not isinstance(guess.column.values[0], str):
            continue
        value, (*before, last) = guess.column.values[0], guess.name.words or ("",)
        of_kind = last == "type" and before[-1:] in (["objective"], ["metric"])
        stands = last in ("direction", "goal", "objective", "proportion") or of_kind
        goal = _BETTER.get(value.lower().strip()) if stands else None
        if last == "unit" and {*before} <= {"score", "metric", "objective", "result", *objective}:
            rate = rate_of(f"score ({value})" if "/" not in value else value)
            goal = rate.goal if rate is not None and rate.sure >= 0.5 else None
        if goal is not None:
            by_goal[goal] = goal, 0.9, f'{guess.column.name} says "{value[:40]}"'
    return next(iter(by_goal.values())) if len(by_goal) == 1 else None
