"""Which of the measured columns people want better, and which way better is."""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.lab.tables.column_names import read_name
from tunerd.lab.tables.metric_columns import FEW, chosen_weight
from tunerd.lab.tables.profile import ColumnProfile, TableProfile
from tunerd.lab.tables.rates import DOUBTFUL, rate_of
from tunerd.lab.tables.relations import determines, grouped
from tunerd.lab.tables.roles import ColumnGuess, Goal, sureness
from tunerd.lab.tables.vocabulary import QUALITY

__all__ = ["goal_of", "pick_objective", "refuse_second_best"]

MOST_FOR_PLACE = 0.3
"""How much a place far behind in a table counts against an objective: less than its name."""


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
        better = name.rank > objective.name.rank and name.weight("measured") > chosen_weight(name)
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
    names = {c.name: read_name(c.name) for c in numbers}
    open_ = [c for c in numbers if not chosen_weight(names[c.name]) and not _is_set(c)]
    why = "no column looks measured; of the numbers this one has the most values"
    if not open_:  # a cycle time is set by Horovod, and measured by most others
        open_ = [c for c in numbers if names[c.name].is_time and 2 * c.distinct > c.present]
        why = "no column looks measured; this one is called like a time"
    if not open_:
        return []
    best = max(open_, key=lambda c: (names[c.name].weight("measured"), c.distinct, c.place))
    name = names[best.name]
    if name.is_time and name.goal is None:
        name = replace(name, goal="minimize", goal_sure=DOUBTFUL, goal_why="it may be a time")
    return [ColumnGuess(best, name, "metric", 0.1, why)]


def _is_set(column: ColumnProfile) -> bool:
    """Whether a few values come so often that somebody chose from them."""
    return column.distinct <= FEW and 3 * column.distinct <= column.present


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
    if "likelihood" in name.measure and _all_negative(objective.column) == (
        name.goal == "minimize"
    ):
        return name.goal or "maximize", DOUBTFUL, f"its sign is unusual, and {name.goal_why}"
    if name.goal == "minimize" and "neg" not in name.words and _all_negative(objective.column):
        goal = "maximize" if name.is_time else name.goal
        return goal, DOUBTFUL, f"all its values are negative, and {name.goal_why}"
    if name.goal is not None and name.goal_sure >= 0.5:
        return name.goal, name.goal_sure, name.goal_why
    unit = objective.column.written.notation.unit
    if unit and (rate := rate_of(unit)) is not None and rate.sure >= 0.5:
        return rate.goal, rate.sure, f"its numbers are in {unit}"
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
