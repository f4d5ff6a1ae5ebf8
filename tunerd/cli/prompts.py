"""What ``tunerd init`` asks a person at a terminal: whatever it is not sure of."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import click

if TYPE_CHECKING:
    from tunerd.core.study.mapping import JobStatus
    from tunerd.lab.tables.guess import TableGuess, UserAnswers
    from tunerd.lab.tables.profile import TableProfile
    from tunerd.lab.tables.roles import ColumnGuess, Role
    from tunerd.lab.tables.sentinel_values import Meaning

__all__ = ["ask"]

MOST_ASKED = 12
"""Columns, and words for how jobs ended, that a person is asked about, the least sure first. The
draft marks those that are left, and ``tunerd check`` repeats them."""

_GOALS = ("maximize", "minimize")
_ANSWERS: "dict[str, Role]" = {
    "context": "context",
    "parameter": "parameter",
    "metric": "metric",
    "status": "status",
    "finished-at": "finished_at",
    "job-id": "job_id",
    "user": "user",
    "label": "label",
    "ignore": "ignored",
}
_OF_ROLES = {role: answer for answer, role in _ANSWERS.items()}


def ask(
    seen: "TableProfile", first: "TableGuess", given: "UserAnswers", unit: str | None
) -> "tuple[TableGuess, str | None]":
    """Ask for what is not sure, with the guess as the answer of who just presses Return."""
    from tunerd.lab.tables.guess import guess

    _say("Return takes the guess in brackets.\n")
    guesses, given = _objective(seen, first, given)
    if unit is None:
        unit = _unit(guesses)
    if (meaning := _meaning(seen, guesses)) is not None:
        given = replace(given, meaning=meaning)
        guesses = guess(seen, given)
    left = MOST_ASKED
    while unsure := _unsure(guesses, given)[:left]:  # an answer may make others unsure
        roles = {guess.column.name: _role(guess) for guess in unsure}
        left -= len(roles)
        given = replace(given, roles={**given.roles, **roles})
        guesses = guess(seen, given)
    if statuses := _statuses(guesses):
        guesses = guess(seen, replace(given, statuses=statuses))
    return guesses, unit


def _unsure(guesses: "TableGuess", given: "UserAnswers") -> "list[ColumnGuess]":
    """The columns that nobody has said anything about, the least sure first."""
    unsure = [guess for guess in guesses.columns if guess.unsure and guess.role != "objective"]
    return sorted(
        (guess for guess in unsure if guess.column.name not in given.roles),
        key=lambda guess: guess.sure,
    )


def _objective(
    seen: "TableProfile", first: "TableGuess", given: "UserAnswers"
) -> "tuple[TableGuess, UserAnswers]":
    """What is to be made better, and which way that is."""
    from tunerd.lab.tables.guess import guess

    guesses = first
    if given.objective is None:
        numbers = [column.column.name for column in first.columns if column.column.numeric]
        measured = [column.column.name for column in first.having("objective", "metric")]
        _say(f"Measured: {', '.join(measured)}")
        answer = _choice("What is to be made better", numbers, first.objective.column.name)
        given = replace(given, objective=answer)
        guesses = guess(seen, given)
    if given.goal is None:
        why = f" ({guesses.goal_why})" if guesses.goal_sure < 0.5 else ""
        question = f"Make {guesses.objective.column.name} ...{why}"
        goal = _choice(question, _GOALS, guesses.goal)
        given = replace(given, goal=goal)  # type: ignore[arg-type]
        guesses = guess(seen, given)
    return guesses, given


def _unit(guesses: "TableGuess") -> str:
    from tunerd.lab.tables.column_names import unit_of

    column = guesses.objective.column.name
    unit = unit_of(column) or guesses.profile.units.get(column, "")
    return str(click.prompt("Its unit", default=unit, show_default=bool(unit), err=True))


def _meaning(seen: "TableProfile", guesses: "TableGuess") -> "Meaning | None":
    """What values mean that the objective can hardly have; None where there are none."""
    values = guesses.values
    if not values.rows:
        return None
    _say(
        f"\n{values.rows:,} of {seen.rows:,} rows have {guesses.objective.column.name} = "
        f"{values.shown}. failed: the run did not work. ran: it did, and was not measured. "
        "value: it is real."
    )
    return cast("Meaning", _choice("Is that", ["failed", "ran", "value"], values.meaning))


def _role(one: "ColumnGuess") -> "Role":
    values = ", ".join(str(value) for value in one.column.values[:8])
    more = ", ..." if one.column.distinct > 8 else ""
    _say(f"\n{one.column.name}: {values}{more} ({one.why})")
    _say(f"It may be {', '.join(_ANSWERS)}.")
    default = _OF_ROLES.get(one.role, "ignore")
    return _ANSWERS[_choice("Is it", list(_ANSWERS), default)]


def _statuses(guesses: "TableGuess") -> "dict[str, JobStatus]":
    """What words for how a job ended mean, of which nobody knows it."""
    from tunerd.core.observation import END_STATUSES
    from tunerd.lab.tables.draft_mapping import guessed_words

    among = [status.value for status in END_STATUSES]
    statuses: dict[str, JobStatus] = {}
    for word, status in list(guessed_words(guesses).items())[:MOST_ASKED]:
        if not statuses:
            _say(f"\nA job may have ended as {', '.join(among)}.")
        statuses[word] = cast("JobStatus", _choice(f"What does {word!r} mean", among, status))
    return statuses


def _choice(question: str, among: Sequence[str], default: str) -> str:
    """One of several; the first letters do, where they are of one only."""
    while True:
        shown = f" ({', '.join(among)})" if len(among) <= 4 else ""
        answer = str(click.prompt(f"{question}{shown}", default=default, err=True)).strip()
        fitting = [option for option in among if option.lower().startswith(answer.lower())]
        if answer in among:
            return answer
        if len(fitting) == 1:
            return fitting[0]
        _say(f"There is no {answer!r}; there are {', '.join(among)}.")


def _say(text: str) -> None:
    click.echo(text, err=True)
