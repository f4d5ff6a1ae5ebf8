"""What the columns of a table of old jobs are: a guess for each, why, and how sure it is.

Three kinds of evidence, added up: what a column is called, what its values look like, and how it
hangs together with the others. Names say most; the data decides where they say nothing, or say
two things. Steps, each using what the one before found:

1. what is no part of a configuration: times, status, names of jobs, prose
   (:mod:`.metadata_columns`);
2. what was measured (:mod:`.metric_columns`), and which of it people want better
   (:mod:`.objective`);
3. of the rest, what may be tuned and what a job brings (:mod:`.tunable`).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tunerd.core.study.mapping import JobStatus
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.lab.tables.column_names import ColumnName, read_name
from tunerd.lab.tables.exports.units import mixed_units
from tunerd.lab.tables.hints import hinted, inputs_of, not_aside
from tunerd.lab.tables.metadata_columns import find_oddities
from tunerd.lab.tables.metric_columns import find_measured
from tunerd.lab.tables.no_trials import no_trials, summed_up
from tunerd.lab.tables.objective import goal_of, pick_objective, refuse_second_best
from tunerd.lab.tables.profile import ColumnProfile, TableProfile
from tunerd.lab.tables.rates import rate_of
from tunerd.lab.tables.relations import BoundRelation, ProductRelation, bounds, products
from tunerd.lab.tables.roles import SAID, ColumnGuess, Goal, Role
from tunerd.lab.tables.sentinel_values import Meaning, ObjectiveValues, objective_values
from tunerd.lab.tables.tunable import can_be_tuned, find_inputs, followers, totals

__all__ = ["TableGuess", "UserAnswers", "guess"]


DOUBTED = 0.4
"""How sure a column is whose numbers can be read in two ways."""


@dataclass(frozen=True)
class UserAnswers:
    """What a person has said, so that it need not be guessed."""

    objective: str | None = None
    goal: Goal | None = None
    roles: Mapping[str, Role] = field(default_factory=dict)
    """By column."""
    statuses: Mapping[str, JobStatus] = field(default_factory=dict)
    """What words of the status column mean."""
    meaning: Meaning | None = None
    """What values say that the objective cannot have."""


@dataclass(frozen=True)
class TableGuess:
    """What a table is."""

    profile: TableProfile
    columns: tuple[ColumnGuess, ...]
    """In the order of the table."""
    goal: Goal
    goal_sure: float
    goal_why: str
    products: tuple[ProductRelation, ...]
    """Of inputs; held in every row looked at."""
    bounds: tuple[BoundRelation, ...]
    """Of inputs too."""
    statuses: Mapping[str, JobStatus] = field(default_factory=dict)
    """What words of the status column mean, as a person or the export says; others are guessed."""
    meaning: Meaning | None = None
    """What a person said of values that the objective cannot have."""
    doubts: tuple[str, ...] = ()
    """Why its rows may be no runs with different settings."""

    def having(self, *roles: Role) -> list[ColumnGuess]:
        """The columns with one of these roles, in the order of the table."""
        return [guess for guess in self.columns if guess.role in roles]

    @property
    def objective(self) -> ColumnGuess:
        return self.having("objective")[0]

    @property
    def values(self) -> ObjectiveValues:
        """What the objective's values say."""
        return objective_values(self.objective.column, self.objective.name, self.meaning)


def guess(profile: TableProfile, given: UserAnswers = UserAnswers()) -> TableGuess:
    """Guess what every column is.

    Raises MisconfiguredError when no study can be made of the table, and says what is missing.
    """
    with np.errstate(all="ignore"):  # tables may hold 1e308; what overflows decides nothing
        try:
            return _guess(profile, given)
        except MisconfiguredError as error:
            if why := summed_up(profile):
                raise MisconfiguredError(
                    [ValidationProblem("table", why), *error.problems]
                ) from error
            raise


