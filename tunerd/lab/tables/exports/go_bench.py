"""``go test -bench``: a line for each benchmark, ``BenchmarkCopy/buf=64-8  1000  8359 ns/op``."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

from tunerd.lab.tables.column_names import read_name
from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
    argument_hint,
)
from tunerd.lab.tables.exports.command_lines import number_or_text

__all__ = ["EXPORTER"]

_RESULT = re.compile(r"Benchmark(\S*)[ \t]+\d+((?:[ \t]+[-+\d.eE]+ \S+)+)[ \t\r]*")
_IS_RESULT = re.compile(rf"^{_RESULT.pattern}$", re.MULTILINE)
_VALUE = re.compile(r"[ \t]([-+\d.eE]+) (\S+)")
_ABOUT = re.compile(r"([a-z][\w./-]{0,60}):\s+(\S.{0,200})")
"""A line of configuration, which holds for the results below it."""
_HOST = ("goos", "goarch", "pkg", "cpu")
_ARGUMENT = "arg."
_TIME = "ns/op"
_NAMES = {_TIME: "ns_per_op", "B/op": "bytes_per_op", "allocs/op": "allocs_per_op"}
_ENDED = re.compile(r"(.*[^-])-(\d{1,6})")
_BEHIND = re.compile(r"([A-Za-z][A-Za-z_]*)([-_:])(\d+(?:\.\d+)?(?:[kKmMgG]i?[bB]?)?)")
"""An argument without a sign between its name and its number: ``workers-4``."""
_SIZES = re.compile(r"n|size|length|count|elements|items|keys", re.IGNORECASE)
MOST_FIRST = 2_000
"""Results by which it is told whether names end in GOMAXPROCS."""
MOST_PARTS, MOST_ABOUT = 20, 50
"""Parts of a benchmark's name, and lines of configuration, that are kept."""


def _is_log(start: str) -> bool:
    """Whether results of benchmarks stand in it."""
    return "/op" in start and _IS_RESULT.search(start) is not None


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a result."""
    results = _results(lines)
    first = list(islice(results, MOST_FIRST))
    bare = _is_bare([name for _, name, _ in first])
    for about, name, measured in chain(first, results):
        yield {**about, **_named(name, bare), **_measured(measured)}


def _results(lines: Iterable[str]) -> Iterator[tuple[Mapping[str, str], str, str]]:
    """Each result: the configuration above it, its name, what was measured."""
    about: dict[str, str] = {}
    begun = False
    for line in lines:
        text = line.strip()
        if result := _RESULT.fullmatch(text):
            begun = True
            yield dict(about), result[1], result[2]
            continue
        setting = _ABOUT.fullmatch(text) if len(about) < MOST_ABOUT else None
        # Below, programs print what they like.
        if setting is not None and (setting[1] in _HOST or not begun):
            about[setting[1]] = setting[2]


def _is_bare(names: Collection[str]) -> bool:
    """Whether names end without GOMAXPROCS, which then is 1, and a number there is of an argument:
    it differs, stands behind the name of a count, and nothing else has one."""
    ends = [_ENDED.fullmatch(name) for name in names]
    numbers = {end[2] for end in ends if end is not None}
    counted = [end for end in ends if end is not None and _is_count(end[1].rpartition("/")[2])]
    given = [end for end in ends if end is not None]
    plain = all("/" in end[1] and end[1] not in names for end in given)
    return len(numbers) > 1 and plain and len(counted) == len(given)


def _is_count(word: str) -> bool:
    """Whether a word says what is counted behind it, as ``workers`` does in ``workers-4``."""
    name = read_name(word)
    known = max(name.weight("parameter"), name.weight("context")) >= 1
    return word.isalpha() and (known or _SIZES.fullmatch(word) is not None)


def _named(name: str, bare: bool) -> dict[str, Any]:
    """What a benchmark's name says: its function, its arguments, and GOMAXPROCS unless it is 1."""
    ended = None if bare else _ENDED.fullmatch(name)
    name, procs = (ended[1], ended[2]) if ended is not None else (name, "1")
    function, *parts = name.split("/")
    row: dict[str, Any] = {"function": function or "Benchmark", "gomaxprocs": int(procs)}
    for place, part in enumerate(parts[:MOST_PARTS], 1):
        key, given, value = part.partition("=")
        if not given and (behind := _BEHIND.fullmatch(part)):
            key, given, value = behind.groups()
        row[f"{_ARGUMENT}{key if given and key else f'arg{place}'}"] = value if given else part
    return row


def _measured(text: str) -> dict[str, Any]:
    return {unit: number_or_text(value) for value, unit in _VALUE.findall(text)}


def _recognise(head: TableHead) -> DetectedExport | None:
    if not head.has("function", "gomaxprocs"):
        return None
    hints = {column: argument_hint(column[len(_ARGUMENT) :]) for column in head.starting(_ARGUMENT)}
    first = head.columns.index("gomaxprocs") + 1
    for column in head.columns[first:]:
        if column not in hints:
            hints[column] = ColumnHint("metric", "measured by the benchmark", _NAMES.get(column))
    if _TIME in head.columns:
        hints[_TIME] = ColumnHint(
            "objective", "what a benchmark measures", _NAMES[_TIME], 0.7, "minimize", "it is a time"
        )
    hints["function"] = ColumnHint("context", "what was measured")
    hints["gomaxprocs"] = ColumnHint(INPUT, "stands behind the benchmark's name")
    for column in head.columns[: first - 2]:
        hints[column] = ColumnHint("context" if head.varies(column) else "label", "where it ran")
    marks = ("Benchmark", *head.among((_TIME,)))
    return DetectedExport(
        "go_bench", "output of go test -bench", marks, hints, units={_TIME: "ns/op"}
    )


EXPORTER = ExportFormat("go_bench", _recognise, log=_log, is_log=_is_log)
