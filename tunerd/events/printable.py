"""Text of strangers, made fit to be shown."""

from typing import Any

__all__ = ["printable", "printable_value"]

_KEPT = "\n\u00a0\u202f"
"""What a page may hold although it is not printable: line breaks, and spaces that do not break."""


def printable(text: str) -> str:
    """What comes from jobs may hold anything, also what a terminal or a log would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def printable_value(value: Any) -> Any:
    """What a template puts into a page: text of strangers without what would turn it round or hide
    it, nothing for None, anything else as it is. Markup is a template's own."""
    if type(value) is not str or value.isprintable():
        return "" if value is None else value
    return "".join(
        c if c.isprintable() or c in _KEPT else "\N{REPLACEMENT CHARACTER}" for c in value
    )
