"""Ray Tune: ``result.json`` and ``progress.csv`` of trials, and ``get_dataframe().to_csv()``."""

from tunerd.lab.tables.exports.base import (
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
    in_words,
)
from tunerd.lab.tables.exports.run_reports import one_row_per_run

__all__ = ["EXPORTER"]

_PROGRESS = "training_iteration"
_OWN = {
    "trial_id": ColumnHint("job_id", "names the trial"),
    "timestamp": ColumnHint("finished_at", "when the trial reported"),
    "date": ColumnHint("time", "the same as a text"),
    **dict.fromkeys(
        (
            _PROGRESS, "time_total_s", "time_this_iter_s", "timesteps_total", "episodes_total",
            "iterations_since_restore", "time_since_restore", "timesteps_since_restore",
            "episodes_this_iter", "timesteps_this_iter", "warmup_time", "agent_timesteps_total",
        ),
        ColumnHint("ignored", "is how far the trial is"),
    ),
    **dict.fromkeys(
        (
            "pid", "hostname", "node_ip", "done", "experiment_id", "experiment_tag", "logdir",
            "should_checkpoint", "checkpoint_dir_name", "trial_name", "auto_init", "trainable_name",
            "custom_metrics", "_progress_metrics",
        ),
        ColumnHint("ignored", "says nothing about how the trial was configured"),
    ),
}  # fmt: skip
_CONFIG = ("config/", "config.", "hyperparameters/")


def _recognise(head: TableHead) -> DetectedExport | None:
    own = head.among(_OWN)
    config = head.starting(*_CONFIG)
    if _PROGRESS not in own or len(own) < 4 or not (config or "trial_id" in own):
        return None
    hints = {column: _OWN[column] for column in own}
    for column in config:
        name = next(column[len(p) :] for p in _CONFIG if column.startswith(p))
        hints[column] = ColumnHint("parameter", "stands in the trial's config", name)
    if not config and "experiment_tag" in own:
        hints["experiment_tag"] = ColumnHint("label", "names the trial")
    for column in head.columns:
        if column.startswith(
            ("perf/", "perf.", "sampler_perf", "timers", "info/", "info.", "hist_stats")
        ):
            hints[column] = ColumnHint("ignored", "is about the machine or the trainer")
        elif column not in hints and config:
            hints[column] = ColumnHint(
                "metric", "measured: the trial reported it", in_words(column), 0.8
            )
    marks = (*own[:3], *(config[:1]))
    again = len(head.values("trial_id")) > len(set(map(str, head.values("trial_id"))))
    trial = next(iter(head.among(("trial_id", "experiment_tag", "logdir"))), None)
    return DetectedExport(
        "ray_tune",
        "reports of Ray Tune",
        marks,
        hints,
        reshape=one_row_per_run(trial, _PROGRESS, "trial"),
        reported="trial" if again or "trial_id" not in own else "",
    )


EXPORTER = ExportFormat("ray_tune", _recognise)
