"""Logs of trainings that nobody can change: what their lines say about speed, and how they ended.

A format is one :class:`LogFormat` and one entry of :data:`FORMATS`. Its pattern is looked for in
lines without colours; ``read`` says what a match means, in the units of the metrics' names.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from tunerd.exec.causes import NODE_FAILURE, OUT_OF_MEMORY, FailureCause

__all__ = ["FORMATS", "LogFormat", "LogReader", "LogSample"]

LONGEST_LINE = 1 << 14
"""Bytes of a line that are looked at."""
MOST_SAMPLES = 1 << 17
_LINE_END = re.compile(rb"[\r\n]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OUT_OF_MEMORY = re.compile("|".join(OUT_OF_MEMORY))
_NODE_FAILURE = re.compile("|".join(NODE_FAILURE))
_FAILED = re.compile(r"^(?:\[rank\d+\]: ?)?Traceback \(most recent call last\)|^srun: error: ")
_PREEMPTED = re.compile(r"slurmstepd: error: .* CANCELLED AT .* DUE TO (PREEMPTION|TIME LIMIT)")


@dataclass(frozen=True)
class LogSample:
    """What one line says."""

    step: int
    """The last of the steps that it is about."""
    speeds: Mapping[str, float]
    """Of which the middle one counts."""
    peaks: Mapping[str, float] = field(default_factory=dict)
    """Of which the largest counts."""


@dataclass(frozen=True)
class LogFormat:
    """A framework's lines of training."""

    about: str
    pattern: re.Pattern[str]
    read: Callable[[re.Match[str]], LogSample]
    finished: re.Pattern[str]
    """What it says when a training has come to its end."""


def _number(text: str) -> float:
    return float(text.replace(",", ""))


# megatron/training/training.py, training_log(): ' iteration {:8d}/{:8d} | consumed samples: …'
_MEGATRON = re.compile(
    r"iteration +(?P<step>\d+)/ *\d+ \|"
    r".*?elapsed time per iteration \(ms\): (?P<ms>[\d.]+)"
    r"(?:.*?throughput per GPU \(TFLOP/s/GPU\): (?P<tflops>[\d.]+))?"
    r"(?:.*?global batch size: +(?P<batch>\d+))?"
)


def _megatron(match: re.Match[str]) -> LogSample:
    per_second = 1000 / _number(match["ms"])
    speeds = {"steps_per_second": per_second}
    if match["batch"]:
        speeds["samples_per_second"] = per_second * int(match["batch"])
    if match["tflops"]:
        speeds["tflops_per_gpu"] = _number(match["tflops"])
    return LogSample(int(match["step"]), speeds)


# NeMo 2's ProgressPrinter: 'Training epoch 0, iteration 9/99 | … | train_step_timing in s: 1.5',
# and NeMo 1's progress bar: '… global_step=99.00, …, train_step_timing in s=3.130'.
_NEMO = re.compile(
    r"(?:Training epoch \d+, iteration \d+/\d+|Epoch \d+: )"
    r"(?:.*?global_batch_size: (?P<batch>\d+))?"
    r".*?global_step(?:: |=)(?P<step>[\d.]+)"
    r".*?train_step_timing in s(?:: |=)(?P<seconds>[\d.]+)"
)


def _nemo(match: re.Match[str]) -> LogSample:
    per_second = 1 / _number(match["seconds"])
    speeds = {"steps_per_second": per_second}
    if match["batch"]:
        speeds["samples_per_second"] = per_second * int(match["batch"])
    return LogSample(int(_number(match["step"])), speeds)


# torchtitan/components/metrics.py, MetricsProcessor.log(); "validate step" is another line.
_TORCHTITAN = re.compile(
    r"(?<!validate )step: *(?P<step>\d+) .*?memory: *(?P<gib>[\d.]+)GiB.*?tps: *(?P<tps>[\d,]+)"
    r"(?:.*?tflops: *(?P<tflops>[\d,.]+))?(?:.*?mfu: *(?P<mfu>[\d.]+)%)?"
)


def _torchtitan(match: re.Match[str]) -> LogSample:
    speeds = {"tokens_per_second_per_gpu": _number(match["tps"])}
    if match["tflops"]:
        speeds["tflops_per_gpu"] = _number(match["tflops"])
    if match["mfu"]:
        speeds["mfu"] = _number(match["mfu"]) / 100
    return LogSample(int(match["step"]), speeds, {"peak_memory_gib": _number(match["gib"])})


