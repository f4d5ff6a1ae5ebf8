"""Tables in texts that are none: JSON documents, and logs of programs.

A document is read as a whole, so its size is bounded. What it holds, an exporter says that knows
it, else its shape: a list of records, a record for each key, a list for each column.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.lab.tables.column_names import read_name
from tunerd.lab.tables.exports import EXPORTERS
from tunerd.lab.tables.rows import NoJob, TableRow, UnreadableLine, flattened, shortened
from tunerd.lab.tables.text_reader import open_text

__all__ = ["document_records", "is_document", "is_known", "is_log", "log_records", "records_in"]

MAX_DOCUMENT = 64 << 20
"""Characters of a JSON document. One object a line has no such bound."""


def is_document(start: str) -> bool:
    """Whether a text is a JSON document and not JSON lines, by its beginning."""
    if start.startswith("["):
        return start[1:].lstrip().startswith(("{", "]"))
    if not start.startswith("{"):
        return False
    first, _, rest = start.partition("\n")
    second = rest.lstrip()[:1]
    if any(mark in first[:4_096] for mark in _SEVERAL):
        return True
    if second == "{":
        return False
    try:
        alone, end = json.JSONDecoder().raw_decode(first)
    except RecursionError:
        return False
    except ValueError:
        unfinished = first.rstrip()[-1:] in "{[,:" and bool(second)
        return unfinished or any(mark in start[:4_096] for mark in _ONE_LINERS)
    if first[end:].strip():  # several on one line, as files without a last line end come together
        return first[end:].lstrip().startswith("{")
    return not second and taken_apart(alone) != [alone]


_SEVERAL = ('"fio version"',)
"""What stands at the beginning of documents that follow each other and hold several records."""
_ONE_LINERS = ('"tune_params', '"tune_params_keys"', '"config_id"', '"StatusType.')
"""What stands at the beginning of documents that may be one very long line."""


def is_log(start: str) -> bool:
    """Whether a text is a log that an exporter can read, by its beginning."""
    return any(exporter.is_log is not None and exporter.is_log(start) for exporter in EXPORTERS)


def log_records(path: Path) -> Iterator[TableRow | NoJob]:
    """A row for each run that a log tells of."""
    with open_text(path) as file:
        start = file.text.read(1 << 16).lstrip()  # as whoever asked whether it is one
    reader = next(
        exporter for exporter in EXPORTERS if exporter.is_log is not None and exporter.is_log(start)
    )
    assert reader.log is not None
    with open_text(path) as file:
        number = 0
        for record in reader.log(_lines(file)):
            if isinstance(record, NoJob):
                yield record
                continue
            number += 1
            yield TableRow(number, flattened(record))


def _lines(file: Any) -> Iterator[str]:
    """The lines of a text, without those that are too long to be of a log. Bytes that are no text
    become �: what programs print is cut anywhere, and no event can hold them."""
    while True:
        file.taken.clear()
        try:
            line = next(file)
            yield (
                line
                if line.isascii()
                else line.encode(errors="surrogateescape").decode(errors="replace")
            )
        except StopIteration:
            return
        except ValueError:
            continue


def document_records(path: Path) -> Iterator[TableRow | UnreadableLine]:
    """A row for each record of a JSON document, or of several that follow each other.

    Raises MisconfiguredError when it is too large.
    """
    with open_text(path) as file:
        text = file.text.read(MAX_DOCUMENT + 1)
    if len(text) > MAX_DOCUMENT:
        message = (
            f"is a JSON document of more than {MAX_DOCUMENT:,} characters; write one object a"
            " line, for instance with jq -c '.[]'"
        )
        raise MisconfiguredError([ValidationProblem(str(path), message)])
    yield from records_in(text)


def records_in(text: str) -> Iterator[TableRow | UnreadableLine]:
    """A row for each record in a JSON text."""
    number = 0
    for value in _values(text):
        if isinstance(value, UnreadableLine):
            number += 1
            yield UnreadableLine(number, value.reason, value.text)
            continue
        for record in taken_apart(value):
            number += 1
            yield _row(number, record)


def _row(number: int, record: Any) -> TableRow | UnreadableLine:
    if not isinstance(record, Mapping):
        return UnreadableLine(number, "is not a JSON object", shortened(json.dumps(record)))
    try:
        values = flattened(record)
        json.dumps(values, ensure_ascii=False).encode()
    except RecursionError:
        return UnreadableLine(number, "is nested too deeply", "")
    except UnicodeEncodeError:
        return UnreadableLine(number, "has half of a surrogate pair", "")
    except ValueError as error:
        return UnreadableLine(number, str(error), shortened(json.dumps(record)))
    return TableRow(number, values)


def _values(text: str) -> Iterator[Any]:
    """The JSON values in a text, one behind the other; the last may have no end."""
    decoder = json.JSONDecoder(parse_constant=_number)
    place, whole = 0, False
    while (start := _after_blanks(text, place)) < len(text):
        try:
            value, place = decoder.raw_decode(text, start)
        except RecursionError:
            yield UnreadableLine(0, "is nested too deeply", shortened(text[start:]))
            return
        except ValueError as error:
            if whole:
                yield from _without_end(text[start:], str(error), decoder)
                return
            text, place, whole = _TRAILING.sub(_without_commas, text[start:]), 0, True
            continue
        yield value


_STRING = r'"(?:[^"\\]|\\.)*+"?'
"""A text, which the end of the file may cut: looked at once, however many quotes it has."""
_TRAILING = re.compile(rf"({_STRING})|,[\s,]*+([}}\]]?)", re.DOTALL)
"""A text, or commas and what follows them."""


def _without_commas(match: re.Match[str]) -> str:
    """The bracket alone where nothing stands between the commas and it."""
    return match[2] or match[0]


def _number(name: str) -> Any:
    """What Python's own writer puts where a number is infinite: a word that people use too."""
    return {"Infinity": "inf", "-Infinity": "-inf"}.get(name)


