"""Reading TOML that a stranger may have written, in time that grows with its length alone."""

import re
import tomllib
from typing import Any

__all__ = ["MOST_BYTES", "load_toml"]

MOST_BYTES = 1 << 20
"""Of a file; study files have some thousands."""
MOST_PARTS = 32
"""Of a dotted key: the parser looks at each part once for each part before it."""
MOST_DEPTH = 32
"""Arrays and inline tables within each other: what walks over them later recurses."""

_TOKENS = re.compile(
    r'"""(?:\\.|[^\\])*?"""|' + r"'''.*?'''|"  # strings and comments hold anything
    r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'|#[^\n]*|"
    r"[\[\]{}.=,\n]",
    re.DOTALL,
)


def load_toml(text: str) -> dict[str, Any]:
    """What a TOML text holds.

    Raises:
        ValueError: it is not TOML, or too large, too deeply nested, or has too long a dotted key.
    """
    if len(text) > MOST_BYTES or len(text.encode()) > MOST_BYTES:
        raise ValueError(f"larger than {MOST_BYTES:,} bytes")
    _measure(text)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _measure(text: str) -> None:
    depth = parts = 0
    for token in _TOKENS.finditer(text):
        mark = token[0]
        if mark == ".":
            parts += 1
            if parts >= MOST_PARTS:
                raise _too_deep(text, token, f"a key has more than {MOST_PARTS} parts")
        elif mark in "[{":
            parts, depth = 0, depth + 1
            if depth > MOST_DEPTH:
                raise _too_deep(text, token, f"more than {MOST_DEPTH} levels")
        elif mark in "]}":
            depth = max(0, depth - 1)
        elif mark in "=,\n":
            parts = 0


def _too_deep(text: str, found: re.Match[str], what: str) -> ValueError:
    line = text.count("\n", 0, found.start()) + 1
    return ValueError(f"line {line}: nested too deeply, {what}")
