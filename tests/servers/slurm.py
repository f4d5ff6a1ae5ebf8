"""A real Slurm: munged, slurmctld and slurmd of one node, from Debian's packages, as root.

Everything is in one folder and on ports of its own; nothing of an installation on this machine is
read or written. There are no cgroups: processes are found by their parents.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.servers import MissingServerError, end, free_ports, tied, wait_until

__all__ = ["SlurmServer"]

CPUS = 8
START_TIMEOUT_S = 30.0
BUSY = frozenset({"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"})
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1,sched_interval=1,defer
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=2
MinJobAge=600
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class SlurmServer:
    """One node. ``settings`` are added to slurm.conf."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        missing = [one for one in ("munged", "slurmctld", "slurmd", "sbatch") if not _find(one)]
        if missing:
            raise MissingServerError(
                f"{', '.join(missing)} not found; on Debian, apt-get install slurm-wlm munge"
            )
        if os.geteuid() != 0:
            raise MissingServerError("slurmd starts jobs as their users, which takes root")
        self.folder = folder
        self.controller_log = folder / "slurmctld.log"
        controller_port, node_port = free_ports(2)
        host = socket.gethostname().partition(".")[0]
        text = CONFIG.format(
            folder=folder,
            host=host,
            controller_port=controller_port,
            node_port=node_port,
            cpus=CPUS,
        )
        text += "".join(f"{name}={value}\n" for name, value in (settings or {}).items())
        for one in (folder, folder / "state", folder / "spool"):
            one.mkdir(exist_ok=True, parents=True)
        (folder / "slurm.conf").write_text(text)
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        self._host = host
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all three and wait until the node takes jobs (about 3 s)."""
        folder = self.folder
        munge = [f"--{name}={folder}/munge.{name}" for name in ("socket", "pid-file", "log-file")]
        munge += [f"--key-file={folder}/munge.key", f"--seed-file={folder}/munge.seed"]
        self._spawn("munged", "--foreground", "--force", *munge)
        wait_until((folder / "munge.socket").exists, START_TIMEOUT_S, "munged starts")
        self.start_controller()
        self._spawn("slurmd", "-D", "-N", self._host)
        wait_until(self._idle, START_TIMEOUT_S, f"slurmd takes jobs ({folder}/slurmd.log)")

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self._spawn("slurmctld", "-D")
        wait_until(self._answers, START_TIMEOUT_S, f"slurmctld starts ({self.controller_log})")

    def kill_controller(self) -> None:
        """End slurmctld as a crash would."""
        end(self._processes.pop("slurmctld"), signal.SIGKILL)

    def stop(self) -> None:
        """End everything, jobs too."""
        self.run("scancel", "--user=root", check=False)
        for name in ("slurmd", "slurmctld", "munged"):
            if name in self._processes:
                end(self._processes.pop(name), signal.SIGTERM)

    def run(
        self, *command: object, check: bool = True, env: Mapping[str, str] | None = None
    ) -> str:
        """Run one of Slurm's programs; returns what it printed."""
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "TUNERD_"))}
        done = subprocess.run(
            [str(one) for one in command],
            env={**environ, "SLURM_CONF": str(self.folder / "slurm.conf"), **(env or {})},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{command}: {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def sbatch(self, *arguments: object, env: Mapping[str, str] | None = None) -> str:
        """Submit a job; returns its id."""
        return self.run("sbatch", "--parsable", *arguments, env=env).strip().splitlines()[-1]

    def states(self) -> dict[str, str]:
        """The state of each job, by its id."""
        said = self.run("squeue", "--noheader", "--states=all", "--array", "--format=%i %T")
        return dict(line.split() for line in said.splitlines())

    def wait_for_all(self, timeout_s: float) -> None:
        """Wait until no job is pending or running."""
        self.wait_for(self.states(), timeout_s)

    def wait_for(self, jobs: Iterable[str], timeout_s: float) -> None:
        """Wait until these have ended."""
        waiting, deadline = set(jobs), time.monotonic() + timeout_s
        while waiting:
            states = self.states()
            waiting = {job for job in waiting if states[job] in BUSY}
            if time.monotonic() > deadline:
                raise TimeoutError(f"jobs are still there: {states} ({self.controller_log})")
            time.sleep(0.2)

    def wait_until_saved(self) -> None:
        """Wait until slurmctld has written down what it knows of jobs, which it does every 5 s.
        One that is killed before runs jobs again that ran already."""
        began = time.time()
        saved = self.folder / "state" / "job_state"
        self.run("scontrol", "update", "partitionname=main", "state=up")
        wait_until(
            lambda: saved.exists() and saved.stat().st_mtime > began, 30, "slurmctld saves jobs"
        )

    def _spawn(self, name: str, *arguments: str) -> None:
        environ = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        with (self.folder / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                [*tied(), str(_find(name)), *arguments],
                env=environ,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def _answers(self) -> bool:
        return "UP" in self.run("scontrol", "ping", check=False)

    def _idle(self) -> bool:
        return "idle" in self.run("sinfo", "--noheader", "--format=%t", check=False)


def _find(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
