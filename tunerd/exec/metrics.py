"""Metrics of a program: from what it prints, from a file that it appends to, from the clock.

``NAME=REGEX`` takes the number in the pattern's group from every line that matches.
``NAME:HOW=REGEX`` says which of many counts, ``NAME:HOW`` alone says it for the file. Without HOW
it is the median: a program's first steps are slower than the others, and one hiccup is no speed.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.exec.child import ChildExit
from tunerd.exec.output import BytesPattern, SampledValues

__all__ = ["MetricPattern", "collect", "from_clock", "parse_metrics"]

_SPEC = re.compile(r"([A-Za-z_][\w.]*)(?::(\w+))?(?:=(.*))?", re.DOTALL | re.ASCII)
MOST_FILE_BYTES = 64 << 20
LONGEST_LINE = 1 << 16
MOST_METRICS = 200
MOST_NAME = 256
MIB, GIB = 1 << 20, 1 << 30


@dataclass
class MetricPattern:
    """One ``--metric``."""

    name: str
    how: str
    numbers: SampledValues
    pattern: BytesPattern | None


def parse_metrics(texts: Sequence[str]) -> list[MetricPattern]:
    """What ``--metric`` said. Raises MisconfiguredError with every mistake."""
    patterns: list[MetricPattern] = []
    problems: list[ValidationProblem] = []
    for text in texts:
        spec = _SPEC.fullmatch(text)
        if spec is None or (spec[2] is None and spec[3] is None):
            problems.append(
                ValidationProblem("--metric", f"{text}: should be NAME=REGEX or NAME:HOW")
            )
            continue
        name, how, regex = spec[1], spec[2] or "median", spec[3]
        if not _known(how):
            ways = ", ".join([*_HOW, "p95"])
            problems.append(ValidationProblem("--metric", f"{text}: {how} should be one of {ways}"))
        if any(pattern.name == name for pattern in patterns):
            problems.append(ValidationProblem("--metric", f"{name} is given twice"))
        numbers = SampledValues()
        try:
            pattern = None if regex is None else _pattern(regex, numbers)
        except (re.error, ValueError) as error:
            problems.append(ValidationProblem("--metric", f"{text}: {error}"))
            continue
        patterns.append(MetricPattern(name, how, numbers, pattern))
    if problems:
        raise MisconfiguredError(problems)
    return patterns


def _pattern(regex: str, numbers: SampledValues) -> BytesPattern:
    groups = re.compile(regex.encode(), re.ASCII).groups
    if groups != 1:
        raise ValueError(f"has {groups} groups; put the number, and nothing else, into one: (...)")

    def found(match: re.Match[bytes]) -> None:
        number = _number(match[1])
        if number is not None:
            numbers.add(number)

    return BytesPattern(regex, found)


def _number(text: bytes | None) -> float | None:
    try:
        number = float((text or b"")[:64].replace(b",", b"") if text else b"x")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def collect(metrics: Sequence[MetricPattern], file: Path | None) -> dict[str, float]:
    """What was printed, and what the file of JSON lines has."""
    how = {metric.name: metric.how for metric in metrics}
    collected = {} if file is None else _from_file(file)
    for metric in metrics:
        if metric.numbers:
            collected[metric.name] = metric.numbers
    return {name: _value(how.get(name, "median"), numbers) for name, numbers in collected.items()}


def from_clock(ended: ChildExit, *, whole: bool) -> dict[str, float]:
    """What the clock and the kernel say. Times only of a ``whole`` run: a program that fails at
    once is not fast."""
    metrics = {
        "peak_memory_mib": round(ended.peak_bytes / MIB, 3),
        "peak_memory_gib": round(ended.peak_bytes / GIB, 6),
    }
    if whole:
        metrics |= {"wall_s": round(ended.wall_s, 6), "cpu_s": round(ended.cpu_s, 6)}
    return metrics


def _from_file(file: Path) -> dict[str, SampledValues]:
    values: dict[str, SampledValues] = {}
    try:
        opened = file.open("rb")
    except OSError:
        return values
    with opened:
        read = 0
        while (line := opened.readline(LONGEST_LINE)) and read < MOST_FILE_BYTES:
            read += len(line)
            for name, value in _numbers_in(line):
                if name in values or len(values) < MOST_METRICS:
                    values.setdefault(name, SampledValues()).add(value)
    return values


def _numbers_in(line: bytes) -> list[tuple[str, float]]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return []
    if not isinstance(record, dict):
        return []
    return [
        (name, float(value))
        for name, value in record.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 1e300  # an integer may have any size; NaN and infinities are not less
        and 0 < len(name) <= MOST_NAME
    ]


# -- one of many ------------------------------------------------------------------------------

_HOW: dict[str, Callable[[list[float]], float]] = {
    "median": lambda values: _quantile(values, 0.5),
    "mean": lambda values: math.fsum(values) / len(values),
    "min": min,
    "max": max,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "sum": math.fsum,
}


def _known(how: str) -> bool:
    return how in _HOW or re.fullmatch(r"p(100|\d\d?)", how, re.ASCII) is not None


def _value(how: str, numbers: SampledValues) -> float:
    if how == "last":
        return numbers.last
    values = numbers.values
    return _HOW[how](values) if how in _HOW else _quantile(values, int(how[1:]) / 100)


def _quantile(values: list[float], share: float) -> float:
    """Between the two nearest, as numpy does."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
