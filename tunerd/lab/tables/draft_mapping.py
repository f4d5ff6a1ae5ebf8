"""The ``[mapping]`` of a drafted study: what ``tunerd import`` has to know about the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tunerd.core.study.mapping import JobStatus
from tunerd.lab.tables.column_names import identifier
from tunerd.lab.tables.guess import TableGuess
from tunerd.lab.tables.metadata_columns import EXIT_CODES, bad_when_true, is_of_events, meaning
from tunerd.lab.tables.open_guesses import A_GUESS
from tunerd.lab.tables.roles import ColumnGuess
from tunerd.lab.tables.toml_text import comment, entry, shown_key, text_of, value_of
from tunerd.lab.tables.values import gist, status_in

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
    if header := guesses.profile.reading.header:
        lines += entry("header", list(header), "you said so: the table has no names of columns")
    for role, key in (("job_id", "job_id"), ("user", "user")):
        lines += [f"{key} = {text_of(guess.column.name)}" for guess in guesses.having(role)]  # type: ignore[arg-type]
    for guess in guesses.having("finished_at"):
        if guess.column.form == "auto":
            where: dict[str, object] | str = guess.column.name
        else:
            where = {"column": guess.column.name, "format": guess.column.form}
        lines += entry("finished_at", where, guess.why)
    if is_of_events(guesses.profile):
        there = {guess.column.name for guess in guesses.having("ignored")}
        fields = ("event_id", "attempt", "measured_s", "gpus")
        lines += [f"{field} = {text_of(field)}" for field in fields if field in there]
    gpus = [
        guess for guess in guesses.having("context", "parameter") if guess.name.words == ("gpu",)
    ]
    for guess in gpus[:1]:
        if guess.column.kind == "int" and not is_of_events(guesses.profile):
            lines += entry("gpus", guess.column.name, "what a job held")
    metrics = [guess for guess in guesses.having("metric") if guess.name.rank > NEVER]
    if metrics:
        shown = [names.of(guess) for guess in metrics]
        lines += entry("metrics", shown, "measured too; kept, for guards to come and for reports")
    labels = [guess.column.name for guess in guesses.having("label") if guess.column.kind != "list"]
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
    head_lines = export.told(guesses.profile.reading)[1:]
    return lines + [
        line for note in head_lines for line in comment(f"{note[:1].upper()}{note[1:]}.")
    ]


def _renamed(guesses: TableGuess, names: StudyNames, metrics: Sequence[ColumnGuess]) -> list[str]:
    """Columns that are called something else, or have words where numbers belong."""
    lines: list[str] = []
    for guess in [*guesses.having("context", "parameter", "objective"), *metrics]:
        column, name = guess.column, names.of(guess)
        table: dict[str, object] = {"column": column.name}
        notation = column.written.notation
        if notation.format != "number":
            table["format"] = notation.format
        if notation.unit:
            table["unit"] = notation.unit
        if column.words:
            table["values"] = dict.fromkeys(column.words, "")
        if column.written.doubt:
            lines += comment(f"A GUESS, look at it: {column.written.doubt}.")
        if len(table) > 1:
            lines.append(f"columns.{shown_key(name)} = {value_of(table)}")
        elif name != column.name:
            lines.append(f"columns.{shown_key(name)} = {value_of(column.name)}")
    return lines


def _status(guesses: TableGuess) -> list[str]:
    """What the words of the status column mean."""
    those = guesses.having("status")
    if not those:
        return _status_in_objective(guesses)
    guess = those[0]
    words: Mapping[str, object] = guess.column.spelled or {
        str(value): value for value in guess.column.counts
    }
    alike: dict[str, dict[str, tuple[JobStatus, bool]]] = {}
    for word, value in words.items():
        if value is not None:  # a way to write that it is missing
            alike.setdefault(gist(word), {})[word] = _meaning(guess, word, value, guesses)
    values: dict[str, str] = {}
    guessed: list[str] = []
    for short, several in alike.items():
        one_line = len(several) >= SEVERAL and len(set(several.values())) == 1
        lines_of = {short: next(iter(several.values()))} if one_line else several
        values |= {w: status for w, (status, _) in lines_of.items() if status_in(w) != status}
        guessed += [word for word, (_, sure) in lines_of.items() if not sure]
    if not values and len(words) >= guess.column.distinct:
        known = "word is" if len(alike) == 1 else f"{len(alike)} words are"
        how = f"how jobs ended; its {known} known"
        return entry("status", guess.column.name, how)
    lines = comment(f"How jobs ended; {guess.column.name} has these words for it.")
    if guessed:
        shown = ", ".join(guessed[:12])
        lines += comment(f"{A_GUESS}, from whether there is a result: {shown}.")
    strange = [short for short in alike if status_in(short) is None]
    other = {} if len(strange) < 12 else {"other": "failed"}
    table = {"column": guess.column.name, "values": values} | other
    return [*lines, f"status = {value_of(table)}"]


def guessed_words(guesses: TableGuess) -> dict[str, JobStatus]:
    """Words of the status column whose meaning nobody knows, with what they are taken for."""
    statuses: dict[str, JobStatus] = {}
    for guess in guesses.having("status")[:1]:
        for word, value in guess.column.spelled.items():
            if value is not None:
                status, sure = _meaning(guess, word, value, guesses)
                statuses |= {} if sure else {word: status}
    return statuses


def _meaning(
    one: ColumnGuess, word: str, value: object, guesses: TableGuess
) -> tuple[JobStatus, bool]:
    if known := guesses.statuses.get(word) or guesses.statuses.get(word.lower()):
        return known, True
    if isinstance(value, bool) or one.column.kind == "int":
        bad = bad_when_true(one.name)
        exits = bool(EXIT_CODES & set(one.name.words))
        coded = one.column.kind == "int" and (exits or not set(one.column.counts) <= {0, 1})
        if coded or (bad and one.column.kind == "int"):
            return ("succeeded" if value == 0 else bad or "failed"), True
        unfit: JobStatus = "failed"
        if {"feasible", "valid"} & set(one.name.words):
            unfit = "out_of_memory"
        good = bool(value) != bool(bad)
        return ("succeeded" if good else bad or unfit), True
    status = meaning(word)
    if status is not None:
        return status, True
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
    # What is spoilt says nothing of the job.
    values = {w: meaning(w) or ("failed" if w.isalpha() else "cancelled") for w in column.words}
    table = {"column": column.name, "values": values, "other": "succeeded"}
    about = f"{column.name} has words where numbers belong, which say how the job ended."
    return [*comment(about), f"status = {value_of(table)}"]
