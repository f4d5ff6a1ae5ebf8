"""Weights & Biases: the table that its page exports, and what its API's example writes."""

from collections.abc import Iterable

from tunerd.lab.tables.column_names import read_name
from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    Statuses,
    TableHead,
    in_words,
)
from tunerd.lab.tables.exports.literals import record_in
from tunerd.lab.tables.exports.records import records_apart

__all__ = ["EXPORTER"]

_STATUSES: Statuses = {
    "finished": "succeeded",
    "crashed": "failed",
    "failed": "failed",
    "killed": "cancelled",
    "running": "cancelled",
    "pending": "cancelled",
    "preempted": "preempted",
    "preempting": "preempted",
}
_PAGE = {
    "ID": ColumnHint("job_id", "names the run"),
    "Name": ColumnHint("label", "names the run"),
    "State": ColumnHint("status", "how the run ended"),
    "Notes": ColumnHint("ignored", "is a remark"),
    "User": ColumnHint("user", "says whose run it was"),
    "Tags": ColumnHint("label", "is a remark"),
    "Group": ColumnHint("label", "names a group of runs"),
    "JobType": ColumnHint("label", "names a kind of run"),
    "Job Type": ColumnHint("label", "names a kind of run"),
    "Sweep": ColumnHint("label", "names the sweep"),
    "Hostname": ColumnHint("label", "names a machine"),
    "Host": ColumnHint("label", "names a machine"),
    "GitHub Commit": ColumnHint("ignored", "is the code's version"),
    "Description": ColumnHint("ignored", "is a remark"),
    "Runtime": ColumnHint("metric", "measured: the run's wall time", aside=True),
    "Updated": ColumnHint("time", "when the run was last heard of"),
    "Created": ColumnHint("time", "when the run began"),
    "End Time": ColumnHint("time", "when the run ended"),
    "_step": ColumnHint("ignored", "is how far the run is"),
    "_runtime": ColumnHint("metric", "measured: the run's wall time", aside=True),
    "_timestamp": ColumnHint("time", "when the run last reported"),
    "_wandb.runtime": ColumnHint("ignored", "is the wall time again"),
    "_wandb": ColumnHint("ignored", "is the tool's own note"),
    "Relative Time (Process)": ColumnHint("ignored", "is the wall time again"),
}
_ENDS = ("End Time", "_timestamp", "Updated", "Created")
"""Columns that say when a run ended, the best first."""
_MARKS = ("Sweep", "Runtime", "Created", "Tags", "Notes", "State", "User", "ID")


def _recognise(head: TableHead) -> DetectedExport | None:
    if head.has("summary", "config") and ("name" in head.columns or "id" in head.columns):
        return _of_api(head)
    if (
        head.starting("summary.")
        and head.starting("config.")
        and head.among(("name", "id", "state"))
    ):
        return _flat(head)
    marks = head.among(_MARKS)
    if not {"Name", "State"} <= set(head.columns) or len(marks) < 4:
        return None
    hints = {column: _PAGE[column] for column in head.among(_PAGE)}
    for column in head.columns:
        if column.startswith(("system/", "_wandb", "parameters/", "gradients/", "graph")):
            hints[column] = ColumnHint("ignored", "is about the machine or the tool")
        elif column not in hints and read_name(column).weight("parameter") >= 3:
            hints[column] = ColumnHint(INPUT, "is called like a setting, and stands beside results")
        elif column not in hints and "/" in column:
            hints[column] = ColumnHint("", "", in_words(column))
    _with_end(head, hints)
    return DetectedExport(
        "wandb", "runs of Weights & Biases", ("Name", *marks[:3]), hints, _STATUSES
    )


def _with_end(head: TableHead, hints: dict[str, ColumnHint]) -> None:
    there = [column for column in head.among(_ENDS) if head.values(column)]
    if there:
        began = there[0] == "Created"
        why = "when the run began: the table has no end" if began else hints[there[0]].why
        hints[there[0]] = ColumnHint("finished_at", why, sure=0.8 if began else 0.95)


def _flat(head: TableHead) -> DetectedExport:
    return DetectedExport("wandb", "runs of Weights & Biases", ("summary.*", "config.*"),
                  _hints(head.columns), _STATUSES)  # fmt: skip


def _hints(columns: Iterable[str]) -> dict[str, ColumnHint]:
    hints: dict[str, ColumnHint] = {}
    for column in columns:
        first, _, name = column.partition(".")
        if first == "config" and name:
            own = name.startswith("_")
            hints[column] = (
                ColumnHint("ignored", "is the tool's own note")
                if own
                else ColumnHint(INPUT, "stands in the run's config", name.removesuffix(".value"))
            )
        elif first == "summary" and name:
            own = name.startswith(("_wandb", "_step", "gradients/", "graph"))
            hints[column] = (
                ColumnHint("ignored", "is the tool's own note")
                if own
                else ColumnHint(
                    "metric",
                    "measured: the run's summary",
                    in_words(name.removeprefix("_")),
                    aside=name == "_runtime",
                )
            )
    for name, role, why in (
        ("name", "label", "names the run"),
        ("id", "job_id", "names the run"),
        ("state", "status", "how the run ended"),
        ("summary._timestamp", "finished_at", "when the run last reported"),
    ):
        if name in columns and (name not in hints or role == "finished_at"):
            hints[name] = ColumnHint(role, why)
    if "id" not in columns and "name" in columns:
        hints["name"] = ColumnHint("job_id", "names the run")
    return hints


def _of_api(head: TableHead) -> DetectedExport | None:
    """The table whose columns ``summary`` and ``config`` hold whole records as texts."""
    records = [record_in(value) for value in head.values("config")]
    if not records or any(record is None for record in records):
        return None
    reshape = records_apart(("summary", "config"))
    columns = head.reshaped(reshape).columns
    return DetectedExport(
        "wandb",
        "runs of Weights & Biases, as its API's example writes them",
        ("summary", "config", "name"),
        _hints(columns),
        _STATUSES,
        reshape=reshape,
        columns=columns,
    )


EXPORTER = ExportFormat("wandb", _recognise)
