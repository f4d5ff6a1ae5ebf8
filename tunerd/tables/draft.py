"""A study file, drafted from what the columns of a table were taken for.

Every line says what it was guessed from. The text is always one that ``tunerd check`` accepts.
"""

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tunerd.core.study import parse_study
from tunerd.tables.choices import context_table, objective_scale, parameter_table
from tunerd.tables.devices import lookups
from tunerd.tables.guess import Guess, Guesses
from tunerd.tables.oddities import bad_when_true, meaning
from tunerd.tables.relations import grouped, nearly_decides
from tunerd.tables.tunable import repeat_of
from tunerd.tables.words import identifier, unit_of

__all__ = ["Draft", "draft", "shown_key", "study_name"]

WIDTH = 100
NEARLY = 1.25
"""Numbers within this factor are nearly the same."""


@dataclass(frozen=True)
class Draft:
    """A study file and how its names hang together with the table's."""

    text: str
    names: Mapping[str, str]
    """Name in the study by column, for columns that are in it."""


@dataclass
class _Names:
    """Names in the study, each once: expressions read context and parameters by them."""

    taken: set[str] = field(default_factory=set)
    by_column: dict[str, str] = field(default_factory=dict)

    def of(self, one: Guess) -> str:
        column = one.column.name
        if column not in self.by_column:
            self.by_column[column] = identifier(one.name.leaf, self.taken)
            self.taken.add(self.by_column[column])
        return self.by_column[column]


def study_name(path: Path) -> str:
    """A study's name from that of a file."""
    stem = path.name.split(".")[0].lower()
    return re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:63].strip("-") or "study"


def draft(guesses: Guesses, name: str, source: Path, unit: str | None = None) -> Draft:
    """Write the study. ``unit`` is the objective's where a person has said it."""
    names = _Names()
    for one in guesses.having("context", "parameter", "derived", "objective", "metric"):
        names.of(one)
    parts = [
        _head(guesses, name, source),
        _objective(guesses, names, unit),
        _guards(guesses, names),
        _context(guesses, names),
        _parameters(guesses, names),
        _derived(guesses, names),
        _constraints(guesses, names),
        _mapping(guesses, names),
        _left_out(guesses),
    ]
    text = "\n".join("\n".join(part) + "\n" for part in parts if part)
    parse_study(text, "the draft")  # a mistake here is one of ours, and must not reach the file
    return Draft(text, names.by_column)


def shown_key(name: str) -> str:
    """A key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: str) -> str:
    # TOML takes JSON's escapes, and wants DEL escaped too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{shown_key(str(k))} = {_value(v)}" for k, v in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return repr(value)


def _remark(text: str) -> str:
    """Text that may stand in a comment, on one line."""
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text)


def _comment(text: str) -> list[str]:
    lines = textwrap.wrap(_remark(text), WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return [f"# {line}" for line in lines]


def _entry(key: str, value: object, why: str, *, live: bool = True) -> list[str]:
    """``key = value  # why``, or the comment above where that would be too long."""
    line = f"{'' if live else '# '}{key} = {_value(value)}"
    remark = f"  # {_remark(why)}"
    if len(line) + len(remark) <= WIDTH:
        return [f"{line}{remark}"]
    return [*_comment(why), line]


def _how_sure(one: Guess) -> str:
    word = "sure" if one.sure >= 0.7 else "likely" if one.sure >= 0.5 else "A GUESS, look at it"
    return f"{word}: {one.why}"


def _head(guesses: Guesses, name: str, source: Path) -> list[str]:
    profile = guesses.profile
    bad = f", {profile.unreadable:,} lines unreadable" if profile.unreadable else ""
    doubtful = [one.column.name for one in guesses.columns if one.unsure]
    lines = _comment(
        f"Drafted by `tunerd init` from {source.name}: {profile.rows:,} rows, "
        f"{len(profile.columns)} columns{bad}. What stands here was guessed; each line says from"
        " what. Read it, put right what is wrong, then run `tunerd check` on it."
    )
    if doubtful:
        lines += _comment(f"Least sure, look at these first: {', '.join(doubtful[:12])}.")
    return [
        *lines,
        "schema = 1",
        f"name = {_text(name)}",
        'mode = "observe"  # says what it would recommend, and publishes nothing',
    ]


def _objective(guesses: Guesses, names: _Names, unit: str | None) -> list[str]:
    one = guesses.objective
    found = unit_of(one.column.name) if unit is None else unit
    unit_why = "from its name" if unit is None else "you said so"
    scale, scale_why = objective_scale(one.column)
    doubt = "" if guesses.goal_sure >= 0.5 else "A GUESS, look at it: "
    return [
        "[objective]",
        *_entry("metric", names.of(one), _how_sure(one)),
        *_entry("goal", guesses.goal, f"{doubt}{guesses.goal_why}"),
        *_entry("unit", found[:100], unit_why if found else "unknown; for people only"),
        *_entry("scale", scale, scale_why),
    ]


