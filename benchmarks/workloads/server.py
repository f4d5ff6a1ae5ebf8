"""The process that has torch imported and forks the ranks of each run: a line of JSON in, one out.

It never runs an operation itself, so that it has no threads when it forks. What a run gets is
limited: its time, and the memory that it may have beyond what torch takes anyway (``RLIMIT_DATA``,
shared evenly by its ranks). While a run lasts, the processor time of everybody is compared with
that of the run: what others used is the run's ``foreign_utilization``.
"""

import ctypes
import json
import os
import re
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.workloads.machine import busy_s
from benchmarks.workloads.training import RANKS, train

__all__ = ["main"]

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MEMORY = re.compile(
    "can(no|')t allocate memory|not enough memory|bad_alloc|out of memory|MemoryError"
    "|Resource temporarily unavailable|could not create a (primitive|memory)",
    re.IGNORECASE,
)
"""What torch, C++, Python, oneDNN and those that start threads say for want of memory."""
_libc = ctypes.CDLL(None, use_errno=True)

Outcome = dict[str, Any]


def main() -> None:
    """Answer jobs until standard input ends."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # else gloo asks what the machine's name resolves to
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


def run(job: dict[str, Any]) -> Outcome:
    """One run, all of it: ``status``, ``reason``, what was measured, ``foreign_utilization``."""
    began, busy, own = time.monotonic(), busy_s(), _own_s()
    with tempfile.TemporaryDirectory(prefix="tunerd-measure-") as folder:
        outcome = _run(job, Path(folder))
    took = time.monotonic() - began
    foreign = (busy_s() - busy) - (_own_s() - own)
    share = max(0.0, foreign / took / (os.cpu_count() or 1))
    return {**outcome, "wall_time_s": round(took, 3), "foreign_utilization": round(share, 4)}


def _run(job: dict[str, Any], folder: Path) -> Outcome:
    ranks = range(RANKS[job["config"]["parallelism"]])
    deadline = job["deadline"] = time.monotonic() + job["limit_s"]
    pids = [_fork(job, rank, folder) for rank in ranks]
    in_time = _wait(pids, folder, deadline)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    ends = _reaped()
    outcomes = [_outcome(folder, rank, ends.get(pid, 0)) for rank, pid in enumerate(pids)]
    if not in_time:
        outcomes.append({"status": "timeout", "reason": f"over {job['limit_s']:g} s"})
    # One rank says what ended the run; the other was killed, or says that it lost its partner.
    for status in ("out_of_memory", "timeout"):
        for outcome in outcomes:
            if outcome["status"] == status:
                return outcome
    bad = [outcome for outcome in outcomes if outcome["status"] != "succeeded"]
    if bad:
        return max(bad, key=lambda outcome: len(outcome["reason"]))
    peak = sum(outcome["peak_memory_mib"] for outcome in outcomes)
    return {**outcomes[0], "peak_memory_mib": round(peak, 1)}


def _fork(job: dict[str, Any], rank: int, folder: Path) -> int:
    pid = os.fork()
    if pid == 0:
        _be_rank(job, rank, folder)
    with suppress(OSError):
        os.setpgid(pid, pid)
    return pid


def _be_rank(job: dict[str, Any], rank: int, folder: Path) -> NoReturn:
    """What a forked process does; it never comes back."""
    with suppress(OSError):
        os.setpgid(0, 0)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with (folder / f"{rank}.log").open("wb") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    before = _memory()
    share = job["memory_mib"] * 2**20 // RANKS[job["config"]["parallelism"]]
    limit = before["VmData"] + share
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        outcome: Outcome = {"status": "succeeded", "reason": "", **train(job, rank, folder)}
        after = _memory()
        # Pages of libraries that a run is the first to touch are not its own.
        code = after["RssFile"] - before["RssFile"]
        peak = (after["VmHWM"] - before["VmRSS"] - code) / 2**20
        outcome["peak_memory_mib"] = max(0.0, peak)
    except Exception as error:
        traceback.print_exc()
        outcome = _failure(f"{type(error).__name__}: {error}", job)
    (folder / f"{rank}.part").write_text(json.dumps(outcome))
    (folder / f"{rank}.part").rename(folder / f"{rank}.json")
    os._exit(0 if outcome["status"] == "succeeded" else 1)


def _failure(text: str, job: dict[str, Any]) -> Outcome:
    if text.startswith("TimeoutError"):
        return {"status": "timeout", "reason": f"it would take over {job['limit_s']:g} s"}
    if MEMORY.search(text):
        return {"status": "out_of_memory", "reason": f"over {job['memory_mib']} MiB"}
    return {"status": "failed", "reason": " ".join(text.split())[:120]}


def _wait(pids: Sequence[int], folder: Path, deadline: float) -> bool:
    """Wait for the ranks, until one has failed or time is up; whether it was not."""
    waiting = {os.pidfd_open(pid): rank for rank, pid in enumerate(pids)}
    try:
        while waiting:
            left = deadline - time.monotonic()
            ended, _, _ = select.select(list(waiting), [], [], max(left, 0.0))
            if not ended:
                return False
            for file in ended:
                rank = waiting.pop(file)
                os.close(file)
                if _outcome(folder, rank)["status"] != "succeeded":
                    return True
        return True
    finally:
        for file in waiting:
            os.close(file)


def _reaped() -> dict[int, int]:
    """How each process ended; loaders' workers that are left come to this process."""
    ends: dict[int, int] = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, 0)
            ends[pid] = os.waitstatus_to_exitcode(status)
    return ends


def _outcome(folder: Path, rank: int, end: int = 0) -> Outcome:
    """What a rank said; else what its log tells, or the signal that ended it."""
    with suppress(FileNotFoundError):
        outcome: Outcome = json.loads((folder / f"{rank}.json").read_text())
        return outcome
    log = folder / f"{rank}.log"
    if log.exists() and MEMORY.search(log.read_bytes().decode("utf-8", "replace")):
        return {"status": "out_of_memory", "reason": "it was aborted for want of memory"}
    if end in (0, -signal.SIGKILL):
        return {"status": "failed", "reason": ""}
    how = f"signal {-end}" if end < 0 else f"exit code {end}"
    return {"status": "failed", "reason": f"it ended with {how}"}


def _memory() -> dict[str, int]:
    """Of this process, in bytes, by the kernel's names."""
    lines = Path("/proc/self/status").read_text().splitlines()
    pairs = (line.split(":") for line in lines if line.startswith(("Vm", "Rss")))
    return {name: int(value.split()[0]) * 1024 for name, value in pairs}


def _own_s() -> float:
    """Processor time of this process and of all that it has waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    main()
