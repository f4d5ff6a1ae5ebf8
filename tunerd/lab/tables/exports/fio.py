"""Results of fio, as ``fio --output-format=json`` (or ``json+``) writes them.

A document is a run of fio; each of its jobs is one here. What it measured stands apart for reads,
writes and trims: what a job did of these together is its ``iops`` and ``bandwidth``.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tunerd.lab.tables.exports.base import (
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
    names,
)

__all__ = ["EXPORTER"]

_DIRECTIONS = ("read", "write", "trim")
_OPTION = "option."
_CONTEXT = names("""
    rw readwrite rwmixread rwmixwrite size filesize io_size filename directory
    random_distribution percentage_random buffer_compress_percentage dedupe_percentage rate
    rate_iops thinktime fsync fdatasync
""")
_NOTHING = names("""
    name description runtime timeout time_based ramp_time loops group_reporting randrepeat
    allrandrepeat randseed output output-format output_format status-interval write_bw_log
    write_lat_log write_iops_log log_avg_msec eta minimal thread stonewall wait_for_previous
    new_group startdelay unlink create_on_open disk_util lat_percentiles clat_percentiles
    percentile_list
""")
_MEASURED = names("iops bandwidth_bytes_s latency_mean_s latency_p99_s usr_cpu sys_cpu")
_SIZES = names("bs blocksize")


def _records(document: Any) -> Iterable[Mapping[str, Any]] | None:
    runs = document if isinstance(document, list) else [document]
    if not runs or not all(_is_run(run) for run in runs):
        return None
    return [job for run in runs for job in _jobs(run)]


def _is_run(run: Any) -> bool:
    return isinstance(run, dict) and "fio version" in run and isinstance(_listed(run), list)


def _listed(run: Mapping[str, Any]) -> Any:
    """Its jobs; of a server, what its clients did."""
    return run.get("jobs", run.get("client_stats"))


def _jobs(run: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    shared = _object(run.get("global options"))
    for job in _listed(run):
        if not isinstance(job, dict) or job.get("jobname") == "All clients":
            continue  # the sum of the others
        options = shared | _object(job.get("job options"))
        row = {f"{_OPTION}{name}": value for name, value in options.items()}
        row |= {"jobname": job.get("jobname"), "fio_version": run["fio version"]}
        row |= {name: job[name] for name in ("hostname",) if name in job}
        failed = job.get("error", 0) != 0
        status = "failed" if failed else "succeeded"
        measured = {} if failed else _measured(job)
        yield {**row, **measured, "status": status, "timestamp": run.get("timestamp")}


def _measured(job: Mapping[str, Any]) -> dict[str, float]:
    """What a job did in all, and how long one of its requests took."""
    done = [part for name in _DIRECTIONS if _number(part := _object(job.get(name)), "iops")]
    measured = {
        "iops": sum(_number(part, "iops") for part in done),
        # Before fio 3 there was `bw` alone, in KiB.
        "bandwidth_bytes_s": sum(
            _number(part, "bw_bytes") or 1024 * _number(part, "bw") for part in done
        ),
    }
    measured |= {name: _number(job, name) for name in ("usr_cpu", "sys_cpu") if name in job}
    if len(done) == 1:  # of several nobody can say it together
        measured |= _latency(done[0])
    return measured


def _latency(part: Mapping[str, Any]) -> dict[str, float]:
    """Mean and 99th percentile in seconds, where this version says them."""
    latency: dict[str, float] = {}
    for unit, seconds in (("ns", 1e-9), ("us", 1e-6), ("", 1e-6)):
        end = f"_{unit}" if unit else ""
        whole, completing = _object(part.get(f"lat{end}")), _object(part.get(f"clat{end}"))
        if mean := _number(whole, "mean"):
            latency.setdefault("latency_mean_s", mean * seconds)
        if late := _number(_object(completing.get("percentile")), "99.000000"):
            latency.setdefault("latency_p99_s", late * seconds)
    return latency


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(part: Mapping[str, Any], name: str) -> float:
    value = part.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _recognise(head: TableHead) -> DetectedExport | None:
    if not head.has("jobname", "fio_version", "iops", "bandwidth_bytes_s"):
        return None
    hints = {column: _option(column[len(_OPTION) :]) for column in head.starting(_OPTION)}
    hints |= {name: ColumnHint("metric", "measured") for name in head.among(_MEASURED)}
    sizes = {str(value) for name in _SIZES for value in head.values(f"{_OPTION}{name}")}
    objective, why = (
        ("bandwidth_bytes_s", "block sizes differ, so that requests are not alike")
        if len(sizes) > 1
        else ("iops", "all requests are of one size")
    )
    hints[objective] = ColumnHint(
        "objective", why, None, 0.7, "maximize", "the more is done in a second, the better"
    )
    hints["jobname"] = ColumnHint("label", "what somebody called the job")
    hints["fio_version"] = ColumnHint("label", "who measured")
    hints |= {name: ColumnHint("context", "where it ran") for name in head.among(("hostname",))}
    hints |= {
        name: ColumnHint("finished_at", "when fio wrote it") for name in head.among(("timestamp",))
    }
    marks = ("fio version", "jobs", "job options")
    notes = ("iops and bandwidth are of reads, writes and trims together",)
    return DetectedExport("fio", "results of fio", marks, hints, notes=notes)


def _option(name: str) -> ColumnHint:
    if name in _NOTHING:
        return ColumnHint("ignored", "how it was measured", name)
    if name in _CONTEXT:
        return ColumnHint("context", "what was read and written", name)
    if name in _SIZES:
        return ColumnHint("context", "most programs cannot change it", name, 0.4)
    return ColumnHint("parameter", "an option of fio", name)


EXPORTER = ExportFormat("fio", _recognise, _records)
