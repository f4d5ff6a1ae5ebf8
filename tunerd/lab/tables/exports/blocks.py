"""Runs as blocks of ``name: value`` lines (``seff``, ``/usr/bin/time -v``, HPCG), or each in a line
of ``name=value`` among other words, as trainers and services log them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import Any

from tunerd.lab.tables.exports.base import ExportFormat
from tunerd.lab.tables.exports.command_lines import (
    MAX_LINE,
    arguments_of,
    is_secret,
    without_secrets,
)
from tunerd.lab.tables.text_reader import is_comment

__all__ = ["BLOCKS", "PAIRS"]

LOOKED_AT = 1_000
"""Lines by which it is told whether a text is one, and where its blocks begin."""
MOST_NAMES = 200
"""Names of one run."""
FEWEST = 3
"""Names that come again, from which on lines are no prose."""
_BY_COLON = re.compile(r"\s*([^\W\d][^\n]{0,80}?)\s*:\s+(\S.*)")
_ACCOUNTS = re.compile(r"=+\s*qname ")
_BY_BLANKS = re.compile(r"([a-z_]+) +(\S.*)")
"""As ``qacct`` of Grid Engine writes its accounts."""
_BY_EQUAL = re.compile(r"\s*([^\W\d][^\n=:]{0,80}(?:::[^\n=:]{1,80})?)\s*=\s*(\S.*)")
_KNOWN = re.compile(
    r"Job ID: \d+\s+Cluster: \S|\s*Command being timed: \"|HPCG-Benchmark\s"
    r"|=+\s*MLPerf Results Summary|=+\s*qname +\S"
)
"""Beginnings of texts that are one run."""
_BEHIND = re.compile(r"(?<=[\d%A-Za-z/])(?:\s+of\s\d.*|\s+[\[(].*)")
"""What stands behind a number and its unit: ``12.3% of 01:02:03 core-walltime``."""


def _pair(line: str, *, accounts: bool = False) -> tuple[str, str] | None:
    """The name and the value in a line that has one of each."""
    text = line.strip()[:MAX_LINE]
    match = (
        _BY_BLANKS.fullmatch(text)
        if accounts
        else _BY_COLON.fullmatch(text) or _BY_EQUAL.fullmatch(text)
    )
    if match is None or text.startswith("{"):
        return None
    value = match[2].lstrip("! ").strip().strip('"')  # Graph500 marks its results
    if value[:1].isdigit():
        value = _BEHIND.sub("", value)
    return match[1].rpartition("::")[2].strip(), without_secrets(value)


def _begins(lines: Iterable[str]) -> str | None:
    """The name with which each block begins; ``None`` where the lines are no blocks."""
    texts = [line for line in lines if re.search(r"\w", line) and not is_comment(line)]
    texts = [line for line in texts if line.rstrip()[-1:] not in ":="]  # titles
    pairs = [pair for line in texts if (pair := _pair(line)) is not None]
    counts = Counter(name for name, _ in pairs if not is_secret(name))
    several = [count for count in counts.values() if count > 1]
    listed = any(re.match(r"\s*- ", line) for line in texts)  # YAML, whose names stand in others
    if len(several) < min(FEWEST, len(counts)) or 4 * len(pairs) < 3 * len(texts):
        return None
    if listed or len(counts) < 2 or not several:
        return None
    usual = Counter(several).most_common(1)[0][0]
    return next(name for name, count in counts.items() if count == usual)


def _is_log(start: str) -> bool:
    lines = start.splitlines()[:LOOKED_AT]
    return _KNOWN.match(start) is not None or _begins(lines) is not None


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a block."""
    rest = iter(lines)
    head = list(islice(rest, LOOKED_AT))
    read = partial(_pair, accounts=_ACCOUNTS.match("".join(head[:2])) is not None)
    pairs = (pair for pair in map(read, head) if pair is not None and not is_secret(pair[0]))
    first = _begins(head) or next((name for name, _ in pairs), "")
    run: dict[str, Any] = {}
    for line in chain(head, rest):
        pair = read(line)
        if pair is None or is_secret(pair[0]):
            continue
        if pair[0] == first and run:
            yield run
            run = {}
        if (run or first == pair[0]) and len(run) < MOST_NAMES:
            run |= {name: v for name, v in _said_of_it(*pair).items() if name not in run}
    if run:
        yield run


