"""scikit-learn: ``pandas.DataFrame(search.cv_results_).to_csv()``."""

import re

from tunerd.lab.tables.exports.base import (
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
)

__all__ = ["EXPORTER"]

_MEASURED = re.compile(r"(mean|std|rank|split\d+)_(.+)")
_SPREAD = re.compile(r"(std|rank|split\d+)_.+|mean_score_time")


def _recognise(head: TableHead) -> DetectedExport | None:
    params = head.starting("param_")
    measured = [column for column in head.columns if _MEASURED.fullmatch(column)]
    means = [column for column in measured if column.startswith("mean_")]
    if not params or not means:
        return None
    hints = {}
    for column in params:
        name = column[len("param_") :].replace("__", ".")
        hints[column] = ColumnHint("parameter", "scikit-learn searched it", name)
    for column in measured:
        why = "is a part or the spread of a mean" if _SPREAD.fullmatch(column) else "measured"
        hints[column] = ColumnHint("ignored" if _SPREAD.fullmatch(column) else "metric", why)
    scores = [column for column in means if re.fullmatch(r"mean_test_.+", column)]
    if scores:
        first = "mean_test_score" if "mean_test_score" in scores else scores[0]
        sure = 0.9 if len(scores) == 1 or first == "mean_test_score" else 0.6
        why = "the score of the held-out folds"
        greater = "scikit-learn's scores are better when greater"
        hints[first] = ColumnHint("objective", why, None, sure, "maximize", greater)
    elif "mean_fit_time" in means:
        hints["mean_fit_time"] = ColumnHint(
            "objective", "the table has no score", None, 0.6, "minimize", "it is a time"
        )
    hints |= {
        name: ColumnHint("ignored", "is all parameters in one text")
        for name in head.among(("params",))
    }
    hints |= {
        name: ColumnHint("ignored", "is how far a halving search is")
        for name in head.among(("iter",))
    }
    hints |= {
        name: ColumnHint("context", "what a halving search gave each candidate")
        for name in head.among(("n_resources",))
    }
    return DetectedExport("sklearn", "scikit-learn's cv_results_", (params[0], means[0]), hints)


EXPORTER = ExportFormat("sklearn", _recognise)
