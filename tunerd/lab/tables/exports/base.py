"""What an export of another tool is: how it is recognised, and what its columns are.

An export is one file of this folder and one line of the registry. It may do three things. It takes
a text apart that is no table (``records`` of a document, ``log`` of lines). It recognises a table
by its columns and says what they are (``recognise``). It joins or drops rows that are no jobs
(``reshape``).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tunerd.core.observation import Value
from tunerd.core.study.mapping import JobStatus
from tunerd.events.foreign import in_words
from tunerd.lab.tables.rows import NoJob, SkippedRows, TableRow, UnreadableLine

__all__ = [
    "A_SEED",
    "INPUT",
    "ColumnHint",
    "DetectedExport",
    "ExportFormat",
    "Goal",
    "ReadOptions",
    "Rows",
    "Statuses",
    "TableHead",
    "argument_hint",
    "each_row",
    "in_words",
    "is_numeric",
    "is_seed",
    "names",
]

Rows = Iterator[TableRow | UnreadableLine]
Goal = Literal["maximize", "minimize"]
Statuses = Mapping[str, JobStatus]
INPUT = "input"
"""Not a role yet: what went into a run. Whether it is tuned or context, its name and values say."""


@dataclass(frozen=True, slots=True)
class TableHead:
    """The beginning of a table."""

    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    """The first rows, at most :data:`tunerd.lab.tables.files.HEAD`."""

    def reshaped(self, reshape: "Reshape") -> "TableHead":
        """The beginning of the table that a reshape makes of this one."""
        made = reshape(iter(self.rows), SkippedRows(), ReadOptions())
        rows = tuple(row for row in made if isinstance(row, TableRow))
        return TableHead(tuple(dict.fromkeys(name for row in rows for name in row.values)), rows)

    def values(self, column: str) -> list[Any]:
        """What stands in a column of these rows, without what is missing."""
        texts = (row.values.get(column) for row in self.rows)
        return [value for value in texts if value is not None]

    def varies(self, column: str) -> bool:
        """Whether a column has several values in these rows."""
        return len({str(value) for value in self.values(column)}) > 1

    def has(self, *columns: str) -> bool:
        """Whether all of these columns are there."""
        return set(columns) <= set(self.columns)

    def starting(self, *prefixes: str) -> list[str]:
        """The columns whose names start with one of these."""
        return [column for column in self.columns if column.startswith(prefixes)]

    def among(self, columns: Iterable[str]) -> list[str]:
        """Those of ``columns`` that are there, in the order of ``columns``."""
        return [column for column in columns if column in self.columns]


@dataclass(frozen=True, slots=True)
class ColumnHint:
    """What a column of a known export is."""

    role: str
    """A :data:`tunerd.lab.tables.roles.Role`, or :data:`INPUT`."""
    why: str
    name: str | None = None
    """Its name in the study, where a prefix goes."""
    sure: float = 0.95
    goal: Goal | None = None
    """Of an objective, where the tool says which way is better."""
    goal_why: str = "the tool says so"
    goal_sure: float = 0.9
    aside: bool = False
    """Of what the tool itself measured: the objective only where a run measured nothing else."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a table is to be read, as far as its mapping says."""

    export: str = "auto"
    """``auto`` recognises known exports, ``none`` none; else the key of one."""
    reports: str = "last"
    """Which report of a run is its job: ``last`` or ``best``; ``all``: each is a job."""
    metric: str | None = None
    """Column that ``best`` goes by."""
    goal: Goal = "maximize"
    header: tuple[str, ...] = ()
    """Names of the columns of a CSV that has none."""
    part: bool = False
    """Whether the file is one of a folder: then what is of one run alone is a table too."""


Reshape = Callable[[Rows, SkippedRows, ReadOptions], Rows]


