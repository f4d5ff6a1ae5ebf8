"""Commands in logs of benchmarks: what was set on the command line."""

import math
import re
import shlex
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

__all__ = [
    "arguments_of",
    "ended",
    "is_secret",
    "is_trouble",
    "number_or_text",
    "options_of",
    "without_secrets",
]

_VERBS = ("run", "prepare", "cleanup")
MAX_LINE = 4_096
_SECRET = re.compile(
    r"passw|secret|(?:api|access|private)_?key|auth(?!or(?!i))|credential|(?:^|[_.])(?:token|pw|pwd)$"
    r"|(?:^|[_.])(?:db|pg|mysql|redis|ftp|smtp|user|admin|root)_?pass$",
    re.IGNORECASE,
)
"""Options that nobody wants in a table."""
_USER = re.compile(r"(?<=://)[^/?#\s]+@")
_QUERY = re.compile(r"(?<=[?&#])([^=&#\s]{1,100})=[^&#\s]*&?")
_HEADER = re.compile(r"^([\w-]{1,100}): ")


_ERROR = re.compile(r"\b(?:fatal|error|panic|abort(?:ed|ing)?|could not|failed)\b", re.IGNORECASE)


def ended(record: dict[str, Any], measured: Iterable[str], trouble: bool) -> dict[str, Any]:
    """The record of a run with how it ended: one without a result failed where the log says so,
    and was cut short where it does not."""
    good = any(name in record for name in measured)
    return record | {"status": "succeeded" if good else "failed" if trouble else "cancelled"}


def is_secret(name: str) -> bool:
    """Whether an option is one that nobody wants in a table."""
    return _SECRET.search(name) is not None


def without_secrets(text: str) -> str:
    """A text without users and passwords in its addresses, and without secrets in their queries."""
    bare = _USER.sub("", text)
    return _QUERY.sub(lambda match: "" if is_secret(match[1]) else match[0], bare)


def _public(options: dict[str, str]) -> dict[str, str]:
    """The options that may be shown."""
    return {
        name: without_secrets(value)
        for name, value in options.items()
        if name != "pass"
        and not any(map(is_secret, (name, *_HEADER.findall(value))))
        and not (name in ("u", "user") and ":" in value)  # curl -u name:password
    }


def is_trouble(line: str) -> bool:
    """Whether a line of a log tells of an error."""
    return _ERROR.search(line) is not None


