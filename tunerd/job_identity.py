"""Which job this process is, as schedulers and launchers say it in the environment."""

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

__all__ = ["attempt_of", "boot_id", "job_id_of", "rank_of", "scheduler_job_id", "user_name"]


def job_id_of(environ: Mapping[str, str]) -> str:
    """The scheduler's name of this step, where there is one; its ranks must choose alike.

    ``TUNERD_JOB_ID`` is what who launched it says: ``tunerd webhook``, or a script of one's own.
    """
    if launched := environ.get("TUNERD_JOB_ID"):
        return launched[:256]
    if slurm := environ.get("SLURM_JOB_ID"):
        if step := environ.get("SLURM_STEP_ID"):
            return f"{slurm}.{step}"[:256]
        return f"{slurm}-{uuid4().hex[:8]}"[:256]
    if torchrun := environ.get("TORCHELASTIC_RUN_ID"):
        if torchrun == "none" and environ.get("GROUP_WORLD_SIZE", "1") == "1":
            # torchrun's default says nothing. On one node its ranks have the same parent.
            return f"torchrun-{(boot_id() or '')[:8]}-{os.getppid()}-{_started(os.getppid())}"
        return torchrun[:256]
    return uuid4().hex[:16]


def scheduler_job_id(environ: Mapping[str, str]) -> str:
    """The job as the scheduler's own records name it: all that a job ran is one job there."""
    if launched := environ.get("TUNERD_JOB_ID"):
        return launched[:256]
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    if array and task:
        return f"{array}_{task}"
    if het := environ.get("SLURM_HET_JOB_ID"):
        return f"{het}+{environ.get('SLURM_HET_JOB_OFFSET', '0')}"
    return environ.get("SLURM_JOB_ID") or job_id_of(environ)


def attempt_of(environ: Mapping[str, str]) -> int:
    """Counts restarts, from 1."""
    if environ.get("TUNERD_ATTEMPT", "").isdecimal() and int(environ["TUNERD_ATTEMPT"]) >= 1:
        return int(environ["TUNERD_ATTEMPT"])
    for name in ("SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"):
        if environ.get(name, "").isdecimal():
            return int(environ[name]) + 1
    return 1


def rank_of(environ: Mapping[str, str]) -> int:
    """Which of a job's processes this is: the first one reports."""
    ranks = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX")
    for name in ranks:
        if environ.get(name, "").isdecimal():
            return int(environ[name])
    return 0


def user_name() -> str | None:
    """Who runs this; a container's user without a name is told by number."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def boot_id() -> str | None:
    """The kernel's name for the time since it started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _started(pid: int) -> str:
    """When a process started, in the kernel's ticks since the boot."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
