"""Optuna: ``study.trials_dataframe().to_csv()``, and the table that its dashboard exports."""

from tunerd.lab.tables.exports.base import (
    ColumnHint,
    DetectedExport,
    ExportFormat,
    Statuses,
    TableHead,
)

__all__ = ["EXPORTER"]

_STATUSES: Statuses = {
    "complete": "succeeded",
    "pruned": "cancelled",
    "fail": "failed",
    "failed": "failed",
    "running": "cancelled",
    "waiting": "cancelled",
}
_PLAIN = {
    "number": ColumnHint("job_id", "numbers the trials"),
    "trial_id": ColumnHint("label", "another number of the trial"),
    "datetime_start": ColumnHint("time", "when the trial began"),
    "datetime_complete": ColumnHint("finished_at", "when the trial ended"),
    "duration": ColumnHint("metric", "measured: the trial's wall time", aside=True),
    "state": ColumnHint("status", "how the trial ended; a pruned one was cut short"),
}
_GOAL = "Optuna minimises unless the study says otherwise"
_VALUES = ("values_", "value_")
_PREFIXES = (("params_", ""), ("Param ", ""), ("params.", ""))


def _recognise(head: TableHead) -> DetectedExport | None:
    lower = {column.lower(): column for column in head.columns}
    params = [column for prefix, _ in _PREFIXES for column in head.starting(prefix)]
    values = [column for column in head.columns if column.lower().startswith(_VALUES)]
    value = lower.get("value")
    times = {"datetime_start", "datetime_complete", "duration"} & set(lower)
    known = "number" in lower and "state" in lower
    if not params or not (value or values) or not (known or times):
        return None
    hints: dict[str, ColumnHint] = {}
    for column in params:
        name = next(column[len(p) :] for p, _ in _PREFIXES if column.startswith(p))
        hints[column] = ColumnHint("parameter", "Optuna suggested it", name)
    for name, hint in _PLAIN.items():
        if name in lower:
            hints[lower[name]] = hint
    why = "what the trials returned"
    if value:
        hints[value] = ColumnHint("objective", why, None, 0.9, "minimize", _GOAL, 0.3)
    for place, column in enumerate([] if value else values):
        role = "metric" if place else "objective"
        called = column.partition("_")[2]
        study_name = None if called.isdigit() else called
        hints[column] = ColumnHint(role, why, study_name, 0.6, "minimize", _GOAL, 0.3)
    for column in head.starting("user_attrs_"):
        hints[column] = ColumnHint("", "an attribute", column[len("user_attrs_") :])
    for column in head.starting("system_attrs_"):
        hints[column] = ColumnHint("ignored", "is Optuna's own note")
    notes = (
        ()
        if value or len(values) < 2
        else (f"{len(values)} objectives: {values[0]} is tuned, others may be guards",)
    )
    marks: tuple[str, ...] = (params[0] + (", ..." if len(params) > 1 else ""), value or values[0])
    marks += tuple(lower[column] for column in ("datetime_complete", "state") if column in lower)
    return DetectedExport("optuna", "trials of Optuna", marks, hints, _STATUSES, notes=notes)


EXPORTER = ExportFormat("optuna", _recognise)