def _said_of_it(name: str, value: str) -> dict[str, str]:
    """A value by its name; of a command what it sets, for a password may stand there."""
    if name.lower() in ("command", "command being timed", "cmd", "cmdline"):
        return arguments_of(value) or {"program": ""}
    return {name: value}


# ── a run in a line ──────────────────────────────────────────────────────────────────────────

_PAIRS = re.compile(
    r"(?<![\w.?&])([A-Za-z_][\w./-]{0,60})=(\"[^\"\n]{0,200}\"|'[^'\n]{0,200}'|[^\s,;|'\"]{1,200})"
)
_STAMP = re.compile(r"(?:\s*\[[^\]]{0,80}\]:?)+\s*")
_NUMBER = r"[+-]?[\d.][\d.,]*(?:[eE][+-]?\d+)?%?"
_CELL = re.compile(
    rf"([A-Za-z][^:=|]{{0,60}}?)\s*[:=]\s*({_NUMBER}|\w+)"
    rf"|([A-Za-z][\w /()-]{{0,40}}?)\s+({_NUMBER})(?:\s*/\s*\d+)?"
)
_MEASURED = re.compile(rf"({_NUMBER})\s*([A-Za-z][\w/ ]{{0,20}})")
"""``85.3 samples/s``."""
_SETTING = re.compile(r"\s*([A-Za-z_][\w-]{0,60}) ?\.{3,} ?(\S.{0,200})")
"""What Megatron says of its arguments before it begins."""
MOST_SETTINGS = 600


def _pairs(line: str) -> dict[str, str]:
    """What a line says by name: ``threads=8``, or ``step 10 | loss: 2.9 | 85.3 samples/s``."""
    text = line[:MAX_LINE]
    pairs: dict[str, str] = {}
    for cell in text.split("|") if text.count("|") > 1 else ():
        bare = _STAMP.sub("", cell.strip())
        if match := _CELL.fullmatch(bare):
            pairs[match[1] or match[3]] = match[2] or match[4]
        elif match := _MEASURED.fullmatch(bare):
            pairs[match[2]] = match[1]
    read = pairs.items() if len(pairs) >= FEWEST else _PAIRS.findall(text)[:MOST_NAMES]
    return {n: without_secrets(value.strip("\"'")) for n, value in read if not is_secret(n)}


def _usual(lines: Iterable[str]) -> frozenset[str]:
    """The names that most lines of runs have; empty where lines are none."""
    read = (frozenset(_pairs(line)) for line in lines if line.strip())
    sets = Counter(names for names in read if len(names) >= FEWEST)
    names, count = sets.most_common(1)[0] if sets else (frozenset[str](), 0)
    return names if count > 1 and 2 * count >= sets.total() else frozenset()


def _has_pairs(start: str) -> bool:
    lines = start.splitlines()[:LOOKED_AT]
    first, second = [*(line for line in lines if line.strip()), "", ""][:2]
    delimited = any(first.count(mark) == second.count(mark) > 0 for mark in ",;\t|")
    table = delimited and len(_pairs(first)) < FEWEST
    return not table and not first.startswith(("{", "[{", "<")) and bool(_usual(lines))


def _lines(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a line that has the names that most have, with the settings above it."""
    rest = iter(lines)
    head = list(islice(rest, LOOKED_AT))
    names = _usual(head)
    settings: dict[str, str] = {}
    for line in chain(head, rest):
        pairs = _pairs(line)
        if 2 * len(names & pairs.keys()) > len(names):
            yield settings | pairs
        elif (setting := _SETTING.fullmatch(line.rstrip()[:MAX_LINE])) is not None:
            name, value = setting[1], without_secrets(setting[2])
            if not is_secret(name) and (name in settings or len(settings) < MOST_SETTINGS):
                settings[name] = value


BLOCKS = ExportFormat("blocks", log=_log, is_log=_is_log)
PAIRS = ExportFormat("pairs", log=_lines, is_log=_has_pairs)
