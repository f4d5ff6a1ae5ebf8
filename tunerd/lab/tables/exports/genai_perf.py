"""NVIDIA's genai-perf and AIPerf: what their JSON says of a run, in the words of other serving
benchmarks."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["run_of"]

_NAMES = {
    "time_to_first_token": "ttft",
    "time_to_second_token": "ttst",
    "inter_token_latency": "itl",
    "time_per_output_token": "tpot",
    "request_latency": "e2el",
    "output_token_throughput": "output_throughput",
}
_STATISTICS = {"avg": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_SET = {"concurrency": "max_concurrency", "model": "model", "model_names": "model"}


def run_of(document: Any) -> Mapping[str, Any] | None:
    """The record of a run in a document that has each measurement with its unit; ``None`` for any
    other."""
    if not isinstance(document, dict):
        return None
    measured = {
        n: m for n, m in document.items() if isinstance(m, dict) and {"unit", "avg"} <= m.keys()
    }
    if not measured.keys() & _NAMES.keys():
        return None
    row: dict[str, Any] = {}
    _put_settings(document.get("input_config"), row)
    for name, measurement in measured.items():
        known = _NAMES.get(name, name)
        if "/" in str(measurement["unit"]) or "throughput" in name:
            row[known] = measurement["avg"]
            continue
        unit = f"_{measurement['unit']}" if str(measurement["unit"]).isalpha() else ""
        row |= {
            f"{shown}_{known}{unit}": measurement[part]
            for part, shown in _STATISTICS.items()
            if part in measurement
        }
    return row


def _put_settings(config: Any, row: dict[str, Any]) -> None:
    """What a run was started with, by the last part of its name, or by all of it where others end
    in the same; a list of one as what is in it."""
    leaves = list(_leaves(config, ()))
    ends = Counter(path[-1] for path, _ in leaves)
    for path, value in leaves:
        name = _SET.get(path[-1]) or (path[-1] if ends[path[-1]] == 1 else ".".join(path))
        single = isinstance(value, list) and len(value) == 1
        row.setdefault(f"option.{name}", value[0] if single else value)


def _leaves(part: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in part.items() if isinstance(part, dict) else ():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value
