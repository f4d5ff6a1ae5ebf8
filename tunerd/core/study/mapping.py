"""``[mapping]``: which columns of a table of old jobs hold what a study wants to know.

Shapes, and what can be checked without a table; :mod:`tunerd.lab.tables.mapping` reads rows by it.
"""

from collections.abc import Collection, Iterator
from typing import Literal

from pydantic import Field

from tunerd.core.expressions import suggestion
from tunerd.core.study.shapes import StudyFileTable, Text, Value

__all__ = [
    "ColumnTable",
    "JobStatus",
    "MappingTable",
    "NumberFormat",
    "StatusTable",
    "TimeTable",
    "mapping_mistakes",
]

JobStatus = Literal[
    "succeeded", "out_of_memory", "failed", "timeout", "cancelled", "preempted", "node_failure"
]
"""The values of :class:`tunerd.core.observation.Status`."""


NumberFormat = Literal["number", "1.234,5", "1,234.5", "duration", "size", "count"]
"""How a column writes its numbers; :mod:`tunerd.events.quantities` reads them."""


class ColumnTable(StudyFileTable):
    """A column that needs more said about it than its name."""

    column: Text | None = Field(default=None, description="Its name in the table, if another.")
    factor: float = Field(
        default=1.0,
        gt=0,
        description="Numbers are multiplied by it: 0.001 makes seconds of milliseconds.",
    )
    format: NumberFormat = Field(
        default="number",
        description='How its numbers are written: "number" as programs do (1234.5), "1.234,5" with'
        ' a decimal comma, "1,234.5" with commas between thousands, "duration" (2-01:24:56, 1h 20m,'
        ' PT5M, 350ms: seconds), "size" (3532K, 16G, 4 GiB, 1.5 GB: bytes), "count" (12.5k, 880.0K,'
        " 3M: by 1,000).",
    )
    unit: str = Field(
        default="",
        max_length=100,
        description='What stands behind its numbers and is taken off: "ms" where a cell says'
        ' "12.5 ms". "±" takes off what they spread by: "14.9 ± 0.4".',
    )
    values: dict[str, Value] = Field(
        default_factory=dict,
        max_length=10_000,
        description='What values of the table mean here: { "A100-SXM" = "A100" }. Others stay as'
        " they are.",
    )


class TimeTable(StudyFileTable):
    """When jobs finished, where the table does not write it as RFC 3339."""

    column: Text | None = Field(default=None, description="Its name in the table, if another.")
    timezone: Text = Field(
        default="UTC",
        description='Of times without a zone: a name such as "Europe/Berlin", or "+02:00".',
    )
    format: Text = Field(
        default="auto",
        description='"auto" reads RFC 3339, dates, and seconds, milliseconds, microseconds and'
        ' nanoseconds since 1970, told by their size. Else "seconds" or "milliseconds", or a'
        ' pattern such as "%d.%m.%Y %H:%M".',
    )
    default: Text | None = Field(
        default=None,
        description="For rows without a time, in the same format. A table without times needs"
        " none: its jobs are taken in the order of its rows.",
    )


class StatusTable(StudyFileTable):
    """How jobs ended, where the table has its own words for it."""

    column: Text | None = Field(default=None, description="Its name in the table, if another.")
    values: dict[str, JobStatus] = Field(
        default_factory=dict,
        max_length=10_000,
        description='What its values mean: { OK = "succeeded", OOM = "out_of_memory" }. tunerd\'s'
        " own words and Slurm's need not be listed.",
    )
    other: JobStatus | None = Field(
        default=None,
        description="What any other value means; without it such rows are not used.",
    )
    default: JobStatus | None = Field(
        default=None,
        description='For rows without a status; else they are "succeeded" where they have the'
        " objective, and not used where they have not.",
    )


class MappingTable(StudyFileTable):
    """Which columns of a table of old jobs hold what the study wants to know, where they are not
    called the same."""

    export: Text = Field(
        default="auto",
        description='Which tool wrote the table: "auto" recognises it by its columns, "none" reads'
        " it as it stands, `optuna`, `ray_tune` and others read it as theirs.",
    )
    reports: Literal["last", "best", "all"] = Field(
        default="last",
        description="Which report of a run is the job, where a table has several of each: the last,"
        " the one with the best objective, or all of them.",
    )
    header: list[Text] = Field(
        default_factory=list,
        max_length=1_000,
        description="Names of the columns of a CSV that has none, in their order.",
    )
    columns: dict[str, Text | ColumnTable | list[Text]] = Field(
        default_factory=dict,
        max_length=10_000,
        description="Column of a context feature, a parameter, the objective or a guard, where"
        " name, unit or words differ: the column's name or a table (below); for a `repeat`"
        " parameter also a list of columns, one for each position.",
    )
    defaults: dict[str, Value | list[Value]] = Field(
        default_factory=dict,
        max_length=10_000,
        description="Values of context features and parameters where the table has none.",
    )
    finished_at: Text | TimeTable | None = Field(
        default=None,
        description="Column with the time at which a job finished, or a table (below).",
    )
    status: Text | StatusTable | None = Field(
        default=None, description="Column that says how a job ended, or a table (below)."
    )
    job_id: Text | None = Field(
        default=None, description="Column with the scheduler's name for a job."
    )
    event_id: Text | None = Field(
        default=None,
        description="Column with an id of its own for each row, for tables made of events. Else"
        " the row's content names it.",
    )
    attempt: Text | None = Field(
        default=None, description="Column that counts a job's restarts, from 1."
    )
    measured_s: Text | ColumnTable | None = Field(
        default=None, description="Column with the seconds that the metrics were measured over."
    )
    gpus: Text | ColumnTable | None = Field(
        default=None, description="Column with the accelerators that a job held."
    )
    user: Text | None = Field(default=None, description="Column that says whose job it was.")
    source: str = Field(
        default="import",
        max_length=256,
        description="Source of the events; ids of events are unique in it.",
    )
    context: list[Text] = Field(
        default_factory=list,
        max_length=1_000,
        description="Further columns to keep as context: a later version of the study may use"
        " them.",
    )
    config: list[Text] = Field(
        default_factory=list,
        max_length=1_000,
        description="Further columns to keep as parameters.",
    )
    metrics: list[Text] = Field(
        default_factory=list,
        max_length=1_000,
        description="Further columns to keep as metrics; they hold numbers.",
    )
    labels: list[Text] = Field(
        default_factory=list, max_length=1_000, description="Columns to keep as labels."
    )


def mapping_mistakes(
    mapping: MappingTable,
    given: Collection[str],
    metrics: Collection[str],
    repeated: Collection[str],
) -> Iterator[tuple[tuple[str, ...], str]]:
    """What is wrong with a mapping for a study whose context features and parameters are
    ``given``, whose objective and guards are ``metrics``: the key and what would be right."""
    known = [*given, *metrics, *mapping.context, *mapping.config, *mapping.metrics]
    for name, entry in mapping.columns.items():
        if name not in known:
            yield ("columns", name), _unknown(name, known)
        elif isinstance(entry, list) and name not in repeated:
            yield ("columns", name), f"{name!r} is one value: name one column"
        elif isinstance(entry, list) and not entry:
            yield ("columns", name), "names no column"
    for name in mapping.defaults:
        if name in metrics:
            yield ("defaults", name), f"{name!r} is a metric: what was not measured has no value"
        elif name not in given:
            yield ("defaults", name), _unknown(name, given)


def _unknown(name: str, known: Collection[str]) -> str:
    hint = suggestion(name, known) or f"; there are {', '.join(known)}"
    return f"the study has no {name!r}{hint}"