def _guards(guesses: Guesses, names: _Names) -> list[str]:
    """Bounds that a person may want, commented out: nobody can guess where they lie."""
    lines = []
    for one in guesses.having("metric"):
        numbers = [float(v) for v in one.column.counts if isinstance(v, int | float)]
        if one.name.guard and numbers:
            low = one.name.goal == "maximize"
            bound = {"min" if low else "max": min(numbers) if low else max(numbers)}
            unit = {"unit": unit_of(one.column.name)} if unit_of(one.column.name) else {}
            ends = f"{min(numbers):.6g} to {max(numbers):.6g} in these rows"
            lines += _entry(shown_key(names.of(one)), bound | unit, ends, live=False)
    if not lines:
        return []
    return [
        *_comment(
            "Measured too, and people set bounds to such things. A run that breaks a bound counts"
            " as not having run. Take the # away where there is one."
        ),
        "# [guards]",
        *lines,
    ]


def _context(guesses: Guesses, names: _Names) -> list[str]:
    those = guesses.having("context")
    decided = {one.column.name: thing for one in those if (thing := _decided_by(one, those))}
    lines = _comment("What a job brings and nobody tunes; each combination is tuned on its own.")
    if those:
        keyed = [one.column for one in those if one.column.name not in decided]
        groups = grouped(keyed, guesses.profile.sampled)
        count = len(set(groups.tolist()))
        each = guesses.profile.sampled / max(1, count)
        lines += _comment(
            f"{count:,} combinations in these rows, {each:,.0f} rows each on average."
        )
        if each < 5:
            lines += _comment(
                'That is few. Where a feature hardly matters give it key = "ignore", and numbers'
                " that are nearly the same a bucket, so that they share what is known."
            )
    lines.append("[context]")
    for one in those:
        thing = decided.get(one.column.name)
        note = f"; hardly differs within a {thing}, which tells jobs apart already" if thing else ""
        table = context_table(one.column, thing is not None)
        lines += _entry(names.of(one), table, _how_sure(one) + note + _gaps(one))
    for one in those:
        lines += lookups(names.of(one), one.column)
    return lines


def _decided_by(one: Guess, those: Sequence[Guess]) -> str | None:
    """The category that leaves a number little room, as a model's name does its size."""
    if not one.column.numeric or one.column.distinct < 12:
        return None
    for thing in those:
        named = thing.column.kind == "category" and 2 * thing.column.distinct < one.column.distinct
        if named and nearly_decides(thing.column, one.column, NEARLY):
            return thing.column.name
    return None


def _gaps(one: Guess) -> str:
    column = one.column
    if not column.missing:
        return ""
    share = 100 * column.missing / max(1, column.rows)
    rows = f"{share:.0f} %" if share >= 1 else "a few"
    role = "such rows teach less about it" if one.role == "parameter" else "missing is a value too"
    return f"; missing in {rows} of the rows: {role}"


def _parameters(guesses: Guesses, names: _Names) -> list[str]:
    lines = [
        *_comment(
            "What may be tuned, and among which values: those that occur in these rows. Add values"
            " that nobody tried yet, and take out what must not be launched."
        ),
        "[parameters]",
    ]
    for one in guesses.having("parameter"):
        table, note = parameter_table(one.column, repeat_of(one.column))
        why = _how_sure(one) + (f"; {note}" if note else "") + _gaps(one)
        lines += _entry(names.of(one), table, why)
    return lines


def _derived(guesses: Guesses, names: _Names) -> list[str]:
    those = guesses.having("derived")
    rules = {one.total: one for one in guesses.products}
    lines = []
    inputs = {one.column.name for one in guesses.having("context", "parameter")}
    for one in those:
        rule = rules.get(one.column.name)
        if rule is not None and inputs.issuperset(rule.factors):
            expression = " * ".join(names.by_column[factor] for factor in rule.factors)
            lines += _entry(names.of(one), expression, one.why)
        else:
            lines += _comment(f"{one.column.name} is left out: it {one.why}.")
    return [*_comment("What follows from others."), "[derived]", *lines] if lines else []


def _constraints(guesses: Guesses, names: _Names) -> list[str]:
    inputs = {one.column.name for one in guesses.having("context", "parameter")}
    tuned = {one.column.name for one in guesses.having("parameter")}
    lines = []
    taken: set[str] = set()
    for one in guesses.products:
        held = {one.total, *one.factors}
        if not held <= inputs or held.isdisjoint(tuned):
            continue
        expression = " * ".join(names.by_column[factor] for factor in one.factors)
        key = identifier(f"makes_{names.by_column[one.total]}", taken)
        taken.add(key)
        lines.append(f"{key} = {_text(f'{expression} == {names.by_column[one.total]}')}")
    if not lines:
        return []
    what = "These hold" if len(lines) > 1 else "This holds"
    return [
        *_comment(f"{what} in every row. Take out what is chance, add what else must hold."),
        "[constraints]",
        *lines,
    ]


