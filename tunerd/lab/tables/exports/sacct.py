"""Slurm's ``sacct -P`` and ``-p``: one row for a job, and one for each of its steps."""

import re

from tunerd.core.observation import Value
from tunerd.events.quantities import read_size
from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    ReadOptions,
    Reshape,
    Rows,
    TableHead,
    names,
)
from tunerd.lab.tables.exports.sacct_json import jobs_of_sacct
from tunerd.lab.tables.rows import SkippedRows, TableRow

__all__ = ["EXPORTER"]

MOST_OPEN = 1_000
"""Jobs whose steps may come mixed; sacct writes a job's steps right below it."""

_STEP = re.compile(
    r"(\d+(?:_(?:\d+|\[[^]]*\]))?(?:\+\d+)?)\.(batch|extern|interactive|\d+)(\+\d+)?"
)
_MEASURED = names("""
    Elapsed ElapsedRaw TotalCPU UserCPU SystemCPU CPUTime CPUTimeRAW AveCPU MinCPU MaxRSS
    AveRSS MaxVMSize AveVMSize MaxPages AvePages MaxDiskRead AveDiskRead MaxDiskWrite
    AveDiskWrite ConsumedEnergy ConsumedEnergyRaw AveCPUFreq Suspended Planned PlannedCPU
    PlannedCPURAW Reserved ResvCPU ResvCPURAW
""")
_CHOSEN = names("""
    NNodes AllocNodes ReqNodes NCPUS AllocCPUS ReqCPUS NTasks ReqMem Layout ReqCPUFreq
    ReqCPUFreqMin ReqCPUFreqMax ReqCPUFreqGov AllocGRES ReqGRES
""")
_INPUTS = ["Partition", "QOS", "Cluster", "Constraints", "Reservation", "AllocTRES", "ReqTRES"]
_LABELS = names("""
    JobName Account Group GID UID WCKey WCKeyID AssocID QOSID NodeList WorkDir Comment
    AdminComment SystemComment SubmitLine ExitCode DerivedExitCode Reason Flags BlockID
    Timelimit TimelimitRaw Priority JobIDRaw ReservationId ContainerID Container FailedNode
    Licenses McsLabel StdIn StdOut StdErr DBIndex
""")
_TIMES = ["Submit", "Eligible", "Start"]
_TIMES_OF_WORK = frozenset(("ElapsedRaw", "Elapsed", "CPUTimeRAW", "CPUTime"))
_OBJECTIVES = ("ElapsedRaw", "Elapsed", "CPUTimeRAW")


def _recognise(head: TableHead) -> DetectedExport | None:
    job = next(iter(head.among(("JobID", "JobIDRaw"))), None)
    own = head.among([*_MEASURED, *_CHOSEN, *_INPUTS, *_LABELS, *_TIMES, "End", "State"])
    if (
        job is None
        or len(own) < 3
        or not head.among(("State", "Elapsed", "ElapsedRaw", "ExitCode"))
    ):
        return None
    ids = [str(value) for value in head.values(job)]
    if not any(re.match(r"\d", id_) for id_ in ids):
        return None
    hints = {
        name: ColumnHint("ignored", "says nothing about how a job was configured") for name in own
    }
    hints |= {name: ColumnHint("metric", "measured by Slurm") for name in head.among(_MEASURED)}
    hints |= {
        name: ColumnHint("parameter", "was asked of Slurm", sure=0.7)
        for name in head.among(_CHOSEN)
    }
    hints |= {name: ColumnHint(INPUT, "was asked of Slurm") for name in head.among(_INPUTS)}
    hints |= {
        name: ColumnHint("label", "names or describes the job") for name in head.among(_LABELS)
    }
    hints |= {name: ColumnHint("time", "another time") for name in head.among(_TIMES)}
    hints |= {
        n: ColumnHint("label", "what a job used, as text") for n in head.starting("TRESUsage")
    }
    for columns, role, why in (
        (("JobID", "JobIDRaw"), "job_id", "names the job"),
        (("State",), "status", "how the job ended"),
        (("End", "Start", "Submit"), "finished_at", "when the job ended"),
        (("User",), "user", "says whose job it was"),
    ):
        if there := head.among(columns):
            late = "" if there[0] in ("End", "State", "User", job) else ": the table has no end"
            hints[there[0]] = ColumnHint(
                role, why if not late else f"a time{late}", sure=0.8 if late else 0.95
            )
    if objective := head.among(_OBJECTIVES)[:1]:
        hints[objective[0]] = ColumnHint(
            "objective", "how long a job took", sure=0.6, goal="minimize", goal_why="it is a time"
        )
    steps = any(map(_STEP.fullmatch, ids)) and not all(map(_STEP.fullmatch, ids))
    notes: list[str] = []
    if steps:
        notes.append("steps (.batch, .extern, .0) are joined into their jobs")
    if "State" in head.columns and objective:
        what = f"{objective[0]} counts for completed jobs alone"
        notes.append(f"{what}: others did not do their work")
    return DetectedExport(
        "sacct",
        "jobs of Slurm's sacct",
        (job, *[name for name in own if name != job][:3]),
        hints,
        reshape=_reshaped(job, steps),
        notes=tuple(notes),
    )


def _reshaped(job: str, steps: bool) -> Reshape:
    def reshape(rows: Rows, not_jobs: SkippedRows, reading: ReadOptions) -> Rows:  # noqa: ARG001
        for row in _joined(rows, job, not_jobs) if steps else rows:
            yield _without_work(row) if isinstance(row, TableRow) else row

    return reshape


def _joined(rows: Rows, job: str, not_jobs: SkippedRows) -> Rows:
    """Jobs with what their steps alone know."""
    open_: dict[str, TableRow] = {}
    for row in rows:
        if not isinstance(row, TableRow):
            yield row
            continue
        name = str(row.values.get(job))
        step = _STEP.fullmatch(name)
        if step is None:
            if name in open_:  # requeued: another run of the same job
                yield open_.pop(name)
            open_[name] = row
            if len(open_) > MOST_OPEN:
                yield open_.pop(next(iter(open_)))
        elif step[1] in open_:
            not_jobs.add("a step, joined into its job")
            open_[step[1]] = _with_step(open_[step[1]], row)
        else:
            not_jobs.add("a step whose job is not in the table")
    yield from open_.values()


def _without_work(row: TableRow) -> TableRow:
    """A job without its time where it did not do its work: a crash in a second is not fast."""
    state = str(row.values.get("State") or "COMPLETED")
    if state.startswith("COMPLETED"):
        return row
    return TableRow(row.number, {**row.values, **dict.fromkeys(_TIMES_OF_WORK & set(row.values))})


def _with_step(job: TableRow, step: TableRow) -> TableRow:
    values = dict(job.values)
    for name, value in step.values.items():
        if value is None or name in ("JobID", "JobIDRaw", "JobName"):
            continue
        if values.get(name) is None or (
            name.startswith("Max") and _size(value) > _size(values[name])
        ):
            values[name] = value
    if values.get("State") == "FAILED" and step.values.get("State") == "OUT_OF_MEMORY":
        values["State"] = "OUT_OF_MEMORY"  # the job's own state keeps the exit code alone
    return TableRow(job.number, values)


def _size(value: Value) -> float:
    """A size as sacct writes it (3532K, 1.5G), to be compared; -1 for none."""
    try:
        return float(read_size(str(value)))
    except ValueError:
        return -1.0


EXPORTER = ExportFormat("sacct", _recognise, jobs_of_sacct)