def _after_blanks(text: str, place: int) -> int:
    match = re.compile(r"[\s,]*").match(text, place)
    return match.end() if match else place


_TOKENS = re.compile(rf"{_STRING}|[{{}}\[\]]", re.DOTALL)
_CLOSED = {"{": "}", "[": "]"}


def _without_end(text: str, why: str, decoder: json.JSONDecoder) -> Iterator[Any]:
    """A document whose writer was stopped, up to its last whole entry."""
    end = _last_whole(text)
    if end is None:
        yield UnreadableLine(0, f"is not JSON: {why}", shortened(text))
        return
    cut, closers = end
    try:
        value = decoder.decode(text[:cut] + closers)
    except (ValueError, RecursionError):
        yield UnreadableLine(0, f"is not JSON: {why}", shortened(text))
        return
    yield value
    if rest := text[cut:].strip(" \t\r\n,]}"):
        yield UnreadableLine(0, "the file ends in the middle of it", shortened(rest))


@dataclass
class _OpenBracket:
    """A list or record that has not ended."""

    closer: str
    whole: int = 0
    """Records in it that have."""
    end: int = 0
    """Where the last of them ends."""


def _last_whole(text: str) -> tuple[int, str] | None:
    """Where the last whole record of a document ends, and what closes what is open there.

    Records stand in the outermost list or record that holds several. ``None``: there are none.
    """
    open_: list[_OpenBracket] = []
    for token in _TOKENS.finditer(text):
        if token[0] in _CLOSED:
            open_.append(_OpenBracket(_CLOSED[token[0]]))
        elif token[0] in ("}", "]"):
            if not open_ or open_.pop().closer != token[0]:
                return None
            if open_ and token[0] == "}":
                open_[-1].whole += 1
                open_[-1].end = token.end()
    several = [depth for depth, level in enumerate(open_) if level.whole > 1]
    single = [depth for depth, level in enumerate(open_) if level.whole == 1]
    if not several and not single:
        return None
    depth = several[0] if several else single[-1]
    return open_[depth].end, "".join(level.closer for level in reversed(open_[: depth + 1]))


# -- what a document holds ----------------------------------------------------------------------


def is_known(value: Any) -> bool:
    """Whether an exporter knows a JSON value."""
    return _known_records(value) is not None


def _known_records(value: Any) -> list[Any] | None:
    for exporter in EXPORTERS:
        if exporter.records is not None and (records := exporter.records(value)) is not None:
            return list(records)
    return None


def taken_apart(value: Any) -> list[Any]:
    """The records in one JSON value."""
    if (known := _known_records(value)) is not None:
        return known
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return [value]
    for shape in (_columns, _deep_runs, _listed, _keyed, _inside):
        if records := shape(value):
            return records
    return [value]


def _columns(value: Mapping[str, Any]) -> list[Any]:
    """Records of a document that has a list or a numbered record for each column, as pandas
    writes tables."""
    names, data = value.get("columns"), value.get("data")
    if isinstance(names, list) and isinstance(data, list):
        return [dict(zip(map(str, names), row, strict=False)) for row in data]
    parts = list(value.values())
    if len(parts) < 2:
        return []
    if all(isinstance(part, list) for part in parts):
        count = len(parts[0])
        if count > 1 and all(len(part) == count for part in parts):
            return [{name: value[name][place] for name in value} for place in range(count)]
    if all(isinstance(part, dict) and part and all(map(str.isdigit, part)) for part in parts):
        places = dict.fromkeys(place for part in parts for place in part)
        return [{name: value[name].get(place) for name in value} for place in places]
    return []


