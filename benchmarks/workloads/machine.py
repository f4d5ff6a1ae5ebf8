"""This machine as a cluster: it runs trainings one after the other, none while others work.

:mod:`benchmarks.workloads.server` does the work, in a process of its own: whoever uses this module
needs no torch, and may have threads.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tunerd.core.observation import Value

__all__ = [
    "CONTEXTS",
    "FOREIGN",
    "STUDY",
    "Limits",
    "Machine",
    "Outcome",
    "alone",
    "busy_s",
    "machine",
]

STUDY = Path(__file__).parents[2] / "examples" / "training.toml"
_SIZES = {
    "convnet": ((8, 32), (16, 32), (8, 64)),
    "graphnet": ((32, 32), (64, 32), (32, 128)),
    "transformer": ((32, 32), (64, 32), (32, 128)),
    "recommender": ((8, 5_000), (32, 5_000), (8, 50_000)),
}
CONTEXTS: tuple[Mapping[str, Value], ...] = tuple(
    {"model": model, "width": _SIZES[model][at][0], "data_size": _SIZES[model][at][1]}
    for at in range(3)
    for model in _SIZES
)
FOREIGN = 0.07
"""Share of the machine's processor time that others may have used during a run."""
LOOK_S = 0.5
"""How long it is looked at what others do."""

Outcome = dict[str, Any]
"""``status``, ``reason``, what was measured, ``wall_time_s`` in all and ``foreign_utilization``."""


@dataclass(frozen=True)
class Limits:
    """What a run gets."""

    window_s: float = 0.6
    """Steps are counted for about so long, once warm."""
    limit_s: float = 4.0
    memory_mib: int = 128
    """Beyond what torch takes before anything runs; ranks share it."""
    tries: int = 4
    """Runs in all of one that others disturb."""
    patience_s: float = 30.0
    """After a disturbed run the next one waits for so long that others leave the machine alone."""


class Machine:
    """Made by :func:`machine`."""

    def __init__(self, process: "subprocess.Popen[str]", limits: Limits) -> None:
        self._process = process
        self.limits = limits
        self._disturbed = False

    def run(self, context: Mapping[str, Value], config: Mapping[str, Value]) -> Outcome:
        """One run, whatever others do meanwhile. Where they disturbed the one before, this one
        waits for them, but not forever.

        Raises RuntimeError when the process that runs it has died.
        """
        if self._disturbed:
            _wait_for_others(self.limits.patience_s)
        job = {"context": dict(context), "config": dict(config), **vars(self.limits)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(job), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"the process with torch ended with {self._process.wait()}")
        outcome: Outcome = json.loads(line)
        self._disturbed = not alone(outcome)
        return outcome

    def run_alone(self, context: Mapping[str, Value], config: Mapping[str, Value]) -> Outcome:
        """A run that others did not disturb: repeated while they did. Of these the
        least disturbed counts."""
        outcomes: list[Outcome] = []
        while len(outcomes) < self.limits.tries and not (outcomes and alone(outcomes[-1])):
            outcomes.append(self.run(context, config))
        return min(outcomes, key=lambda outcome: float(outcome["foreign_utilization"]))


def _wait_for_others(patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        before = busy_s()
        time.sleep(LOOK_S)
        if (busy_s() - before) / LOOK_S / (os.cpu_count() or 1) <= FOREIGN:
            return


def busy_s() -> float:
    """Processor time that everybody has used on this machine, that of its host included."""
    with Path("/proc/stat").open() as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def alone(outcome: Mapping[str, Any]) -> bool:
    """Whether others used next to nothing of the machine during this run."""
    return float(outcome["foreign_utilization"]) <= FOREIGN


def _small_stacks() -> None:
    """A thread's stack counts as memory of its run, whether it is used or not."""
    resource.setrlimit(resource.RLIMIT_STACK, (2**20, resource.getrlimit(resource.RLIMIT_STACK)[1]))


@contextmanager
def machine(limits: Limits) -> Iterator[Machine]:
    """Start the process with torch, and end it afterwards.

    Raises ModuleNotFoundError that says what to install, where there is no torch.
    """
    if find_spec("torch") is None:
        raise ModuleNotFoundError(
            "no torch here: `make peers`; without CUDA see docs/operations.md"
        )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.workloads.server"],
        cwd=STUDY.parents[1],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_small_stacks,
        start_new_session=True,  # Ctrl-C is for the program that asks; this one ends with it
    ) as process:
        yield Machine(process, limits)
        assert process.stdin is not None
        process.stdin.close()
