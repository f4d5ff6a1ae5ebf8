"""TensorFlow for R: ``write.csv(tfruns::ls_runs())``."""

from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    Statuses,
    TableHead,
)

__all__ = ["EXPORTER"]

_OWN = {
    "run_dir": ColumnHint("job_id", "names the run"),
    "start": ColumnHint("time", "when the run began"),
    "end": ColumnHint("finished_at", "when the run ended"),
    "completed": ColumnHint("status", "whether the run ended well"),
    "epochs_completed": ColumnHint("ignored", "is how far the run came"),
    "steps_completed": ColumnHint("ignored", "is how far the run came"),
    "batch_size": ColumnHint(INPUT, "was given to fit()"),
    "epochs": ColumnHint(INPUT, "was given to fit()"),
    "steps": ColumnHint("ignored", "follows from the samples"),
    "samples": ColumnHint("context", "how much there was to learn"),
    "validation_samples": ColumnHint("ignored", "follows from the samples"),
    "optimizer": ColumnHint(INPUT, "what the model was compiled with"),
    "loss_function": ColumnHint(INPUT, "what the model was compiled with"),
    "learning_rate": ColumnHint(INPUT, "what the model was compiled with"),
    **dict.fromkeys(
        ("model", "script", "output", "source_code", "context", "type", "metrics", "error_message",
         "error_traceback", "cloudml_console_url", "cloudml_created", "cloudml_end", "cloudml_job",
         "cloudml_log_url", "cloudml_ml_units", "cloudml_start", "cloudml_state", "url"),
        ColumnHint("ignored", "says nothing about how the run was configured"),
    ),
}  # fmt: skip
_STATUSES: Statuses = {"true": "succeeded", "false": "failed"}


def _recognise(head: TableHead) -> DetectedExport | None:
    flags = head.starting("flag_")
    measured = head.starting("metric_", "eval_")
    if "run_dir" not in head.columns or not measured or not (flags or head.has("start", "end")):
        return None
    hints = {column: _OWN[column] for column in head.among(_OWN)}
    for column in flags:
        name = column[len("flag_") :]
        hints[column] = ColumnHint("parameter", "is a flag of the run", name)
        hints.pop(name, None)  # the same again, as fit() took it
        if name in _OWN:
            hints[name] = ColumnHint("ignored", f"is {column} again")
    for column in measured:
        hints[column] = ColumnHint("metric", "measured by the run", column.removeprefix("metric_"))
    best = sorted(measured, key=_rank)[0]
    hints[best] = ColumnHint("objective", "measured by the run", best.removeprefix("metric_"), 0.6)
    marks = ("run_dir", *flags[:1], *measured[:1])
    return DetectedExport("tfruns", "runs of TensorFlow's tfruns", marks, hints, _STATUSES)


def _rank(column: str) -> tuple[bool, bool]:
    """What was evaluated or validated before what was trained on; losses first."""
    return not column.startswith(("eval_", "metric_val_")), "loss" not in column


EXPORTER = ExportFormat("tfruns", _recognise)
