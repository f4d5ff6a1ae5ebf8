"""MLflow: ``mlflow.search_runs().to_csv()``, and the table that its page downloads."""

from tunerd.tables.exports.base import (
    INPUT,
    Export,
    Exporter,
    Head,
    Hint,
    Statuses,
    in_words,
    seed_hint,
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
    "run_id": Hint("job_id", "names the run"),
    "run_uuid": Hint("ignored", "names the run too"),
    "experiment_id": Hint("label", "names the experiment"),
    "status": Hint("status", "how the run ended"),
    "end_time": Hint("finished_at", "when the run ended"),
    "start_time": Hint("time", "when the run began"),
    "artifact_uri": Hint("ignored", "is a place"),
    "user_id": Hint("user", "says whose run it was"),
    "lifecycle_stage": Hint("ignored", "is MLflow's own note"),
    "run_name": Hint("label", "names the run"),
}
_PAGE = {
    "Run ID": Hint("job_id", "names the run"),
    "Name": Hint("label", "names the run"),
    "Run Name": Hint("label", "names the run"),
    "Start Time": Hint("finished_at", "when the run began: the table has no end", sure=0.8),
    "Duration": Hint("metric", "measured: the run's wall time", aside=True),
    "Source Type": Hint("ignored", "is where the code came from"),
    "Source Name": Hint("label", "is where the code came from"),
    "Source": Hint("label", "is where the code came from"),
    "Version": Hint("label", "is the code's version"),
    "User": Hint("user", "says whose run it was"),
    "Status": Hint("status", "how the run ended"),
}


def _recognise(head: Head) -> Export | None:
    params = head.starting("params.", "data.params.")
    metrics = head.starting("metrics.", "data.metrics.")
    info = {f"info.{name}": hint for name, hint in _OWN.items()}
    own = head.among(_OWN) + head.among(info)
    if (params or metrics) and len(own) >= 3 and ({"run_id", "info.run_id"} & set(own)):
        hints = {column: (_OWN | info)[column] for column in own}
        for column in params:
            name = column.rpartition("params.")[2]
            hints[column] = seed_hint(name) or Hint(INPUT, "logged as a parameter", name)
        for column in metrics:
            name = column.partition("metrics.")[2]
            role = "ignored" if name.startswith("system/") else "metric"
            hints[column] = Hint(role, "measured: logged as a metric", in_words(name))
        for column in head.starting("tags.", "data.tags."):
            user = column.endswith("mlflow.user") and "user_id" not in own
            note = "mlflow." in column
            role = "user" if user else "ignored" if note else ""
            hints[column] = Hint(role, "is a tag", column.partition("tags.")[2])
        marks = (*own[:2], *params[:1], *metrics[:1])
        return Export("mlflow", "runs of MLflow", marks, hints, _STATUSES)
    page = head.among(_PAGE)
    if {"Run ID", "Start Time", "Status"} <= set(page):
        hints = {column: _PAGE[column] for column in page}
        for column in head.starting("mlflow."):
            hints[column] = Hint("ignored", "is MLflow's own note")
        return Export("mlflow", "runs of MLflow, as its page downloads them",
                      ("Run ID", "Start Time", "Status"), hints, _STATUSES)  # fmt: skip
    return None


EXPORTER = Exporter("mlflow", _recognise)