FORMATS: dict[str, LogFormat] = {
    "megatron": LogFormat(
        "Megatron-LM", _MEGATRON, _megatron, re.compile(r"\[after training is done\]")
    ),
    "nemo": LogFormat(
        "NeMo", _NEMO, _nemo, re.compile(r"`Trainer\.fit` stopped: `max_(?:steps|epochs|time)=")
    ),
    "torchtitan": LogFormat(
        "torchtitan", _TORCHTITAN, _torchtitan, re.compile(r"Training completed")
    ),
}


class LogReader:
    """Takes a log's lines, in order, and says what they come to."""

    def __init__(self, log_format: LogFormat, warmup_steps: int = 10) -> None:
        """Lines up to step ``warmup_steps`` are left out, but a training's last line never is: a
        log may say little."""
        self._format, self._warmup = log_format, warmup_steps
        self._samples: list[LogSample] = []
        self._every, self._seen = 1, 0
        self._peaks: dict[str, float] = {}
        self._early: LogSample | None = None
        self._first = self._last = 0
        self._cause: FailureCause | None = None
        self.finished = False
        """Whether the log says that the training has come to its end."""
        self._rest = b""

    def hear(self, data: bytes) -> None:
        """Some more of the log; a progress bar returns and never feeds."""
        *lines, rest = _LINE_END.split(data)
        if lines:
            lines[0] = self._rest + lines[0]
            for line in lines:
                self._take(line)
            self._rest = b""
        self._rest = (self._rest + rest)[:LONGEST_LINE]

    def end(self) -> None:
        """What came last had no newline."""
        self._take(self._rest)
        self._rest = b""

    def _take(self, raw: bytes) -> None:
        line = _COLOUR.sub("", raw[:LONGEST_LINE].decode(errors="replace"))
        match = self._format.pattern.search(line)
        if match is None:
            self._look_for_end(line)
            return
        try:
            sample = self._format.read(match)
        except (ValueError, ZeroDivisionError):
            return
        if sample.step <= self._last:  # it was started again, from a checkpoint
            self.finished, self._cause = False, None
        self._last = sample.step
        for name, value in sample.peaks.items():
            self._peaks[name] = max(value, self._peaks.get(name, value))
        if sample.step <= self._warmup:
            self._first, self._early = sample.step, sample
            return
        if self._seen % self._every == 0:
            self._samples.append(sample)
            if len(self._samples) >= MOST_SAMPLES:
                self._samples, self._every = self._samples[::2], self._every * 2
        self._seen += 1

    def _look_for_end(self, line: str) -> None:
        if self._format.finished.search(line):
            self.finished = True
        elif _OUT_OF_MEMORY.search(line):
            self._say("out_of_memory", line)
        elif _NODE_FAILURE.search(line):
            self._say("node_failure", line)
        elif stopped := _PREEMPTED.search(line):
            self._say("preempted" if stopped[1] == "PREEMPTION" else "timeout", line)
        elif _FAILED.search(line):
            self._say("failed", line)

    def _say(self, status: str, line: str) -> None:
        # A traceback comes first, and its last line says what it was.
        if self._cause is None or self._cause.status == "failed":
            self._cause = FailureCause(status, f"the log has: {line.strip()[:100]}")

    @property
    def metrics(self) -> dict[str, float]:
        """The middle of each speed over the lines, and peaks."""
        samples = self._samples or ([self._early] if self._early else [])
        names = dict.fromkeys(name for sample in samples for name in sample.speeds)
        speeds = {
            name: median(sample.speeds[name] for sample in samples if name in sample.speeds)
            for name in names
        }
        return speeds | self._peaks

    @property
    def labels(self) -> dict[str, int | str]:
        """What the speed rests on."""
        lines = self._seen or int(self._early is not None)
        if not lines:
            return {}
        steps = self._last - self._first if self._seen else 1
        return {"speed": f"median of {lines} lines", "steps": steps, "warmup_steps": self._first}

    @property
    def outcome(self) -> FailureCause:
        """How the training ended, as far as the log says. What it does not say is ``cancelled``,
        which says nothing about the configuration."""
        if self.finished and self._cause is None:
            return FailureCause("succeeded", "")
        return self._cause or FailureCause("cancelled", "the log does not say how it ended")