@dataclass(frozen=True, slots=True)
class DetectedExport:
    """A table that was recognised."""

    key: str
    title: str
    """What it is, for people: ``Optuna's trials_dataframe()``."""
    marks: tuple[str, ...]
    """What it was recognised by."""
    hints: Mapping[str, ColumnHint] = field(default_factory=dict)
    """By column; a column without one is guessed as in any table."""
    statuses: Statuses = field(default_factory=dict)
    """What its words for how a job ended mean, in lower case."""
    reshape: Reshape | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    """Of columns whose names do not say them."""
    columns: tuple[str, ...] = ()
    """Of the rows that ``reshape`` yields, where they are others."""
    notes: tuple[str, ...] = ()
    """What a person should know about how it is read."""

    reported: str = ""
    """What the tool calls a run, where rows are reports of runs and ``reshape`` joins them."""

    def told(self, reading: ReadOptions) -> list[str]:
        """Sentences for people."""
        lines = [f"recognised as {self.title}, by {', '.join(self.marks)}", *self.notes]
        return [*lines, _reports_note(self.reported, reading)] if self.reported else lines


def _reports_note(thing: str, reading: ReadOptions) -> str:
    """What a person should know about runs with several reports."""
    if reading.reports == "all":
        return f"each report of a {thing} is a job, as the mapping says"
    which = "best" if reading.reports == "best" else "last"
    other = "last" if which == "best" else "best"
    return (
        f'a {thing} with several reports is one job, by its {which} report; reports = "{other}"'
        f" in [mapping] takes the {other} one"
    )


def each_row(of: Callable[[Mapping[str, Value]], Mapping[str, Any]]) -> Reshape:
    """A reshape that makes one row of each."""

    def reshape(rows: Rows, not_jobs: SkippedRows, reading: ReadOptions) -> Rows:  # noqa: ARG001
        for row in rows:
            yield TableRow(row.number, of(row.values)) if isinstance(row, TableRow) else row

    return reshape


def _of_any_tool(head: TableHead) -> DetectedExport | None:  # noqa: ARG001
    return None


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """One kind of export."""

    key: str
    recognise: Callable[[TableHead], DetectedExport | None] = _of_any_tool
    """What a table is; where only a text is taken apart, its columns may be of any tool."""
    records: Callable[[Any], Iterable[Mapping[str, Any]] | None] | None = None
    """The records in a JSON document, or ``None`` when it is none of these."""
    asked: Callable[[TableHead], DetectedExport | None] | None = None
    """Like ``recognise``, where a mapping says that it is one: then fewer marks are enough."""
    log: Callable[[Iterable[str]], Iterator[Mapping[str, Any] | NoJob]] | None = None
    """The records in the lines of a log."""
    is_log: Callable[[str], bool] | None = None
    """Whether a text is such a log, by its beginning."""


def is_numeric(values: Iterable[Any]) -> bool:
    """Whether all values are numbers, and there is one."""
    any_number = False
    for value in values:
        if isinstance(value, bool):
            return False
        try:
            float(value)
        except (TypeError, ValueError):
            return False
        any_number = True
    return any_number


def names(text: str) -> tuple[str, ...]:
    """The names in a text, with blanks between them."""
    return tuple(text.split())


_SIZES = re.compile(r"arg\d+|n|size|length|count|elements", re.IGNORECASE)


def argument_hint(name: str) -> ColumnHint:
    """The hint of an argument of a benchmark."""
    if _SIZES.fullmatch(name):
        return ColumnHint("context", "most of what is called so are sizes of the work", name, 0.4)
    return ColumnHint(INPUT, "an argument of the benchmark", name)


A_SEED = "a seed tells repeats apart"
_SEEDS = frozenset({"seed", "random_seed", "random_state", "rng_seed", "manual_seed"})


def is_seed(name: str) -> bool:
    """Whether a parameter only tells repeats apart, by its name without what it stands in."""
    return name.lower().rpartition(".")[2].rpartition("/")[2].replace("-", "_") in _SEEDS
