"""A study file, drafted from what the columns of a table were taken for.

Every line says what it was guessed from. The text is always one that ``tunerd check`` accepts.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.events.quantities import SPREAD
from tunerd.lab.tables.column_names import identifier, unit_of
from tunerd.lab.tables.devices import lookups
from tunerd.lab.tables.draft_mapping import NEVER, StudyNames, mapping_lines
from tunerd.lab.tables.draft_values import context_table, parameter_table
from tunerd.lab.tables.guess import TableGuess
from tunerd.lab.tables.metadata_columns import A_FIELD
from tunerd.lab.tables.open_guesses import A_GUESS
from tunerd.lab.tables.relations import grouped, nearly_decides
from tunerd.lab.tables.roles import ColumnGuess
from tunerd.lab.tables.rows import spelt_out
from tunerd.lab.tables.sentinel_values import ObjectiveValues
from tunerd.lab.tables.toml_text import comment, entry, shown_key, text_of
from tunerd.lab.tables.tunable import could_be_tried, repeat_of

__all__ = ["StudyDraft", "draft", "study_name"]

MAX_BYTES = 1 << 20
"""Of a study file."""

NEARLY = 1.25
"""Numbers within this factor are nearly the same."""


@dataclass(frozen=True)
class StudyDraft:
    """A study file and how its names hang together with the table's."""

    text: str
    names: Mapping[str, str]
    """Name in the study by column, for columns that are in it."""


def study_name(path: Path) -> str:
    """A study's name from that of a file."""
    stem = path.name.split(".")[0].lower()
    return re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:63].strip("-") or "study"


def draft(guesses: TableGuess, name: str, source: Path, unit: str | None = None) -> StudyDraft:
    """Write the study. ``unit`` is the objective's where a person has said it."""
    names = StudyNames()
    for guess in guesses.having("context", "parameter", "derived", "objective", "metric"):
        names.of(guess)
    with np.errstate(all="ignore"):
        parts = [
            _head(guesses, name, source),
            _objective(guesses, names, unit),
            _guards(guesses, names),
            _context(guesses, names),
            _parameters(guesses, names),
            _derived(guesses, names),
            _constraints(guesses, names),
            mapping_lines(guesses, names),
            _left_out(guesses, names),
        ]
    text = "\n".join("\n".join(part) + "\n" for part in parts if part)
    if len(text.encode()) > MAX_BYTES:
        message = "would be too large; leave columns out with --ignore COLUMN"
        raise MisconfiguredError([ValidationProblem("the draft", message)])
    parse_study(text, "the draft")  # a mistake here is one of ours, and must not reach the file
    return StudyDraft(text, names.by_column)


def _how_sure(one: ColumnGuess) -> str:
    word = "sure" if one.sure >= 0.7 else "likely" if one.sure >= 0.5 else A_GUESS
    return f"{word}: {one.why}"


def _head(guesses: TableGuess, name: str, source: Path) -> list[str]:
    profile = guesses.profile
    bad = f", {profile.unreadable:,} lines unreadable" if profile.unreadable else ""
    doubtful = [guess.column.name for guess in guesses.columns if guess.unsure]
    lines = comment(
        f"Drafted by `tunerd init` from {spelt_out(source.name)}: {profile.rows:,} rows, "
        f"{len(profile.columns)} columns{bad}. What stands here was guessed; each line says from"
        " what. Read it, put right what is wrong, then run `tunerd check` on it."
    )
    if doubtful:
        lines += comment(f"Least sure, look at these first: {', '.join(doubtful[:12])}.")
    for doubt in guesses.doubts:
        lines += comment(f"{A_GUESS}: {doubt}.")
    return [
        *lines,
        "schema = 1",
        f"name = {text_of(name)}",
        'mode = "observe"  # says what it would recommend, and publishes nothing',
    ]


def _objective(guesses: TableGuess, names: StudyNames, unit: str | None) -> list[str]:
    objective = guesses.objective
    unit_text, unit_why = unit_of(objective.column.name), "from its name"
    if not unit_text and objective.column.name in guesses.profile.units:
        unit_text, unit_why = guesses.profile.units[objective.column.name], "the table says so"
    if not unit_text and (written := objective.column.written.notation.unit) not in ("", SPREAD):
        unit_text, unit_why = written, "stands behind its numbers"
    if unit is not None:
        unit_text, unit_why = unit, "you said so"
    values = guesses.values
    doubt = "" if guesses.goal_sure >= 0.5 else f"{A_GUESS}: "
    return [
        "[objective]",
        *entry("metric", names.of(objective), _how_sure(objective)),
        *entry("goal", guesses.goal, f"{doubt}{guesses.goal_why}"),
        *entry("unit", unit_text[:100], unit_why if unit_text else "unknown; for people only"),
        *entry("scale", values.scale, values.why),
        *_impossible(values, guesses.profile.rows),
    ]


