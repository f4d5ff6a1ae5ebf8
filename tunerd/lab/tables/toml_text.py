"""TOML as a person would write it: short entries on one line, reasons in comments."""

import json
import re
import textwrap
from collections.abc import Mapping

__all__ = ["comment", "entry", "shown_key", "text_of", "value_of"]

WIDTH = 100


def shown_key(name: str) -> str:
    """A key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else text_of(name)


def text_of(value: str) -> str:
    # TOML takes JSON's escapes, and wants DEL escaped too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def value_of(value: object) -> str:
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_of, value))}]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{shown_key(str(k))} = {value_of(v)}" for k, v in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return repr(value)


def _remark(text: str) -> str:
    """Text that may stand in a comment, on one line."""
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text)


def comment(text: str) -> list[str]:
    lines = textwrap.wrap(_remark(text), WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return [f"# {line}" for line in lines]


def entry(key: str, value: object, why: str, *, live: bool = True) -> list[str]:
    """``key = value  # why``, or the comment above where that would be too long."""
    line = f"{'' if live else '# '}{key} = {value_of(value)}"
    remark = f"  # {_remark(why)}"
    if len(line) + len(remark) <= WIDTH:
        return [f"{line}{remark}"]
    return [*comment(why), line]