def _guess(profile: TableProfile, given: UserAnswers) -> TableGuess:
    _check(profile, given)
    names = {column.name: _name(profile, column) for column in profile.columns}
    guesses = {
        name: ColumnGuess(profile.column(name), names[name], role, 1.0, SAID)
        for name, role in given.roles.items()
    }
    if given.objective is not None:
        column = profile.column(given.objective)
        guesses[column.name] = ColumnGuess(column, names[column.name], "objective", 1.0, SAID)
    guesses |= hinted(profile, names, guesses)
    inputs_hinted = inputs_of(profile, names, guesses)
    guesses |= find_oddities(profile, names, guesses | inputs_hinted)
    guesses |= find_measured(profile, names, guesses | inputs_hinted)
    objective = pick_objective(profile, not_aside(profile, guesses))
    if given.objective is None:
        known = () if profile.export is None else profile.export.hints
        refuse_second_best(profile, objective, {*given.roles, *known})
    guesses[objective.column.name] = objective
    guesses |= find_inputs(profile, names, guesses)
    if not any(guess.role == "parameter" for guess in guesses.values()):
        guesses |= _last_resort(guesses)
        guesses |= followers(guesses, names)
    guesses |= totals(guesses)
    guesses = {name: _as_written(guess) for name, guess in guesses.items()}
    inputs = [
        guess.column
        for guess in guesses.values()
        if guess.role in ("context", "parameter", "derived")
    ]
    doubts = no_trials(profile, guesses.values())
    if doubts:
        guesses = {name: _doubted(guess) for name, guess in guesses.items()}
        objective = guesses[objective.column.name]
    goal, goal_sure, why = _goal(profile, objective, guesses, given)
    ordered = tuple(guesses[column.name] for column in profile.columns)
    equal = products(inputs)
    tuned = {guess.column.name for guess in guesses.values() if guess.role == "parameter"}
    held = bounds(
        [column for column in inputs if guesses[column.name].role != "derived"], tuned, equal
    )
    return TableGuess(
        profile,
        ordered,
        goal,
        goal_sure,
        why,
        tuple(equal),
        tuple(held),
        {**({} if profile.export is None else profile.export.statuses), **given.statuses},
        given.meaning,
        doubts,
    )


def _doubted(one: ColumnGuess) -> ColumnGuess:
    """A guess in a table that may be none of runs: sure of nothing that nobody said."""
    aside = one.role in ("ignored", "label", "time", "finished_at", "job_id", "user")
    return one if one.why == SAID or aside else replace(one, sure=min(one.sure, DOUBTED))


def _as_written(column_guess: ColumnGuess) -> ColumnGuess:
    """A parameter as it is launched, with its unit; and what is doubtful about how it is read."""
    if column_guess.role == "parameter":
        column_guess = replace(column_guess, column=column_guess.column.as_texts())
    doubt = column_guess.column.written.doubt
    if not doubt or column_guess.role not in ("context", "parameter", "objective", "metric"):
        return column_guess
    return replace(
        column_guess, sure=min(column_guess.sure, DOUBTED), why=f"{column_guess.why}; {doubt}"
    )


def _name(profile: TableProfile, column: ColumnProfile) -> ColumnName:
    """What a column's name says; of a known export, without its prefix."""
    hint = None if profile.export is None else profile.export.hints.get(column.name)
    if hint is None or hint.name is None:
        # MBS is a micro batch size where its values were chosen, and no MB/s.
        capital = _CAPITALS.fullmatch(column.name) is not None and _chosen_sizes(column)
        name = read_name(column.name.lower() if capital else column.name)
        unit = column.written.notation.unit or profile.units.get(column.name, "")
        if column.name.lower() in ("f1", "f2", "f3") and _are_objectives(profile):
            return replace(read_name("objective"), leaf=name.leaf)
        if name.words == ("precision",) and column.kind == "float" and _are_shares(column):
            return replace(read_name("precision_score"), leaf=name.leaf)  # of what is found
        rate = rate_of(unit) if "/" in unit else None
        if rate is not None and rate.goal == "minimize" and name.goal == "maximize":
            why = f"{unit} is a time for each piece of work, whatever it is called"
            return replace(name, goal=rate.goal, goal_sure=DOUBTED, goal_why=why)
        if name.goal is not None or rate is None:
            return name
        return replace(read_name(f"{column.name} ({unit})"), leaf=name.leaf)
    return replace(read_name(hint.name), leaf=hint.name)


def _are_objectives(profile: TableProfile) -> bool:
    """Whether f1 is the first of two or three objectives, and no F1 score."""
    named = {column.name.lower() for column in profile.columns}
    return "f2" in named and "f4" not in named


_CAPITALS = re.compile("[A-Z]{3}")


def _chosen_sizes(column: ColumnProfile) -> bool:
    """Whether the values are round whole numbers, as sizes are that people set: 8, 96, 1536."""
    whole = [value for value in column.values if isinstance(value, int) and value > 0]
    return len(whole) == column.distinct and all(map(_is_round, whole))