def _listed(value: Mapping[str, Any]) -> list[Any]:
    """Records of the longest list in a document, each with what is said of all of them."""
    lists = {
        name: part
        for name, part in value.items()
        if isinstance(part, list) and part and all(isinstance(item, dict) for item in part)
    }
    if not lists:
        return []
    longest = max(lists, key=lambda name: len(lists[name]))
    shared = {name: part for name, part in value.items() if not isinstance(part, list)}
    records = [_merged(shared, record) for record in lists[longest]]
    if all(map(_is_group, lists[longest])):
        return [run for record in records for run in _listed(record)]
    return records


def _deep_runs(value: Mapping[str, Any]) -> list[Any]:
    """Records of the longest list within records whose entries say what was set and what was
    measured, each with what is said of all of them; none where it stands at the top."""
    if any(isinstance(part, list) and _are_runs(part) for part in value.values()):
        return []
    best, way = list[Any](), list[tuple[Mapping[str, Any], str]]()
    open_ = [(value, way)]
    while open_:
        part, above = open_.pop()
        for name, inner in part.items():
            if isinstance(inner, dict) and len(above) < MOST_DEEP:
                open_.append((inner, [*above, (part, name)]))
            elif above and len(best) < len(inner if isinstance(inner, list) else ()):
                best, way = (inner, [*above, (part, name)]) if _are_runs(inner) else (best, way)
    shared: dict[str, Any] = {}
    for part, name in way:
        beside = {n: p for n, p in part.items() if n != name and not isinstance(p, list)}
        shared = _merged(shared, beside)
    return [_merged(shared, record) for record in best]


def _are_runs(records: list[Any]) -> bool:
    """Whether these are records of which the first has a setting and a measurement."""
    if len(records) < FEWEST_RUNS or not all(isinstance(record, dict) for record in records):
        return False
    try:
        names = [read_name(name) for name in list(flattened(records[0]))[:MOST_NAMES]]
    except (ValueError, RecursionError):
        return False
    set_ = any(n.weight("parameter") >= 2 > n.weight("measured") for n in names)
    return set_ and any(n.weight("measured") >= 2 > n.weight("parameter") for n in names)


FEWEST_RUNS = 3
MOST_DEEP, MOST_NAMES = 8, 100
"""Records within records, and names of one, that are looked at."""


def _is_group(record: Mapping[str, Any]) -> bool:
    """Whether a record only names what the runs in its one list have in common."""
    lists = [part for part in record.values() if isinstance(part, list)]
    runs = lists[0] if len(lists) == 1 else []
    named = all(part is None or isinstance(part, str | int | list) for part in record.values())
    several = len(runs) > 1 and all(isinstance(run, dict) and len(run) > 1 for run in runs)
    return named and several and len(record) > 1 and flattened({"": runs}).keys() == {""}


def _merged(shared: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in shared.items() if name not in record} | dict(record)


def _keyed(value: Mapping[str, Any]) -> list[Any]:
    """Records of a document that has one for each key, ``{"run1": {...}, "run2": {...}}``."""
    parts = list(value.values())
    if len(parts) < 2 or not all(isinstance(part, dict) for part in parts):
        return []
    common = set(parts[0])
    for part in parts[1:]:
        common &= set(part)
    if not common:
        return []
    return [{"name": name, **part} if "name" not in part else part for name, part in value.items()]


def _inside(value: Mapping[str, Any]) -> list[Any]:
    """Records of the one part of a document that else only says something of itself.

    Where a setting or a measurement stands around them, they are parts of one run.
    """
    parts = {name: part for name, part in value.items() if isinstance(part, dict | list)}
    (inside, *others) = parts.values() if parts else (None,)
    if others or not isinstance(inside, dict) or not _says_only_of_itself(value):
        return []
    records = _listed(inside) if _says_only_of_itself(inside) else []
    if not records and len(inside) >= FEWEST_KEYED:
        records = [record for record in _keyed(inside) if len(record) > 2]
    shared = {name: part for name, part in value.items() if name not in parts}
    return [_merged(shared, record) for record in records]


def _says_only_of_itself(value: Mapping[str, Any]) -> bool:
    """Whether what stands beside the records is neither a number nor called like a setting."""
    return not any(_is_of_a_run(name, part) for name, part in value.items())


def _is_of_a_run(name: str, part: Any) -> bool:
    if part is None or isinstance(part, dict | list) or "version" in name.lower():
        return False
    read = read_name(name)
    return not isinstance(part, str) or max(read.weight("parameter"), read.weight("context")) > 0


FEWEST_KEYED = 5
"""Records below which they may be the parts of one."""