def _impossible(values: ObjectiveValues, rows: int) -> list[str]:
    """What values say that the objective cannot have, with the lines that say otherwise."""
    lines = []
    doubt = "" if values.sure else f"{A_GUESS}: "
    if values.low is not None:
        lines += entry("min", int(values.low), "none of them is negative, and none can be")
    if values.failed_values:
        shared = f"{values.rows:,} of {rows:,} rows have them, far above all others"
        numbers = [int(v) if v.is_integer() and v < 1e15 else v for v in values.failed_values]
        lines += entry("failed_values", numbers, f"{doubt}{shared}")
    if not values.rows:
        return lines
    what = f"{values.shown} in {values.rows:,} of {rows:,} rows"
    says = {
        "failed": "is taken for a run that failed",
        "ran": "is improbable and taken for a run that was not measured",
    }[values.meaning if values.meaning != "value" else "failed"]
    lines += entry("impossible", values.meaning, f"{doubt}{what} {says}")
    other, effect = (
        ("ran", "such a run only was not measured")
        if values.meaning == "failed"
        else ("failed", "such a run failed")
    )
    lines += entry("impossible", other, f"instead, where {effect}", live=False)
    if values.impossible:
        lines += entry("scale", "linear", "instead, where such values are real", live=False)
        if values.impossible[0] >= 0:
            lines += entry("min", 0, "… and none can be negative", live=False)
    return lines


def _guards(guesses: TableGuess, names: StudyNames) -> list[str]:
    """Bounds that a person may want, commented out: nobody can guess where they lie."""
    lines = []
    for guess in guesses.having("metric"):
        numbers = [float(v) for v in guess.column.counts if isinstance(v, int | float)]
        if guess.name.guard and numbers:
            low = guess.name.goal == "maximize"
            bound = {"min" if low else "max": min(numbers) if low else max(numbers)}
            unit = {"unit": unit_of(guess.column.name)} if unit_of(guess.column.name) else {}
            ends = f"{min(numbers):.6g} to {max(numbers):.6g} in these rows"
            lines += entry(shown_key(names.of(guess)), bound | unit, ends, live=False)
    if not lines:
        return []
    return [
        *comment(
            "Measured too, and people set bounds to such things. A run that breaks a bound counts"
            " as not having run. Take the # away where there is one."
        ),
        "# [guards]",
        *lines,
    ]


def _context(guesses: TableGuess, names: StudyNames) -> list[str]:
    those = guesses.having("context")
    decided = {guess.column.name: thing for guess in those if (thing := _decided_by(guess, those))}
    lines = comment("What a job brings and nobody tunes; each combination is tuned on its own.")
    if those:
        keyed = [guess.column for guess in those if guess.column.name not in decided]
        groups = grouped(keyed, guesses.profile.sampled)
        count = len(set(groups.tolist()))
        each = guesses.profile.sampled / max(1, count)
        lines += comment(f"{count:,} combinations in these rows, {each:,.0f} rows each on average.")
        if each < 5:
            lines += comment(
                'That is few. Where a feature hardly matters give it key = "ignore", and numbers'
                " that are nearly the same a bucket, so that they share what is known."
            )
    lines.append("[context]")
    for guess in those:
        thing = decided.get(guess.column.name)
        note = f"; hardly differs within a {thing}, which tells jobs apart already" if thing else ""
        table = context_table(guess.column, thing is not None)
        lines += entry(names.of(guess), table, _how_sure(guess) + note + _gaps(guess))
    for guess in those:
        lines += lookups(names.of(guess), guess.column)
    return lines


def _decided_by(one: ColumnGuess, those: Sequence[ColumnGuess]) -> str | None:
    """The category that leaves a number little room, as a model's name does its size."""
    if not one.column.numeric or one.column.distinct < 12:
        return None
    for thing in those:
        named = thing.column.kind == "category" and 2 * thing.column.distinct < one.column.distinct
        if named and nearly_decides(thing.column, one.column, NEARLY):
            return thing.column.name
    return None


