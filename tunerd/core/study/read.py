"""From text to a :class:`StudyFile`, collecting every mistake on the way.

A wrong entry is reported and then left out (a misspelt key is put right), so that the rest is
still checked; names that were left out are remembered, so that an expression that reads one is
not blamed for it.
"""

import copy
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tunerd.core.expressions import suggestion
from tunerd.core.study.file import StudyFile
from tunerd.errors import Problem

__all__ = ["Reading", "read"]

MAX_BYTES = 1 << 20
_NAMED = ("guards", "context", "lookup", "parameters", "derived", "constraints")
"""Sections whose entries have names of their own."""

Path = tuple[str | int, ...]


@dataclass
class Reading:
    """What could be read, and what was wrong."""

    file: str
    table: StudyFile | None = None
    data: dict[str, Any] = field(default_factory=dict)
    """The whole content as it was written."""
    problems: list[Problem] = field(default_factory=list)
    left_out: set[Path] = field(default_factory=set)
    """Sections and entries that are not in ``table`` because they were wrong."""

    def mistake(self, path: Path, message: str) -> None:
        self.problems.append(Problem(f"{self.file}: {_dotted(path)}", message))


def read(text: str, file: str) -> Reading:
    """Read a study file; what is wrong is in the answer, never raised."""
    reading = Reading(file)
    try:
        if len(text.encode()) > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES:,} bytes")
        reading.data = tomllib.loads(text)
    except UnicodeEncodeError:
        reading.problems.append(Problem(file, "this is not Unicode text"))
    except RecursionError:
        reading.problems.append(Problem(file, "nested too deeply"))
    except ValueError as error:
        reading.problems.append(Problem(file, f"this is not TOML: {error}"))
    else:
        _validate(reading)
    return reading


def _validate(reading: Reading) -> None:
    data = copy.deepcopy(reading.data)
    # Unknown keys first: put right, they may be the very ones that are missing.
    for only_unknown in (True, False, False):
        try:
            reading.table = StudyFile.model_validate(data)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_context=False)
        else:
            return
        unknown = [e for e in errors if e["type"] == "extra_forbidden"]
        if only_unknown:
            for detail in unknown:
                _put_right(reading, data, detail["loc"])
        else:
            _leave_out(reading, data, errors)


def _put_right(reading: Reading, data: dict[str, Any], where: Path) -> None:
    path = _in_data(data, where)
    wrong = str(path[-1])
    known = _keys(StudyFile, path[:-1])
    holder = _at(data, path[:-1])
    value = holder.pop(path[-1])
    close = suggestion(wrong, known)
    reading.mistake(path, f"unknown key{close or '; there are ' + ', '.join(known)}")
    meant = close.split("'")[1] if close else ""
    if meant and meant not in holder:
        holder[meant] = value
    else:
        reading.left_out.add(path)


def _leave_out(reading: Reading, data: dict[str, Any], errors: list[ErrorDetails]) -> None:
    by_path: dict[Path, list[ErrorDetails]] = {}
    for detail in errors:
        by_path.setdefault(_in_data(data, detail["loc"]), []).append(detail)
    for path, details in by_path.items():
        reading.mistake(path, _message(path, details))
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


# ── messages ─────────────────────────────────────────────────────────────────────────────────

_SHAPES = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "float_type": "a number",
    "int_type": "an integer",
    "list_type": "a list",
    "model_type": "a table",
    "string_type": "a text",
}
_OURS = {
    "name": "should be lower-case letters, digits and hyphens, at most 63, not starting with a"
    " hyphen",
    "schema": "unknown version of the study file; this tunerd reads schema = 1",
    "key": 'should be "value", "ignore", or a bucket such as { bucket = 1.25 }',
}


def _message(path: Path, details: list[ErrorDetails]) -> str:
    first = details[0]
    found = first["input"]
    if first["type"] == "missing":
        return f"is missing: {_description(path)}"
    if path == ("name",) and isinstance(found, str):
        return f"{_OURS['name']}; not {_shown(found)}"
    if path in (("schema",),) or (path[0] == "context" and path[-1] == "key"):
        return f"{_OURS[str(path[-1])]}; not {_shown(found)}"
    shapes = [_SHAPES[d["type"]] for d in details if d["type"] in _SHAPES]
    if shapes:
        return f"should be {' or '.join(dict.fromkeys(shapes))}, not {_shown(found)}"
    message = first["msg"].replace("Input should be", "should be").replace("Input", "This")
    message = message.replace("This should", "should")
    hint = ""
    if first["type"] == "literal_error" and isinstance(found, str):
        hint = suggestion(found, message.split("'")[1::2])
    if isinstance(found, dict | list):
        return message
    return f"{message}, not {_shown(found)}{hint}"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    try:
        text = repr(value)
    except ValueError:  # more digits than Python prints
        return "such a long number"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _description(path: Path) -> str:
    model = _model_at(StudyFile, path[:-1])
    for name, info in (model.model_fields if model else {}).items():
        if path[-1] in (name, info.alias):
            return info.description or ""
    return "it is needed"


# ── paths ────────────────────────────────────────────────────────────────────────────────────


def _dotted(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _in_data(data: dict[str, Any], where: Path) -> Path:
    """Drop what pydantic adds to a path to name a member of a union."""
    path: list[str | int] = []
    current: Any = data
    for place, part in enumerate(where):
        try:
            current = current[part]
        except (KeyError, IndexError, TypeError):
            # A key that is missing belongs to a table with fields; all else is a union's member.
            missing = place == len(where) - 1 and isinstance(current, dict)
            if not missing or _model_at(StudyFile, tuple(path)) is None:
                continue
        path.append(part)
    return tuple(path)


def _at(data: dict[str, Any], path: Path) -> Any:
    current: Any = data
    for part in path:
        current = current[part]
    return current


def _keys(model: type[BaseModel], path: Path) -> list[str]:
    found = _model_at(model, path)
    return [info.alias or name for name, info in (found.model_fields if found else {}).items()]


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """Return the model of the table at a path of the file."""
    annotation: Any = model
    for part in path:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            fields: Mapping[str, Any] = {
                info.alias or name: info.annotation
                for name, info in annotation.model_fields.items()
            }
            annotation = fields.get(str(part))
        else:  # dict[str, X] or list[X]
            annotation = get_args(annotation)[-1] if get_args(annotation) else None
    members = [annotation, *get_args(annotation)]
    models = [m for m in members if isinstance(m, type) and issubclass(m, BaseModel)]
    direct = annotation is not None and not str(annotation).startswith(("dict", "list"))
    return models[0] if models and direct else None
