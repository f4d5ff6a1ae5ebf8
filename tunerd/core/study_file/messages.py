"""Saying what is wrong with the shape of a study file, in the words of who wrote it."""

import re
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from tunerd.core.expressions import suggestion

__all__ = ["Path", "dotted", "in_data", "keys_at", "message_for", "said_as_a_whole", "shown"]

Path = tuple[str | int, ...]

_SHAPES = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_type": "an integer",
    "list_type": "a list",
    "model_type": "a table",
    "string_type": "a text",
}
_WRONG = {
    "name": "should be lower-case letters, digits and hyphens, at most 63, no hyphen first",
    "schema": "unknown version of the study file; this tunerd reads schema = 1",
    "baseline": "should be a list of tables: write [[baseline]]",
    "context.key": 'should be "value", "ignore", or a bucket such as { bucket = 1.25 }',
}
"""What is best said as a whole, by place."""


def message_for(file: type[BaseModel], path: Path, details: list[ErrorDetails]) -> str:
    """Return one sentence for all that pydantic says about one place of a file."""
    first = details[0]
    text = first["input"]
    if first["type"] == "missing":
        return f"is missing: {_description(file, path)}"
    if said_as_a_whole(path):
        return f"{_WRONG[_place(path)]}; not {shown(text)}"
    shapes = dict.fromkeys(_SHAPES[d["type"]] for d in details if d["type"] in _SHAPES)
    if "a number" in shapes or "a finite number" in shapes:
        shapes.pop("an integer", None)
    if shapes:
        return f"should be {' or '.join(shapes)}, not {shown(text)}"
    message = re.sub("^(Input|List|Dictionary|String) should", "should", first["msg"])
    message = message.replace(" after validation", "")
    if isinstance(text, dict | list):
        return message
    choices = message.split("'")[1::2] if first["type"] == "literal_error" else ()
    return f"{message}, not {shown(text)}{suggestion(str(text), choices)}"


def said_as_a_whole(path: Path) -> bool:
    """Whether whatever is wrong at or below a place is said in one sentence."""
    return _place(path) in _WRONG


def _place(path: Path) -> str:
    return ".".join(str(part) for part in (path if len(path) == 1 else (path[0], path[-1])))


def shown(value: object) -> str:
    """Return a value as it may stand in a message: short, and whatever it is."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if not isinstance(value, str | int | float):
        return "a date or time"
    try:
        text = repr(value)
    except ValueError:  # more digits than Python prints
        return "such a long number"
    return text if len(text) <= 60 else f"{text[:57]}..."


def dotted(path: Path) -> str:
    """Write a path as ``baseline[0].config.tp``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def in_data(file: type[BaseModel], data: dict[str, Any], where: Path) -> Path:
    """Drop what pydantic adds to a path to name a member of a union."""
    path: list[str | int] = []
    current: Any = data
    for place, part in enumerate(where):
        try:
            current = current[part]
        except (KeyError, IndexError, TypeError):
            # A key that is missing belongs to a table with fields; all else is a union's member.
            if place < len(where) - 1 or str(part) not in keys_at(file, tuple(path)):
                continue
        path.append(part)
    return tuple(path)


def keys_at(file: type[BaseModel], path: Path) -> list[str]:
    """Return the keys of the table at a path."""
    model = _model_at(file, path)
    return [info.alias or name for name, info in (model.model_fields if model else {}).items()]


def _description(file: type[BaseModel], path: Path) -> str:
    model = _model_at(file, path[:-1])
    for name, info in (model.model_fields if model else {}).items():
        if path[-1] in (name, info.alias):
            return info.description or ""
    return "it is needed"


def _model_at(file: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """Return the model of the table at a path, if it is one with keys of its own."""
    annotation: Any = file
    for part in path:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            fields = annotation.model_fields.items()
            annotations = (info.annotation for name, info in fields if part in (name, info.alias))
            annotation = next(annotations, None)
        else:  # dict[str, X] or list[X]
            annotation = get_args(annotation)[-1] if get_args(annotation) else None
    if str(annotation).startswith(("dict", "list")):
        return None
    members = (annotation, *get_args(annotation))
    models = (m for m in members if isinstance(m, type) and issubclass(m, BaseModel))
    return next(models, None)
