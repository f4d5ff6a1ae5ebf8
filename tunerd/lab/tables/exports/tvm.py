"""TVM: logs of AutoTVM, a JSON object a line for each configuration that was measured."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tunerd.core.study.mapping import JobStatus
from tunerd.lab.tables.exports.base import (
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
    each_row,
)

__all__ = ["EXPORTER"]

_KNOB, _TIME = "config.", "time_s"
_STATUSES: Mapping[int, JobStatus] = {0: "succeeded", 6: "timeout", 7: "timeout"}
"""``MeasureErrorNo``: the others are of code that could not be built or failed."""


def _recognise(head: TableHead) -> DetectedExport | None:
    if not head.has("input", "config.entity", "result"):
        return None
    made = head.reshaped(each_row(_job))
    knobs = made.starting(_KNOB)
    hints = {
        knob: ColumnHint("parameter", "a knob of AutoTVM", knob[len(_KNOB) :]) for knob in knobs
    }
    hints |= {name: ColumnHint("context", "what was tuned for") for name in ("target", "task")}
    hints["arguments"] = ColumnHint("context", "the shapes that were computed with")
    hints["status"] = ColumnHint("status", "what AutoTVM says of the run")
    hints["finished_at"] = ColumnHint("finished_at", "when it was measured")
    hints["tuning_s"] = ColumnHint("ignored", "how long building and measuring took")
    hints[_TIME] = ColumnHint("objective", "the mean of its times", None, 0.9, "minimize", "a time")
    marks = ("input", "config.entity", "result")
    return DetectedExport(
        "autotvm",
        "a log of AutoTVM",
        marks,
        hints,
        reshape=each_row(_job),
        units={_TIME: "s"},
        columns=made.columns,
    )


def _job(values: Mapping[str, Any]) -> dict[str, Any]:
    """A row of what a line says; what has another form than AutoTVM's is missing."""
    given, entity, result = (_list(values.get(n)) for n in ("input", "config.entity", "result"))
    target, task, arguments, *_ = [*given, None, None, None]
    costs, code, took, moment, *_ = [*result, None, None, None, None]
    times = [cost for cost in _list(costs) if isinstance(cost, int | float)]
    status = _STATUSES.get(code, "failed") if isinstance(code, int) else None
    return {
        "target": str(target) if target is not None else None,
        "task": str(task) if task is not None else None,
        "arguments": None if arguments is None else json.dumps(arguments),
        **dict(_knobs(entity)),
        _TIME: sum(times) / len(times) if times and status == "succeeded" else None,
        "status": status,
        "tuning_s": took if isinstance(took, int | float) else None,
        "finished_at": moment if isinstance(moment, int | float) else None,
    }


def _knobs(entity: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Each knob: an annotation or a split, of whose sizes -1 is what is left over."""
    for knob in entity:
        if isinstance(knob, list) and len(knob) == 3:
            name, _, value = knob
            yield f"{_KNOB}{name}", json.dumps(value) if isinstance(value, list) else value


def _list(value: Any) -> list[Any]:
    """A list, also as the text of one that was nested."""
    if isinstance(value, str) and value.startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    return value if isinstance(value, list) else []


EXPORTER = ExportFormat("autotvm", _recognise)
