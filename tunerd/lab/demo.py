"""The demo: a daemon and a simulated cluster, separate processes over a real stream.

It shows what tunerd is for in two minutes, and leaves a folder behind in which everything can be
looked at: settings, study, stream, store, logs, the plot.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np

from tunerd.client import Recommendations
from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Value
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.errors import DemoError
from tunerd.lab.simulation.shipped import demo_contexts, shipped_study
from tunerd.lab.simulation.simulator import CostSimulator, simulator_for
from tunerd.lab.simulation.sweep import SweepResult, hand_sweep, random_search

__all__ = ["DemoProgress", "DemoResult", "DemoRun", "in_one_sentence", "plot"]

LATELY = 50
READY_S = 30.0
SETTLE_S = 20.0
"""Longest wait for the last events to be learned and told."""


@dataclass
class DemoProgress:
    """What the terminal shows while jobs run."""

    jobs: int
    done: int = 0
    failed: int = 0
    """Jobs that did not run: out of memory, or a guard was broken."""
    failed_lately: int = 0
    """Of the last :data:`LATELY`."""
    baseline: float = float("nan")
    best: float = float("nan")
    """Noise-free objective of the incumbent, of the baseline while there is none."""
    tau: float | None = None
    """Rank correlation of the last predictions, each made before its job was learned."""
    following: int = 0
    """Jobs that ran a recommended candidate or the incumbent."""
    curve: list[float] = field(default_factory=list)
    gain: Callable[[float], float] = lambda _: float("nan")

    failures: deque[bool] = field(default_factory=lambda: deque(maxlen=LATELY))

    @property
    def gained(self) -> float:
        """Relative gain of the best over the baseline."""
        return self.gain(self.best)


@dataclass(frozen=True)
class DemoResult:
    """What came out. Objectives are free of noise."""

    folder: Path
    study: str
    metric: str
    unit: str
    seed: int
    jobs: int
    seconds: float
    baseline: float
    tunerd: float
    random: float
    gain_over_baseline: float
    gain_over_random: float
    kendall_tau: float | None
    failed: int
    """Jobs that did not run while tunerd was followed."""
    failed_lately: int
    """Of the last :data:`LATELY`."""
    random_failed: int
    """Of as many jobs of random search."""
    sweep_jobs: int
    """Of the hand sweep that the baseline comes from."""
    sweep_failed: int
    n_gpus: int
    """That each job runs on."""
    config: Mapping[str, Value]
    tunerd_curve: FloatArray
    random_curve: FloatArray

    def dump(self) -> dict[str, Any]:
        """For ``result.json``."""
        fields = {k: v for k, v in vars(self).items() if not k.endswith("_curve")}
        return fields | {"folder": str(self.folder), "config": dict(self.config)}


@dataclass
class DemoRun:
    """One run. ``bootstrap`` names a Kafka broker; without it the stream is a folder."""

    folder: Path
    study_name: str = "ads-fsdp"
    jobs: int = 300
    seed: int = 1
    rate: float = 4.0
    """Jobs that end per second of real time; slow enough for the tuner to answer most."""
    bootstrap: str | None = None
    port: int = 0
    """Of the daemon's HTTP, with its pages; 0 for any that is free."""

    def __post_init__(self) -> None:
        self.study: Study = parse_study(shipped_study(self.study_name), f"{self.study_name}.toml")
        self.context = self.study.clean_context(demo_contexts(self.study_name)[0])
        self.key = self.study.context_key(self.context)
        self.simulator: CostSimulator = simulator_for(self.study)
        # Topics of its own: a broker may have seen a demo before.
        self.prefix = "tunerd" if self.bootstrap is None else f"tunerd-demo-{os.getpid()}"

    def run(self, show: Callable[[DemoProgress], None]) -> DemoResult:
        """Run it; ``show`` is called after every job.

        Raises:
            DemoError: the daemon or the cluster failed.
        """
        started = time.monotonic()
        self._write_files()
        progress = DemoProgress(self.jobs, gain=self._gain_over(self._baseline()))
        progress.baseline = progress.best = self._baseline()
        with self._process(
            "daemon", "run", "--settings", str(self.folder / "tunerd.toml")
        ) as daemon:
            self._wait_until_ready(daemon)
            recommendations = self._follow()
            try:
                with self._process("cluster", *self._cluster_arguments(), pipe=True) as cluster:
                    assert cluster.stdout is not None
                    for line in cluster.stdout:
                        self._count(progress, json.loads(line), recommendations)
                        show(progress)
                    self._check(cluster, "cluster")
                self._settle(progress, recommendations, daemon)
                show(progress)
                config = self._incumbent(recommendations)
            finally:
                recommendations.close()
        random = random_search(self.simulator, self.context, self.jobs, self.seed)
        result = self._result(progress, config, random, started)
        (self.folder / "result.json").write_text(json.dumps(result.dump(), indent=2) + "\n")
        return result

    @property
    def url(self) -> str:
        """Where its page is, while it runs."""
        return f"http://127.0.0.1:{self.port}/"

    # -- what it runs -----------------------------------------------------------------------

    def _write_files(self) -> None:
        studies = self.folder / "studies"
        studies.mkdir(parents=True)
        (studies / f"{self.study_name}.toml").write_text(self.study.text)
        if not self.port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = int(free.getsockname()[1])
        stream = 'kind = "jsonl"\nfolder = "stream"'
        if self.bootstrap is not None:
            stream = f'kind = "kafka"\n\n[stream.kafka]\nbootstrap_servers = "{self.bootstrap}"'
        (self.folder / "tunerd.toml").write_text(
            f'name = "{self.prefix}"\ndata_dir = "data"\nstudies = "studies"\n\n'
            f"[stream]\n{stream}\n\n"
            f'[topics]\njobs = "{self.prefix}.jobs"\n'
            f'requests = "{self.prefix}.requests"\n'
            f'recommendations = "{self.prefix}.recommendations"\n'
            f'rejected = "{self.prefix}.rejected"\n\n'
            f"[http]\nport = {self.port}\n"
        )

    def _cluster_arguments(self) -> list[str]:
        where = (
            ["--bootstrap", self.bootstrap] if self.bootstrap else ["--stream-folder", self._stream]
        )
        context = ",".join(f"{name}={value}" for name, value in self.context.items())
        return [
            "cluster",
            str(self.folder / "studies" / f"{self.study_name}.toml"),
            *where,
            *("--jobs-topic", f"{self.prefix}.jobs"),
            *("--recommendations-topic", f"{self.prefix}.recommendations"),
            *("--jobs", str(self.jobs)),
            *("--seed", str(self.seed)),
            *("--rate", str(self.rate)),
            *("--context", context),
            "--json",
        ]

    @property
    def _stream(self) -> str:
        return str(self.folder / "stream")

    @contextmanager
    def _process(
        self, name: str, *arguments: str, pipe: bool = False
    ) -> "Iterator[subprocess.Popen[str]]":
        """A process of ``tunerd`` whose log goes to a file; stopped in order at the end."""
        with self._log(name).open("w") as log:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", "tunerd", *arguments],
                stdout=subprocess.PIPE if pipe else log,
                stderr=log,
                text=True,
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(10)
                if process.poll() is None:
                    process.kill()
                    process.wait()
                if process.stdout is not None:
                    process.stdout.close()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _check(self, process: "subprocess.Popen[str]", name: str) -> None:
        if process.wait() != 0:
            raise DemoError(
                f"the {name} ended with status {process.returncode}; see {self._log(name)}"
            )

    def _wait_until_ready(self, daemon: "subprocess.Popen[str]") -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if daemon.poll() is not None:
                self._check(daemon, "daemon")
            with suppress(URLError, OSError), self._get("/readyz"):
                return
            time.sleep(0.1)
        raise DemoError(f"the daemon was not ready after {READY_S:g} s; see {self._log('daemon')}")

    def _get(self, path: str) -> IO[bytes]:
        opened: IO[bytes] = urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2)
        return opened

    # -- what it sees -----------------------------------------------------------------------

    def _follow(self) -> Recommendations:
        topic = f"{self.prefix}.recommendations"
        if self.bootstrap is not None:
            return Recommendations.follow_kafka(self.bootstrap, topic)
        return Recommendations.follow_jsonl(self._stream, topic)

    def _baseline(self) -> float:
        config = self.study.baseline(self.context)
        assert config is not None  # shipped studies have one; a test sees to it
        return self._expected(config)

    def _expected(self, config: Mapping[str, Value]) -> float:
        return float(self.simulator.expected(self.context, [config])[0])

    def _gain_over(self, reference: float) -> Callable[[float], float]:
        metric = self.study.objective.metric

        def gain(value: float) -> float:
            score, base = self.study.score({metric: value}), self.study.score({metric: reference})
            return float("nan") if score is None or base is None else self.study.gain(score, base)

        return gain

    def _count(
        self, progress: DemoProgress, job: Mapping[str, Any], recommendations: Recommendations
    ) -> None:
        progress.done += 1
        progress.failures.append(job["expected"] is None)
        progress.failed += progress.failures[-1]
        progress.failed_lately = sum(progress.failures)
        progress.following += job["candidate_id"] is not None or job["kind"] == "incumbent"
        recommendations.poll()
        config = self._incumbent(recommendations)
        progress.best = progress.baseline if config is None else self._expected(config)
        progress.curve.append(progress.best)
        if progress.done % 10 == 0:
            progress.tau = self._tau()

    def _incumbent(self, recommendations: Recommendations) -> dict[str, Value] | None:
        message = recommendations.find(self.key)
        return message["incumbent"]["config"] if message and message["incumbent"] else None

    def _tau(self) -> float | None:
        return self._metric("tunerd_prediction_kendall_tau")

    def _metric(self, name: str) -> float | None:
        with suppress(URLError, OSError), self._get("/metrics") as page:
            for line in page.read().decode().splitlines():
                if line.startswith(name + "{") and f'study="{self.study.name}"' in line:
                    return float(line.rpartition(" ")[2])
        return None

    def _settle(
        self,
        progress: DemoProgress,
        recommendations: Recommendations,
        daemon: "subprocess.Popen[str]",
    ) -> None:
        """Wait until every job is learned and the last word is said."""
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline and daemon.poll() is None:
            if (self._metric("tunerd_learned_sequence") or 0) >= self.jobs:
                break
            time.sleep(0.2)
        quiet_until = time.monotonic() + 1.5
        while time.monotonic() < quiet_until:
            recommendations.poll(0.1)
            time.sleep(0.05)
        progress.tau = self._tau()
        config = self._incumbent(recommendations)
        progress.best = progress.baseline if config is None else self._expected(config)
        progress.curve.append(progress.best)

    def _result(
        self,
        progress: DemoProgress,
        config: Mapping[str, Value] | None,
        random: SweepResult,
        started: float,
    ) -> DemoResult:
        sweep = hand_sweep(self.simulator, self.context)
        return DemoResult(
            folder=self.folder,
            study=self.study.name,
            metric=self.study.objective.metric,
            unit=self.study.objective.unit,
            seed=self.seed,
            jobs=self.jobs,
            seconds=round(time.monotonic() - started, 1),
            baseline=progress.baseline,
            tunerd=progress.best,
            random=random.expected,
            gain_over_baseline=self._gain_over(progress.baseline)(progress.best),
            gain_over_random=self._gain_over(random.expected)(progress.best),
            kendall_tau=progress.tau,
            failed=progress.failed,
            failed_lately=progress.failed_lately,
            random_failed=random.failed,
            sweep_jobs=len(sweep.curve),
            sweep_failed=sweep.failed,
            n_gpus=int(self.context["n_gpus"] or 0),  # shipped contexts have it
            config=config or self.study.baseline(self.context) or {},
            tunerd_curve=np.array(progress.curve),
            random_curve=random.curve,
        )


