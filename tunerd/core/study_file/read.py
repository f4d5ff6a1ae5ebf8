"""From text to a :class:`StudyFile`, collecting every mistake on the way.

A wrong entry is reported and then left out (a misspelt key is put right), so that the rest is
still checked; names that were left out are remembered, so that an expression that reads one is
not blamed for it.
"""

import copy
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tunerd.core.expressions import closest, suggestion
from tunerd.core.study_file.keys import StudyFile
from tunerd.core.study_file.messages import (
    Path,
    dotted,
    in_data,
    keys_at,
    message_for,
    said_as_a_whole,
)
from tunerd.core.study_file.plugins import study_file_model
from tunerd.core.toml import load_toml
from tunerd.errors import ValidationProblem

__all__ = ["ParseResult", "read", "read_tables"]

MOST_MISTAKES = 500
"""From so many on, only some are said: each is compared with all keys that there are."""
SHOWN_MISTAKES = 20
_NAMED = ("guards", "context", "lookup", "parameters", "derived", "constraints")
"""Sections whose entries have names of their own."""


@dataclass
class ParseResult:
    """What could be read, and what was wrong."""

    file: str
    model: type[StudyFile] = StudyFile
    """What it is checked against."""
    table: StudyFile | None = None
    data: dict[str, Any] = field(default_factory=dict)
    """The whole content as it was written."""
    problems: list[ValidationProblem] = field(default_factory=list)
    left_out: set[Path] = field(default_factory=set)
    """Sections and entries that are not in ``table`` because they were wrong."""

    def mistake(self, path: Path, message: str) -> None:
        problem = ValidationProblem(f"{self.file}: {dotted(path)}", message)
        if problem not in self.problems:
            self.problems.append(problem)


def read(text: str, file: str) -> ParseResult:
    """Read a study file; what is wrong is in the answer, never raised."""
    reading = ParseResult(file)
    try:
        reading.data = load_toml(text)
        _validate(reading)
    except UnicodeEncodeError:
        reading.problems.append(ValidationProblem(file, "this is not Unicode text"))
    except RecursionError:
        reading.problems.append(ValidationProblem(file, "nested too deeply"))
    except ValueError as error:
        reading.problems.append(ValidationProblem(file, f"this is not TOML: {error}"))
    return reading


def read_tables(data: dict[str, Any], file: str) -> ParseResult:
    """Check what was read elsewhere, as :func:`read` does."""
    reading = ParseResult(file, data=data)
    _validate(reading)
    return reading


def _validate(reading: ParseResult) -> None:
    data = copy.deepcopy(reading.data)
    # Unknown keys first: put right, they may be the very ones that are missing.
    for only_unknown in (True, False, False):
        reading.model = study_file_model(data)
        try:
            reading.table = reading.model.model_validate(data)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_context=False)
        else:
            return
        if len(errors) > MOST_MISTAKES:
            _despair(reading, errors)
            return
        unknown = [e for e in errors if e["type"] == "extra_forbidden"]
        if only_unknown:
            for detail in unknown:
                _put_right(reading, data, detail["loc"])
        else:
            _leave_out(reading, data, errors)


def _despair(reading: ParseResult, errors: list[ErrorDetails]) -> None:
    """Say the first mistakes of very many as they are: this is another kind of file."""
    reading.table = None
    for detail in errors[:SHOWN_MISTAKES]:
        reading.mistake(detail["loc"], detail["msg"])
    more = f"{len(errors) - SHOWN_MISTAKES:,} more mistakes; is this a study file at all?"
    reading.problems.append(ValidationProblem(reading.file, more))


def _put_right(reading: ParseResult, data: dict[str, Any], where: Path) -> None:
    path = in_data(reading.model, data, where)
    wrong = str(path[-1])
    known = keys_at(reading.model, path[:-1])
    holder = _at(data, path[:-1])
    value = holder.pop(path[-1])
    hint = suggestion(wrong, known) or f"; there are {', '.join(known)}"
    reading.mistake(path, f"unknown key{hint}")
    meant = closest(wrong, known)
    if meant is not None and meant not in holder:
        holder[meant] = value
    else:
        reading.left_out.add(path)


def _leave_out(reading: ParseResult, data: dict[str, Any], errors: list[ErrorDetails]) -> None:
    by_path: dict[Path, list[ErrorDetails]] = {}
    for detail in errors:
        by_path.setdefault(in_data(reading.model, data, detail["loc"]), []).append(detail)
    for path, details in by_path.items():
        # A union says of a table with a mistake inside that it is not the union's other member.
        inside = any(other != path and other[: len(path)] == path for other in by_path)
        if not inside or said_as_a_whole(path):
            reading.mistake(path, message_for(reading.model, path, details))
    for path in by_path:
        entry = path[:2] if path[0] in (*_NAMED, "baseline") else path[:1]
        reading.left_out.add(entry)
        _replace(data, entry)


def _replace(data: dict[str, Any], entry: Path) -> None:
    """Take an entry out, or put a harmless one where there must be one."""
    if len(entry) == 2:
        section = data[str(entry[0])]
        if isinstance(entry[1], int):
            section[entry[1]] = {"config": {}}
        else:
            section.pop(entry[1], None)
            if entry[0] == "parameters" and not section:
                section["none"] = {"type": "bool"}
        return
    harmless = {
        "schema": 1,
        "name": "unnamed",
        "objective": {"metric": "metric", "goal": "maximize"},
        "parameters": {"none": {"type": "bool"}},
    }
    section_name = str(entry[0])
    if section_name in harmless:
        data[section_name] = harmless[section_name]
    else:
        data.pop(section_name, None)


def _at(data: dict[str, Any], path: Path) -> Any:
    current: Any = data
    for part in path:
        current = current[part]
    return current
