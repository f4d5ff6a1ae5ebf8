"""MLflow: ``mlflow.search_runs().to_csv()``, and the table that its page downloads."""

from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    Statuses,
    TableHead,
    in_words,
)

__all__ = ["EXPORTER"]

_STATUSES: Statuses = {
    "finished": "succeeded",
    "failed": "failed",
    "killed": "cancelled",
    "running": "cancelled",
    "scheduled": "cancelled",
}
_OWN = {
    "run_id": ColumnHint("job_id", "names the run"),
    "run_uuid": ColumnHint("ignored", "names the run too"),
    "experiment_id": ColumnHint("label", "names the experiment"),
    "status": ColumnHint("status", "how the run ended"),
    "end_time": ColumnHint("finished_at", "when the run ended"),
    "start_time": ColumnHint("time", "when the run began"),
    "artifact_uri": ColumnHint("ignored", "is a place"),
    "user_id": ColumnHint("user", "says whose run it was"),
    "lifecycle_stage": ColumnHint("ignored", "is MLflow's own note"),
    "run_name": ColumnHint("label", "names the run"),
}
_PAGE = {
    "Run ID": ColumnHint("job_id", "names the run"),
    "Name": ColumnHint("label", "names the run"),
    "Run Name": ColumnHint("label", "names the run"),
    "Start Time": ColumnHint("finished_at", "when the run began: the table has no end", sure=0.8),
    "Duration": ColumnHint("metric", "measured: the run's wall time", aside=True),
    "Source Type": ColumnHint("ignored", "is where the code came from"),
    "Source Name": ColumnHint("label", "is where the code came from"),
    "Source": ColumnHint("label", "is where the code came from"),
    "Version": ColumnHint("label", "is the code's version"),
    "User": ColumnHint("user", "says whose run it was"),
    "Status": ColumnHint("status", "how the run ended"),
}


def _recognise(head: TableHead) -> DetectedExport | None:
    params = head.starting("params.", "data.params.")
    metrics = head.starting("metrics.", "data.metrics.")
    info = {f"info.{name}": hint for name, hint in _OWN.items()}
    own = head.among(_OWN) + head.among(info)
    if (params or metrics) and len(own) >= 3 and ({"run_id", "info.run_id"} & set(own)):
        hints = {column: (_OWN | info)[column] for column in own}
        for column in params:
            name = column.rpartition("params.")[2]
            hints[column] = ColumnHint(INPUT, "logged as a parameter", name)
        for column in metrics:
            name = column.partition("metrics.")[2]
            role = "ignored" if name.startswith("system/") else "metric"
            hints[column] = ColumnHint(role, "measured: logged as a metric", in_words(name))
        for column in head.starting("tags.", "data.tags."):
            user = column.endswith("mlflow.user") and not {"user_id", "info.user_id"} & set(own)
            note = "mlflow." in column
            role = "user" if user else "ignored" if note else ""
            hints[column] = ColumnHint(role, "is a tag", column.partition("tags.")[2])
        marks = (*own[:2], *params[:1], *metrics[:1])
        return DetectedExport("mlflow", "runs of MLflow", marks, hints, _STATUSES)
    page = head.among(_PAGE)
    if {"Run ID", "Start Time", "Status"} <= set(page):
        hints = {column: _PAGE[column] for column in page}
        for column in head.starting("mlflow."):
            hints[column] = ColumnHint("ignored", "is MLflow's own note")
        return DetectedExport("mlflow", "runs of MLflow, as its page downloads them",
                      ("Run ID", "Start Time", "Status"), hints, _STATUSES)  # fmt: skip
    return None


EXPORTER = ExportFormat("mlflow", _recognise)
