"""ClearML: the table of tasks that its page downloads, and tasks as its API returns them."""

import re

from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    Statuses,
    TableHead,
)

__all__ = ["EXPORTER"]

_STATUSES: Statuses = {
    "completed": "succeeded",
    "published": "succeeded",
    "closed": "succeeded",
    "failed": "failed",
    "aborted": "cancelled",
    "stopped": "cancelled",
    "created": "cancelled",
    "draft": "cancelled",
    "pending": "cancelled",
    "queued": "cancelled",
    "running": "cancelled",
    "in_progress": "cancelled",
    "in progress": "cancelled",
}
_OWN = {
    "id": ColumnHint("job_id", "names the task"),
    "task id": ColumnHint("job_id", "names the task"),
    "name": ColumnHint("label", "names the task"),
    "type": ColumnHint("ignored", "is a kind of task"),
    "tags": ColumnHint("label", "is a remark"),
    "system tags": ColumnHint("ignored", "is ClearML's own note"),
    "status": ColumnHint("status", "how the task ended"),
    "project": ColumnHint("label", "names the project"),
    "user": ColumnHint("user", "says whose task it was"),
    "comment": ColumnHint("ignored", "is a remark"),
    "parent task": ColumnHint("ignored", "is another task"),
    "parent": ColumnHint("ignored", "is another task"),
    "description": ColumnHint("ignored", "is a remark"),
    "iteration": ColumnHint("ignored", "is how far the task came"),
    "last iteration": ColumnHint("ignored", "is how far the task came"),
    "queue": ColumnHint("label", "names a queue"),
    "worker": ColumnHint("label", "names a machine"),
    "run time": ColumnHint("metric", "measured: the task's wall time", aside=True),
    "active duration": ColumnHint("metric", "measured: the task's wall time", aside=True),
    "version": ColumnHint("label", "is the code's version"),
    "created": ColumnHint("time", "when the task was made"),
    "started": ColumnHint("time", "when the task began"),
    "updated": ColumnHint("time", "when the task was last heard of"),
    "last update": ColumnHint("time", "when the task was last heard of"),
    "completed": ColumnHint("time", "when the task ended"),
}
_ENDS = ("completed", "last update", "updated", "started", "created")
_PARAMS = re.compile(
    r"(?:hyperparam(?:eter)?s?[./ >]+)?"
    r"((?:General|Args|Hydra|TF_DEFINE|Properties|Environment)[/. ].+?)"
    r"(?:\.value)?",
    re.IGNORECASE,
)
_OF_SECTION = re.compile(r"\w[\w -]*[./]\w[\w./ -]*")
"""A parameter of a section that people named themselves, in a table that is ClearML's."""
_METRIC = re.compile(
    r"(?:last_)?metrics?[./ >]+.+|.+ > .+|(?:min|max|last)[ _.].+|.+ \((?:min|max|last)\)",
    re.IGNORECASE,
)


def _recognise(head: TableHead) -> DetectedExport | None:
    lower = {_plain(column): column for column in reversed(head.columns)}
    own = [name for name in _OWN if name in lower]
    params = [column for column in head.columns if _PARAMS.fullmatch(column)]
    table = {"status", "name"} <= set(own) and len(
        {"project", "started", "updated", "type", "parent task"} & set(own)
    ) >= 2
    search = {"status"} <= set(own) and ({"task id", "id"} & set(own)) and params
    if table:
        params += [
            column
            for column in head.columns
            if column not in params
            and _plain(column) not in _OWN
            and _OF_SECTION.fullmatch(column)
            and not _METRIC.fullmatch(column)
        ]
    if not params or not (table or search):
        return None
    hints = {lower[name]: _OWN[name] for name in own}
    for column in params:
        match = _PARAMS.fullmatch(column)
        section, _, name = re.split(r"([/. ])", match[1] if match else column, maxsplit=1)
        kind = section.lower()
        if kind in ("properties", "environment"):
            hints[column] = ColumnHint("label", "is about the task", name)
        else:
            role = INPUT if table else "parameter"
            hints[column] = ColumnHint(role, f"stands in {section}", name)
    for column in head.columns:
        if column not in hints and _METRIC.fullmatch(column):
            name = re.sub(r"^(?:last_)?metrics?[./ >]+", "", column, flags=re.IGNORECASE)
            hints[column] = ColumnHint("metric", "measured by the task", name)
    if end := next((name for name in _ENDS if name in lower and head.values(lower[name])), None):
        began = end in ("started", "created")
        why = f"{_OWN[end].why}{': the table has no end' if began else ''}"
        hints[lower[end]] = ColumnHint("finished_at", why, sure=0.8 if began else 0.95)
    marks = (*[lower[name] for name in own[:3]], params[0])
    return DetectedExport("clearml", "tasks of ClearML", marks, hints, _STATUSES)


def _plain(column: str) -> str:
    return re.sub(r"[\s_]+", " ", column).strip().lower()


EXPORTER = ExportFormat("clearml", _recognise)
