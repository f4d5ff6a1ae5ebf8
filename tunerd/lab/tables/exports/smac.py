"""SMAC's ``runhistory.json``: trials, and apart from them the configurations by their ids; and the
same of HpBandSter in two files, ``configs.json`` and ``results.json``."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tunerd.core.study.mapping import JobStatus
from tunerd.events.foreign import mapping
from tunerd.lab.tables.exports.base import (
    A_SEED,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
    names,
)

__all__ = ["EXPORTER", "hpbandster_trials"]

_CONFIG, _COST = "config.", "cost"
_KEY = names("config_id instance seed budget")
_LISTED = {  # version 2 before it wrote objects, without and with the processor's time
    10: (*_KEY, *names("cost time status starttime endtime additional_info")),
    11: (*_KEY, *names("cost time cpu_time status starttime endtime additional_info")),
}
_PAIRED = names("cost time status starttime endtime additional_info")
"""What version 1 wrote behind the key of a trial."""
_BY_NUMBER = ("RUNNING", "SUCCESS", "CRASHED", "TIMEOUT", "MEMORYOUT")
"""``StatusType`` of version 2; version 1 wrote the names."""
_STATUSES: Mapping[str, JobStatus] = {
    "SUCCESS": "succeeded",
    "DONOTADVANCE": "succeeded",
    "CRASHED": "failed",
    "ABORT": "cancelled",
    "STOP": "cancelled",
    "TIMEOUT": "timeout",
    "CAPPED": "timeout",
    "MEMOUT": "out_of_memory",
    "MEMORYOUT": "out_of_memory",
}


def _records(document: Any) -> Iterable[Mapping[str, Any]] | None:
    if not isinstance(document, dict):
        return None
    data, configs = document.get("data"), document.get("configs")
    if not isinstance(data, list) or not data or not isinstance(configs, dict):
        return None
    trials = [_trial(entry) for entry in data]
    if not all("config_id" in trial and "cost" in trial for trial in trials):
        return None
    return list(_rows(trials, configs, mapping(document.get("config_origins"))))


def _trial(entry: Any) -> Mapping[str, Any]:
    """A trial by the names of its fields, whichever version wrote it; empty where none did."""
    if isinstance(entry, dict):
        return entry
    if not isinstance(entry, list):
        return {}
    if len(entry) == 2 and all(isinstance(part, list) for part in entry):
        key, result = entry
        return dict(zip((*_KEY, *_PAIRED), [*key, *result], strict=False)) if len(key) == 4 else {}
    return dict(zip(_LISTED.get(len(entry), ()), entry, strict=False))


def _rows(
    trials: Iterable[Mapping[str, Any]], configs: Mapping[str, Any], origins: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    for trial in trials:
        config_id = str(trial["config_id"])
        word = _word(trial.get("status"))
        if word == "RUNNING":
            continue
        status = _STATUSES.get(word, "failed")
        cost = trial["cost"] if status == "succeeded" else None  # that of a crash is made up
        costs = cost if isinstance(cost, list) else [cost]
        several = len(costs) > 1
        yield {
            **{name: trial.get(name) for name in _KEY},
            "origin": origins.get(config_id),
            **{f"{_CONFIG}{k}": v for k, v in mapping(configs.get(config_id)).items()},
            **{f"{_COST}_{n}" if several else _COST: value for n, value in enumerate(costs[:20])},
            **{name: trial.get(name) for name in ("time", "cpu_time") if name in trial},
            # 0 where somebody else ran the trials and told SMAC.
            **{name: trial.get(name) or None for name in ("starttime", "endtime")},
            "status": status,
        }


def hpbandster_trials(
    configs: Iterable[Any], results: Iterable[Any]
) -> Iterator[Mapping[str, Any]]:
    """The trials of HpBandSter, from the lines of its two files."""
    by_id = {str(line[0]): line[1] for line in configs if isinstance(line, list) and len(line) > 1}
    trials = []
    for line in results:
        if isinstance(line, list) and len(line) == 5:
            times, result = mapping(line[2]), line[3]
            cost = result.get("loss") if isinstance(result, dict) else result
            trials.append(
                {
                    "config_id": str(line[0]),
                    "budget": line[1],
                    "cost": cost,
                    "starttime": times.get("started"),
                    "endtime": times.get("finished"),
                    "status": "CRASHED" if cost is None else "SUCCESS",
                }
            )
    return _rows(trials, by_id, {})


def _word(status: Any) -> str:
    """The name of a status, ``SUCCESS``, by its number or as version 1 wrote it."""
    if isinstance(status, int) and 0 <= status < len(_BY_NUMBER):
        return _BY_NUMBER[status]
    name = status.get("__enum__") if isinstance(status, dict) else status
    return str(name).rpartition(".")[2]


def _recognise(head: TableHead) -> DetectedExport | None:
    configs = head.starting(_CONFIG)
    costs = [name for name in head.starting(_COST) if head.values(name)]
    if not configs or not costs or not head.has("config_id", "budget", "starttime", "status"):
        return None
    hints = {
        name: ColumnHint("parameter", "stands in configs", name[len(_CONFIG) :]) for name in configs
    }
    hints |= {
        name: ColumnHint("metric", "measured by SMAC") for name in (*costs, "time", "cpu_time")
    }
    hints[costs[0]] = ColumnHint(
        "objective",
        "the cost",
        None,
        0.9 if len(costs) == 1 else 0.5,
        "minimize",
        "SMAC minimises",
    )
    for name in ("instance", "budget"):
        hints[name] = ColumnHint("context" if head.varies(name) else "ignored", "what was solved")
    label = ColumnHint("label", "names the configuration, or where it comes from")
    hints |= dict.fromkeys(("config_id", "origin"), label)
    hints["seed"] = ColumnHint("label", A_SEED)
    hints["starttime"] = ColumnHint("time", "another time")
    hints["endtime"] = ColumnHint("finished_at", "when the trial ended")
    hints["status"] = ColumnHint("status", "how the trial ended")
    marks = ("data", "configs", "config_origins")
    return DetectedExport("smac", "trials of SMAC or HpBandSter", marks, hints)


EXPORTER = ExportFormat("smac", _recognise, _records)