def _mapping(guesses: Guesses, names: _Names) -> list[str]:
    """What ``tunerd import`` has to know about this table."""
    lines = []
    for role, key in (("job_id", "job_id"), ("user", "user")):
        lines += [f"{key} = {_text(one.column.name)}" for one in guesses.having(role)]  # type: ignore[arg-type]
    for one in guesses.having("finished_at"):
        if one.column.form == "auto":
            entry: dict[str, object] | str = one.column.name
        else:
            entry = {"column": one.column.name, "format": one.column.form}
        lines += _entry("finished_at", entry, one.why)
    gpus = [one for one in guesses.having("context", "parameter") if one.name.words == ("gpu",)]
    for one in gpus[:1]:
        if one.column.kind == "int":
            lines += _entry("gpus", one.column.name, "what a job held")
    metrics = [one for one in guesses.having("metric") if one.name.rank > -10]
    if metrics:
        shown = [names.of(one) for one in metrics]
        lines += _entry("metrics", shown, "measured too; kept, for guards to come and for reports")
    labels = [one.column.name for one in guesses.having("label") if one.column.kind != "list"]
    if labels:
        lines += _entry("labels", labels, "kept, and not learned from")
    lines += _renamed(guesses, names, metrics)
    lines += _status(guesses)
    if not lines:
        return []
    about = "How `tunerd import` reads tables like this one; a change here makes no new version."
    return [*_comment(about), "[mapping]", *lines]


def _renamed(guesses: Guesses, names: _Names, metrics: Sequence[Guess]) -> list[str]:
    in_study = guesses.having("context", "parameter", "objective")
    words = guesses.objective.column.words if not guesses.having("status") else {}
    columns: dict[str, object] = {}
    for one in [*in_study, *metrics]:
        if names.of(one) != one.column.name:
            columns[names.of(one)] = one.column.name
    if words:
        values = {"values": dict.fromkeys(words, "")}
        columns[names.of(guesses.objective)] = {"column": guesses.objective.column.name} | values
    return [f"columns.{shown_key(key)} = {_value(value)}" for key, value in columns.items()]


def _status(guesses: Guesses) -> list[str]:
    """What the words of the status column mean."""
    those = guesses.having("status")
    if not those:
        return _status_in_objective(guesses)
    one = those[0]
    values: dict[str, str] = {}
    guessed: list[str] = []
    for word, value in one.column.spelled.items():
        status, sure = _meaning(one, word, value, guesses)
        values[word] = status
        guessed += [] if sure else [word]
    lines = _comment(f"How jobs ended; {one.column.name} has these words for it.")
    if guessed:
        shown = ", ".join(guessed[:12])
        lines += _comment(f"A GUESS, look at it, from whether there is a result: {shown}.")
    other = {} if len(one.column.spelled) < 12 else {"other": "failed"}
    entry = {"column": one.column.name, "values": values} | other
    return [*lines, f"status = {_value(entry)}"]


def _meaning(one: Guess, word: str, value: object, guesses: Guesses) -> tuple[str, bool]:
    if isinstance(value, bool) or one.column.kind == "int":
        bad = bad_when_true(one.name)
        coded = one.column.kind == "int" and not set(one.column.counts) <= {0, 1}
        if coded or (bad and one.column.kind == "int"):
            return ("succeeded" if value == 0 else bad or "failed"), True
        unfit = "out_of_memory" if {"feasible", "valid"} & set(one.name.words) else "failed"
        good = bool(value) != bool(bad)
        return ("succeeded" if good else bad or unfit), True
    found = meaning(word)
    if found is not None:
        return found, True
    code = one.column.values.index(str(value)) if str(value) in one.column.counts else -1
    rows = one.column.codes == code
    results = guesses.objective.column.codes[rows] >= 0
    there = bool(len(results)) and float(results.mean()) > 0.5
    return ("succeeded" if there else "failed"), False


def _status_in_objective(guesses: Guesses) -> list[str]:
    """Words such as OOM where a speed belongs say how the job ended."""
    column = guesses.objective.column
    if not column.words:
        return []
    values = {word: meaning(word) or "failed" for word in column.words}
    entry = {"column": column.name, "values": values, "other": "succeeded"}
    about = f"{column.name} has words where numbers belong, which say how the job ended."
    return [*_comment(about), f"status = {_value(entry)}"]


def _left_out(guesses: Guesses) -> list[str]:
    """What became of the columns that are nowhere above."""
    lines: list[str] = []
    for one in guesses.having("ignored", "time", "metric", "label"):
        if one.role == "metric" and one.name.rank > -10:
            continue
        verb = "kept as a label" if one.role == "label" else "not used"
        lines += _comment(f"{one.column.name}: {verb}; {one.why}.")
    return [*_comment("Columns that are not part of the study:"), *lines] if lines else []