def number_or_text(text: str) -> int | float | str:
    """A number where the text is a finite one."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else text
    return text


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
    if re.match(r"[(\d]", "".join(words[1:2])):  # it says its version
        return None
    options: dict[str, str] = {}
    rest = words[1:]
    while rest:
        rest = _taken(rest, options, flags)
    return _public(options)


MOST_ARGUMENTS = 20
"""Words without a name that are told of a command; a list of files has more."""
_NAME = r"[A-Za-z_][\w.-]{0,99}"
_OPTION = re.compile(rf"(?:--?({_NAME})|({_NAME})(?==))(?:=(.*))?", re.DOTALL)
_GLUED = re.compile(r"-p(?![\d.]+$|[a-z]+(?:[-_=].*)?$).+", re.DOTALL)
"""A password behind its option, ``-phunter2``; no port, no word as ``-parallel`` or ``-pin=0``."""
_CLIENT = re.compile(
    r"(?:\S*/)?(?:mysql|mariadb|mongo|sshpass|7z|zip|unzip|rar)\w*"
    r"|-u(?:root|admin|user)\w*|--?(?:[\w-]*[_-])?user(?:name)?(?:=.*)?",
    re.IGNORECASE,
)
"""Words of a command in which whatever stands behind ``-p`` is a password."""
_SHORT = re.compile(r"-([A-Za-z])(\d+(?:\.\d+)?)")
_VARIABLE = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_LEVEL = re.compile(r"-(\d{1,2})")
"""How hard a compressor is to try: ``xz -6``."""
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh"}
_BEFORE = {"time", "env", "exec", "nohup"}
"""What stands before a command and sets nothing."""
_SOURCES = {"cat", "zcat", "bzcat", "xzcat", "zstdcat", "gunzip", "echo", "printf", "yes", "seq"}
"""What only feeds the command behind the pipe."""
_ENDS = ("&&", "||", ";")
_AFTERWARDS = {"echo", "printf", "exit", "wait", "date", "true", "rm"}
"""What is done when the work is."""
_PIPED = re.compile(r"[|&<]|(?:\d|&)?>.*", re.DOTALL)


def arguments_of(command: str) -> dict[str, str]:
    """What a command of any program sets.

    Args:
        command: as a shell has it, or ``bash -c`` with one. Of several only the last that works
            counts, and nothing behind a pipe, but where the first only feeds the second.

    Returns:
        ``program``; by their names options, ``name=value`` and variables before the program,
        without secrets; by their places, ``arg1``, the other words. A switch is ``true``.
    """
    words = _words(command)
    while True:
        arguments, end, words = _of_first(words)
        if end == "|" and arguments.get("program") in _SOURCES:
            fed = {"input": arguments["arg1"]} if "arg1" in arguments else {}
            arguments, end, words = _of_first(words)
            arguments = fed | arguments
        if end not in _ENDS or not words or words[0] in _AFTERWARDS:
            return _public(arguments)


def _of_first(words: list[str]) -> tuple[dict[str, str], str, list[str]]:
    """What the first of several commands sets, the sign behind it, and the words behind that."""
    arguments: dict[str, str] = {}
    place = 0
    while words:
        word, words = words[0], words[1:]
        if word in _ENDS or _PIPED.fullmatch(word):
            return arguments, word, words
        if place == 0 and word in _BEFORE:
            continue
        if place == 0 and word.rpartition("/")[2] in _SHELLS and (inner := _inner(words)):
            return arguments | arguments_of(inner), "", []
        if place and (level := _LEVEL.fullmatch(word)):
            arguments["level"] = level[1]
        elif short := _SHORT.fullmatch(word):
            arguments[short[1]] = short[2]
        elif option := _OPTION.fullmatch(word):
            words = _of_option(option, words, arguments)
        elif word != "--" and place <= MOST_ARGUMENTS:
            arguments[f"arg{place}" if place else "program"] = word
            place += 1
    return arguments, "", []


def _of_option(option: re.Match[str], words: list[str], arguments: dict[str, str]) -> list[str]:
    """Take an option with its value, which may be the next word; the words behind it."""
    name, value = (option[1] or option[2]).replace("-", "_"), option[3]
    if value is None and words and not _is_option(words[0]):
        value, words = words[0], words[1:]
    _put(name, value, arguments)
    return words


def _put(name: str, value: str | None, options: dict[str, str]) -> None:
    """Add an option by its name, or by that of the variable that it sets: ``-x NCCL_ALGO=Ring``."""
    if variable := _VARIABLE.fullmatch(value or ""):
        name, value = variable[1], variable[2]
    options[name] = "true" if value is None else value


def _words(command: str) -> list[str]:
    """The words of a command without passwords; a semicolon is one of its own. None where quotes do
    not end."""
    try:
        words = shlex.split(command) if len(command) <= MAX_LINE else []
    except ValueError:
        return []
    apart: list[str] = []
    for word in words:
        ends = len(word) > 1 and word.endswith(";")
        apart += [word[:-1], ";"] if ends else [word]
    return _without_passwords(apart)


def _without_passwords(words: list[str]) -> list[str]:
    client = any(map(_CLIENT.fullmatch, words))
    kept: list[str] = []
    before = ""
    for word in words:
        password = before == "-p" and not re.fullmatch(r"-.*|[\d.]+", word)
        if not (client and (word[:2] == "-p" or password)) and not _GLUED.match(word):
            kept.append(word)
        before = word
    return kept


def _inner(words: Sequence[str]) -> str:
    """The command that a shell is told to run: ``-c '...'``; "" where it is none."""
    options = list(takewhile(lambda word: word.startswith("-"), words))
    inner = bool(options) and re.fullmatch(r"-[a-z]*c", options[-1]) is not None
    return words[len(options)] if inner and len(words) > len(options) else ""


def _is_option(word: str) -> bool:
    """Whether a word begins something else than a value."""
    negative = re.fullmatch(r"-[\d.]+(?:e[+-]?\d+)?", word)
    return word in _ENDS or bool(_PIPED.fullmatch(word) or (word[:1] == "-" and not negative))


def _taken(words: list[str], options: dict[str, str], flags: dict[str, str]) -> list[str]:
    """Take one option from the front of a command; the words behind it."""
    word, rest = words[0], words[1:]
    beside = bool(rest) and not rest[0].startswith("-") and rest[0] not in _VERBS
    if long := re.fullmatch(r"--([A-Za-z][\w-]*)(?:=(.*))?", word):
        name = long[1].replace("-", "_")
        if long[2] is None and beside:
            _put(name, rest[0], options)
            return rest[1:]
        _put(name, long[2], options)
    elif (short := re.fullmatch(r"-([A-Za-z])(.*)", word)) and short[1] in flags:
        if not short[2] and rest:
            _put(flags[short[1]], rest[0], options)
            return rest[1:]
        _put(flags[short[1]], short[2], options)
    elif re.fullmatch(r"[A-Za-z]\w*", word) and word not in _VERBS:
        options.setdefault("test", word)
    return rest