def in_one_sentence(result: DemoResult) -> str:
    """What was won, against what, and at which cost, for who reads nothing else."""
    jobs, gain = result.jobs, result.gain_over_baseline
    people = f"what a person found in a sweep of {result.sweep_jobs} jobs"
    if not gain > 0:
        return (
            f"In {jobs} jobs tunerd found nothing that beats {people}; "
            f"{result.failed or 'none'} of the jobs failed while it looked."
        )
    more = round(gain * result.n_gpus)
    worth = f", worth {more} more of {result.n_gpus} GPUs," if more else ""
    return (
        f"In {jobs} jobs, and without a sweep, tunerd found a configuration that is {gain:.1%} "
        f"better than {people}{worth} and {abs(result.gain_over_random):.1%} "
        f"{'better' if result.gain_over_random >= 0 else 'worse'} than random search over as many "
        f"jobs; it cost {result.failed} jobs that did not run while it tried new values, where "
        f"random search lost {result.random_failed}."
    )


def plot(result: DemoResult, file: Path) -> None:
    """Draw how the best configuration improved with jobs, as a PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    jobs = np.arange(1, len(result.tunerd_curve) + 1)
    axes.plot(jobs, result.tunerd_curve, color="#1565c0", lw=2, label="tunerd: incumbent")
    axes.plot(
        np.arange(1, len(result.random_curve) + 1),
        result.random_curve,
        color="#ef6c00",
        lw=1.5,
        label="random search: best measured",
    )
    axes.axhline(result.baseline, color="#616161", ls="--", lw=1.2, label="baseline: hand sweep")
    axes.set_xlabel("jobs finished")
    axes.set_ylabel(f"{result.metric} ({result.unit}), without noise")
    axes.set_title(
        f"{result.study}: {result.gain_over_baseline:+.1%} over the baseline, "
        f"{result.gain_over_random:+.1%} over random search",
        fontsize=11,
    )
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.savefig(file, dpi=130)
    pyplot.close(figure)