def _are_shares(column: ColumnProfile) -> bool:
    return all(isinstance(value, float) and 0 <= value <= 1 for value in column.values)


def _is_round(value: int) -> bool:
    """Whether a number is made of twos, threes and fives."""
    for factor in (2, 3, 5):
        while value % factor == 0:
            value //= factor
    return value == 1


def _goal(
    profile: TableProfile,
    objective: ColumnGuess,
    found: Mapping[str, ColumnGuess],
    given: UserAnswers,
) -> tuple[Goal, float, str]:
    hint = None if profile.export is None else profile.export.hints.get(objective.column.name)
    if hint is None or hint.goal is None or given.goal is not None:
        return goal_of(objective, list(found.values()), given.goal)
    if hint.goal_sure >= 0.5 or objective.name.goal is None:
        return hint.goal, hint.goal_sure, hint.goal_why
    return goal_of(objective, list(found.values()), given.goal)


def _check(profile: TableProfile, given: UserAnswers) -> None:
    problems = list(_table_problems(profile))
    known = {column.name for column in profile.columns}
    for name in [*given.roles, *([given.objective] if given.objective is not None else [])]:
        if name not in known:
            there = ", ".join(sorted(known)[:20])
            problems.append(
                ValidationProblem("table", f"has no column {name!r}; there are {there}")
            )
    if given.objective in known:
        column = profile.column(str(given.objective))
        if not column.numeric:
            problems.append(
                ValidationProblem(column.name, "holds no numbers, so it cannot be the objective")
            )
        if column.name in given.roles:
            role = given.roles[column.name]
            problems.append(
                ValidationProblem(column.name, f"cannot be the objective and {role} too")
            )
    for name, role in given.roles.items():
        if name in known and (why := _unfit(profile.column(name), role)):
            problems.append(ValidationProblem(name, why))
    if problems:
        raise MisconfiguredError(problems)


def _table_problems(profile: TableProfile) -> Iterator[ValidationProblem]:
    """Why no study can be made of a table, whatever its columns are."""
    if not profile.rows:
        message = "has no rows to learn from"
        if profile.unreadable:
            header = ", ".join(column.name for column in profile.columns[:5])
            message += f": none of {profile.unreadable:,} lines fits the header ({header})"
        yield ValidationProblem("table", message)
    for column in profile.columns if profile.export is None else ():
        if several := mixed_units(column.name, column.values):
            message = f"has several units ({', '.join(several)}); --export units reads them as one"
            yield ValidationProblem(column.name, message)
    if profile.rows == 1:
        thing = (profile.export.reported if profile.export is not None else "") or "row"
        message = (
            f"has one {thing} alone; a study needs several: put them into one file, or name the"
            " folder of all of them"
        )
        yield ValidationProblem("table", message)


def _unfit(column: ColumnProfile, role: Role) -> str:
    """Why a column cannot be what a person says; "" when it can."""
    if role == "metric" and not column.numeric:
        return "holds no numbers, so it was not measured"
    if role == "finished_at" and column.kind != "datetime" and not column.numeric:
        return "holds no times that can be read, so it cannot say when a job finished"
    if role == "parameter" and column.distinct != 1 and not can_be_tuned(column):
        # One value may get others in the draft; hundreds of texts are no choices.
        return "holds no values that could be chosen, so it cannot be tuned"
    return ""


def _last_resort(found: Mapping[str, ColumnGuess]) -> dict[str, ColumnGuess]:
    """Take for a parameter what is least a context, where nothing else is there to tune, and where
    there is none what may as well have been set as measured."""
    tunable = [guess for guess in found.values() if can_be_tuned(guess.column)]
    among = [guess for guess in tunable if guess.role == "context"]
    among = among or [guess for guess in tunable if guess.role == "metric" and guess.unsure]
    if not among:
        message = (
            "has no column that could be tuned: each is constant, measured, a time or a name."
            " A study needs one that varies; name it with --parameter COLUMN"
        )
        raise MisconfiguredError([ValidationProblem("table", message)])
    best = min(among, key=lambda guess: (guess.sure, -guess.column.place))
    why = f"nothing else could be tuned; else it would be {best.role}: {best.why}"
    return {best.column.name: replace(best, role="parameter", sure=0.2, why=why)}
