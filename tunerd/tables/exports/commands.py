"""Commands in logs of benchmarks: what was set on the command line."""

import re
import shlex

__all__ = ["options_of"]

MAX_LINE = 4_096
_SECRET = re.compile(r"passw|secret|token|key", re.IGNORECASE)
"""Options that nobody wants in a table."""


def options_of(line: str, program: str, flags: dict[str, str]) -> dict[str, str] | None:
    """What a command sets, ``--threads=8`` and ``-c 8``; ``None`` when the line is no such command.

    Args:
        line: of a log.
        program: its name.
        flags: what one-letter flags with a value are called.
    """
    if len(line) > MAX_LINE or program not in line:
        return None
    text = re.sub(r"^\s*(?:[+$#>]+|\S*[$#>]|time|sudo\s+-u\s+\S+|sudo)\s+", "", line.strip())
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if not words or words[0].rpartition("/")[2] != program:
        return None
    found: dict[str, str] = {}
    rest = iter(words[1:])
    for word in rest:
        if long := re.fullmatch(r"--([A-Za-z][\w-]*)=(.*)", word):
            found[long[1].replace("-", "_")] = long[2]
        elif (short := re.fullmatch(r"-([A-Za-z])(.*)", word)) and short[1] in flags:
            found[flags[short[1]]] = short[2] or next(rest, "")
        elif re.fullmatch(r"[A-Za-z]\w*", word) and word not in ("run", "prepare", "cleanup"):
            found.setdefault("test", word)
    return {name: value for name, value in found.items() if not _SECRET.search(name)}
