"""The ``[mapping]`` of a drafted study: what ``tunerd import`` has to know about the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tunerd.core.study.mapping import JobStatus
from tunerd.tables.column_names import identifier
from tunerd.tables.guess import TableGuess
from tunerd.tables.metadata_columns import bad_when_true, is_of_events, meaning
from tunerd.tables.open_guesses import A_GUESS
from tunerd.tables.roles import ColumnGuess
from tunerd.tables.toml_text import comment, entry, shown_key, text_of, value_of
from tunerd.tables.values import gist, status_in

__all__ = ["NEVER", "StudyNames", "guessed_words", "mapping_lines"]

SEVERAL = 3
"""Words that differ in details alone, from which on their gist stands for them."""
NEVER = -10.0
"""Rank of what is not worth keeping as a metric: the spread of others."""


@dataclass
class StudyNames:
    """Names in the study, each once: expressions read context and parameters by them."""

    taken: set[str] = field(default_factory=set)
    by_column: dict[str, str] = field(default_factory=dict)

    def of(self, one: ColumnGuess) -> str:
        column = one.column.name
        if column not in self.by_column:
            self.by_column[column] = identifier(one.name.leaf, self.taken)
            self.taken.add(self.by_column[column])
        return self.by_column[column]


def mapping_lines(guesses: TableGuess, names: StudyNames) -> list[str]:
    """What ``tunerd import`` has to know about this table."""
    lines = _export(guesses)
    for role, key in (("job_id", "job_id"), ("user", "user")):
        lines += [f"{key} = {text_of(one.column.name)}" for one in guesses.having(role)]  # type: ignore[arg-type]
    for one in guesses.having("finished_at"):
        if one.column.form == "auto":
            where: dict[str, object] | str = one.column.name
        else:
            where = {"column": one.column.name, "format": one.column.form}
        lines += entry("finished_at", where, one.why)
    if is_of_events(guesses.profile):
        there = {one.column.name for one in guesses.having("ignored")}
        fields = ("event_id", "attempt", "measured_s", "gpus")
        lines += [f"{field} = {text_of(field)}" for field in fields if field in there]
    gpus = [one for one in guesses.having("context", "parameter") if one.name.words == ("gpu",)]
    for one in gpus[:1]:
        if one.column.kind == "int" and not is_of_events(guesses.profile):
            lines += entry("gpus", one.column.name, "what a job held")
    metrics = [one for one in guesses.having("metric") if one.name.rank > NEVER]
    if metrics:
        shown = [names.of(one) for one in metrics]
        lines += entry("metrics", shown, "measured too; kept, for guards to come and for reports")
    labels = [one.column.name for one in guesses.having("label") if one.column.kind != "list"]
    if labels:
        lines += entry("labels", labels, "kept, and not learned from")
    lines += _renamed(guesses, names, metrics)
    lines += _status(guesses)
    if not lines:
        return []
    about = "How `tunerd import` reads tables like this one; a change here makes no new version."
    return [*comment(about), "[mapping]", *lines]


def _export(guesses: TableGuess) -> list[str]:
    """What the table was recognised as, so that it is read alike whatever comes."""
    export = guesses.profile.export
    if export is None:
        plain = guesses.profile.reading.export == "none"
        return entry("export", "none", "you said so") if plain else []
    lines = entry("export", export.key, f'{export.title}; "none" reads the table as it stands')
    if guesses.profile.reading.reports != "last":
        lines.append(f"reports = {text_of(guesses.profile.reading.reports)}")
    told = export.told(guesses.profile.reading)[1:]
    return lines + [line for note in told for line in comment(f"{note[:1].upper()}{note[1:]}.")]


def _renamed(guesses: TableGuess, names: StudyNames, metrics: Sequence[ColumnGuess]) -> list[str]:
    """Columns that are called something else, or have words where numbers belong."""
    lines: list[str] = []
    for one in [*guesses.having("context", "parameter", "objective"), *metrics]:
        column, name = one.column, names.of(one)
        told: dict[str, object] = {"column": column.name}
        notation = column.written.notation
        if notation.format != "number":
            told["format"] = notation.format
        if notation.unit:
            told["unit"] = notation.unit
        if column.words:
            told["values"] = dict.fromkeys(column.words, "")
        if column.written.doubt:
            lines += comment(f"A GUESS, look at it: {column.written.doubt}.")
        if len(told) > 1:
            lines.append(f"columns.{shown_key(name)} = {value_of(told)}")
        elif name != column.name:
            lines.append(f"columns.{shown_key(name)} = {value_of(column.name)}")
    return lines


def _status(guesses: TableGuess) -> list[str]:
    """What the words of the status column mean."""
    those = guesses.having("status")
    if not those:
        return _status_in_objective(guesses)
    one = those[0]
    words: Mapping[str, object] = one.column.spelled or {
        str(value): value for value in one.column.counts
    }
    alike: dict[str, dict[str, tuple[JobStatus, bool]]] = {}
    for word, value in words.items():
        if value is not None:  # a way to write that it is missing
            alike.setdefault(gist(word), {})[word] = _meaning(one, word, value, guesses)
    values: dict[str, str] = {}
    guessed: list[str] = []
    for short, several in alike.items():
        one_line = len(several) >= SEVERAL and len(set(several.values())) == 1
        lines_of = {short: next(iter(several.values()))} if one_line else several
        values |= {w: found for w, (found, _) in lines_of.items() if status_in(w) != found}
        guessed += [word for word, (_, sure) in lines_of.items() if not sure]
    if not values and len(words) >= one.column.distinct:
        known = "word is" if len(alike) == 1 else f"{len(alike)} words are"
        how = f"how jobs ended; its {known} known"
        return entry("status", one.column.name, how)
    lines = comment(f"How jobs ended; {one.column.name} has these words for it.")
    if guessed:
        shown = ", ".join(guessed[:12])
        lines += comment(f"{A_GUESS}, from whether there is a result: {shown}.")
    strange = [short for short in alike if status_in(short) is None]
    other = {} if len(strange) < 12 else {"other": "failed"}
    table = {"column": one.column.name, "values": values} | other
    return [*lines, f"status = {value_of(table)}"]


def guessed_words(guesses: TableGuess) -> dict[str, JobStatus]:
    """Words of the status column whose meaning nobody knows, with what they are taken for."""
    found: dict[str, JobStatus] = {}
    for one in guesses.having("status")[:1]:
        for word, value in one.column.spelled.items():
            if value is not None:
                status, sure = _meaning(one, word, value, guesses)
                found |= {} if sure else {word: status}
    return found


def _meaning(
    one: ColumnGuess, word: str, value: object, guesses: TableGuess
) -> tuple[JobStatus, bool]:
    if said := guesses.statuses.get(word) or guesses.statuses.get(word.lower()):
        return said, True
    if isinstance(value, bool) or one.column.kind == "int":
        bad = bad_when_true(one.name)
        coded = one.column.kind == "int" and not set(one.column.counts) <= {0, 1}
        if coded or (bad and one.column.kind == "int"):
            return ("succeeded" if value == 0 else bad or "failed"), True
        unfit: JobStatus = "failed"
        if {"feasible", "valid"} & set(one.name.words):
            unfit = "out_of_memory"
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


def _status_in_objective(guesses: TableGuess) -> list[str]:
    """Words such as OOM where a speed belongs say how the job ended."""
    column = guesses.objective.column
    if not column.words:
        return []
    values = {word: meaning(word) or "failed" for word in column.words}
    table = {"column": column.name, "values": values, "other": "succeeded"}
    about = f"{column.name} has words where numbers belong, which say how the job ended."
    return [*comment(about), f"status = {value_of(table)}"]