def _gaps(one: ColumnGuess) -> str:
    column = one.column
    if not column.missing:
        return ""
    share = 100 * column.missing / max(1, column.rows)
    rows = f"{share:.0f} %" if share >= 1 else "a few"
    role = "such rows teach less about it" if one.role == "parameter" else "missing is a value too"
    return f"; missing in {rows} of the rows: {role}"


def _parameters(guesses: TableGuess, names: StudyNames) -> list[str]:
    lines = [
        *comment(
            "What may be tuned, and among which values: those that occur in these rows. Add values"
            " that nobody tried yet, and take out what must not be launched."
        ),
        "[parameters]",
    ]
    for guess in guesses.having("parameter"):
        table, note = parameter_table(guess.column, repeat_of(guess.column))
        why = _how_sure(guess) + (f"; {note}" if note else "") + _gaps(guess)
        lines += entry(names.of(guess), table, why)
    untried = [guess for guess in guesses.having("ignored") if could_be_tried(guess)]
    if untried:
        lines += comment(
            "The same value in every row: nothing says what another would do. To try others, take"
            " the # away and add them."
        )
    for guess in untried:
        if guess.column.kind in ("int", "float", "bool", "category"):
            table, _ = parameter_table(guess.column, None)
            lines += entry(names.of(guess), table, guess.why, live=False)
    return lines


def _derived(guesses: TableGuess, names: StudyNames) -> list[str]:
    lines = []
    for guess, expression in _rules(guesses, names):
        lines += entry(names.of(guess), expression, guess.why)
    return [*comment("What follows from others."), "[derived]", *lines] if lines else []


def _rules(guesses: TableGuess, names: StudyNames) -> list[tuple[ColumnGuess, str]]:
    """The derived columns that can be computed from what is in the study."""
    known = {guess.column.name: names.of(guess) for guess in guesses.having("context", "parameter")}
    rules: list[tuple[ColumnGuess, str]] = []
    open_ = guesses.having("derived")
    while open_:  # one may follow from another
        done = [
            (guess, expression)
            for guess in open_
            if guess.rule is not None and (expression := guess.rule.expression(known)) is not None
        ]
        if not done:
            break
        known |= {guess.column.name: names.of(guess) for guess, _ in done}
        rules += done
        open_ = [guess for guess in open_ if guess.column.name not in known]
    return rules


def _constraints(guesses: TableGuess, names: StudyNames) -> list[str]:
    inputs = {guess.column.name for guess in guesses.having("context", "parameter")}
    tuned = {guess.column.name for guess in guesses.having("parameter")}
    rules: list[tuple[str, str]] = []

    def times(columns: Sequence[str]) -> str:
        return " * ".join(names.by_column[column] for column in columns)

    for product in guesses.products:
        held = {product.total, *product.factors}
        if held <= inputs and not held.isdisjoint(tuned):
            total = names.by_column[product.total]
            rules.append((f"makes_{total}", f"{times(product.factors)} == {total}"))
    for bound in guesses.bounds:
        last = names.by_column[bound.large[-1]]
        if bound.divides:
            rules.append((f"whole_{last}", f"{last} % ({times(bound.small)}) == 0"))
        else:
            rules.append((f"within_{last}", f"{times(bound.small)} <= {times(bound.large)}"))
    for follower, _ in _rules(guesses, names):
        if follower.rule is not None and follower.rule.numbers:
            name, values = names.of(follower), follower.column.values
            rules.append((f"{name}_as_it_was", f"{name} >= {values[0]} and {name} <= {values[-1]}"))
    if not rules:
        return []
    taken: set[str] = set()
    lines = []
    for key, rule in rules:
        taken.add(unique := identifier(key, taken))
        lines.append(f"{unique} = {text_of(rule)}")
    what = "These hold" if len(lines) > 1 else "This holds"
    return [
        *comment(f"{what} in every row. Take out what is chance, add what else must hold."),
        "[constraints]",
        *lines,
    ]


def _left_out(guesses: TableGuess, names: StudyNames) -> list[str]:
    """What became of the columns that are nowhere above."""
    lines: list[str] = []
    computed = {guess.column.name for guess, _ in _rules(guesses, names)}
    for guess in guesses.having("ignored", "time", "metric", "label", "derived"):
        kept = guess.role == "metric" and guess.name.rank > NEVER
        if kept or guess.column.name in computed or guess.why == A_FIELD:
            continue
        verb = "kept as a label" if guess.role == "label" else "not used"
        lines += comment(f"{guess.column.name}: {verb}; {guess.why}.")
    return [*comment("Columns that are not part of the study:"), *lines] if lines else []
