"""iperf3: what ``iperf3 --json`` writes of a run."""

from collections.abc import Iterable, Mapping
from typing import Any

from tunerd.events.foreign import mapping
from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
    names,
)

__all__ = ["EXPORTER"]

_SET = "iperf3."
_WORK = names("protocol reverse bidirectional bidir bytes blocks target_bitrate")
_NOTHING = names("omit duration fqrate interval")


def _records(document: Any) -> Iterable[Mapping[str, Any]] | None:
    runs = document if isinstance(document, list) else [document]
    if not runs or not all(_is_run(run) for run in runs):
        return None
    return [_record(run) for run in runs]


def _is_run(run: Any) -> bool:
    return isinstance(run, dict) and {"start", "end", "intervals"} <= run.keys()


def _record(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """A run without its streams and intervals: what was set, and the sums of the end."""
    start, end = mapping(run["start"]), mapping(run["end"])
    row: dict[str, Any] = {f"{_SET}{n}": v for n, v in mapping(start.get("test_start")).items()}
    row |= {f"{_SET}{n}": start[n] for n in ("tcp_mss_default", "sock_bufsize") if n in start}
    if "sender_tcp_congestion" in end:
        row[f"{_SET}congestion"] = end["sender_tcp_congestion"]
    whole = mapping(end.get("sum_received")) or mapping(end.get("sum"))
    sent = mapping(end.get("sum_sent"))
    row |= {n: whole[n] for n in ("bits_per_second", "jitter_ms", "lost_percent") if n in whole}
    row |= {"retransmits": sent["retransmits"]} if "retransmits" in sent else {}
    row |= {
        f"cpu_{n}": v
        for n, v in mapping(end.get("cpu_utilization_percent")).items()
        if "total" in n
    }
    failed = "error" in run or "bits_per_second" not in row
    moment = mapping(start.get("timestamp")).get("timesecs")
    return {**row, "timestamp": moment, "status": "failed" if failed else "succeeded"}


def _recognise(head: TableHead) -> DetectedExport | None:
    options = head.starting(_SET)
    if not options or not head.has("bits_per_second", "status"):
        return None
    hints = {}
    for column in options:
        name = column[len(_SET) :]
        role = "context" if name in _WORK else "ignored" if name in _NOTHING else INPUT
        hints[column] = ColumnHint(role, "how the run was started", name)
    rest = [name for name in head.columns if name not in options and name.startswith("cpu_")]
    measured = [*rest, *head.among(("retransmits", "jitter_ms", "lost_percent"))]
    hints |= {name: ColumnHint("metric", "measured by iperf3") for name in measured}
    hints["bits_per_second"] = ColumnHint(
        "objective", "measured by iperf3", None, 0.7, "maximize", "the more is sent, the better"
    )
    hints["status"] = ColumnHint("status", "whether the run ended with a result")
    hints["timestamp"] = ColumnHint("finished_at", "when the run began: it says no end", sure=0.8)
    return DetectedExport("iperf3_json", "runs of iperf3", ("start", "intervals", "end"), hints)


EXPORTER = ExportFormat("iperf3_json", _recognise, _records)
