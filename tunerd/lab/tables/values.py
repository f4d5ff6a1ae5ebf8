"""From what stands in a table to the types of a study."""

import json
import math
import re

from tunerd.core.observation import END_STATUSES, Scalar, Status, Value
from tunerd.core.study.context_key import ValueType, category_text, clean_value
from tunerd.events.quantities import PLAIN, NumberNotation, read_quantity

__all__ = [
    "gist",
    "is_nan",
    "is_no_number",
    "is_nothing",
    "number_in",
    "status_in",
    "truth_in",
    "typed",
    "value_name",
]

_NOTHING = frozenset(
    {"", "-", "--", "–", "—", "?", "na", "n/a", "n.a.", "nan", "nil", "none", "null", "#n/a"}
    | {"<na>", "nat", "\\n"}
)
"""What stands where a number or a truth value is missing."""
_NO_NAME = _NOTHING - {"na", "none", "nil", "?"}
"""What stands where a category is missing: ``NA`` and ``none`` are values of many."""

_STATUS = {status.value: status for status in END_STATUSES} | {
    "ok": Status.SUCCEEDED,
    "success": Status.SUCCEEDED,
    "successful": Status.SUCCEEDED,
    "complete": Status.SUCCEEDED,
    "completed": Status.SUCCEEDED,
    "done": Status.SUCCEEDED,
    "finished": Status.SUCCEEDED,
    "oom": Status.OUT_OF_MEMORY,
    "out_of_me+": Status.OUT_OF_MEMORY,  # as sacct shortens it
    "fail": Status.FAILED,
    "failure": Status.FAILED,
    "error": Status.FAILED,
    "timed_out": Status.TIMEOUT,
    "deadline": Status.TIMEOUT,
    "canceled": Status.CANCELLED,
    "cancelled+": Status.CANCELLED,
    "node_fail": Status.NODE_FAILURE,
    "boot_fail": Status.NODE_FAILURE,
}
"""Words for how a job ended: tunerd's, Slurm's, and what people write."""


def typed(
    value: Scalar, kind: ValueType, factor: float = 1.0, notation: NumberNotation = PLAIN
) -> Scalar:
    """One value of a table in a type of a study, times ``factor``; ``None`` if it is missing.

    Text may hold anything: "8", "8.0" and "1e3" are integers, "yes" is true. Numbers that are
    written in another ``notation`` are read by it.

    Raises:
        ValueError: says what was expected.
    """
    if value is None:
        return None
    if kind == "category":
        if isinstance(value, str) and value.strip().lower() in _NO_NAME:
            return None
        return clean_value(value, kind)
    if kind == "bool":
        return truth_in(value)
    if not notation.plain:
        value = _noted(value, notation)
    if kind == "float":
        number = number_in(value)
        return None if number is None else float(number) * factor
    return _whole(value, factor)


def is_no_number(value: Value) -> bool:
    """Whether a value is the word NaN or inf: what a run that diverged measured."""
    return isinstance(value, str) and value.strip().lower() in _NO_NUMBERS


def is_nan(value: Value) -> bool:
    """Whether a value is the word NaN, which programs write for what is missing too."""
    return isinstance(value, str) and value in ("NaN", "nan")


_NO_NUMBERS = frozenset({"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"})


def is_nothing(text: str) -> bool:
    """Whether a text says that a number is missing."""
    return text.strip().lower() in _NOTHING


def _whole(value: Scalar, factor: float) -> int | None:
    number = number_in(value, "an integer")
    if number is None:
        return None
    if factor != 1.0:
        scaled = number * factor
        whole = round(scaled)
        # 0.35 billion is an integer, whatever floats make of it.
        number = whole if math.isclose(scaled, whole, rel_tol=1e-9) else scaled
    parsed = clean_value(number, "int")
    if not isinstance(parsed, int):
        raise ValueError("expected an integer")
    return parsed


def _noted(value: Scalar, notation: NumberNotation) -> Scalar:
    """A text as the number that it is in a notation; anything else as it is."""
    if not isinstance(value, str) or is_nothing(value):
        return value
    return read_quantity(value, notation)


def number_in(value: Scalar, expected: str = "a number") -> int | float | None:
    """The number that a value of a table is; ``None`` if it is missing.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in _NOTHING:
            return None
        number = clean_value(text, "int")
        number = clean_value(text, "float") if number is None else number
        if isinstance(number, int | float):
            return number
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, int) or math.isfinite(value):
            return value
        if math.isnan(value):
            return None
    elif value is None:
        return None
    raise ValueError(f"expected {expected}")


def truth_in(value: Scalar) -> bool | None:
    """The truth value that a value of a table is; ``None`` if it is missing.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, str) and is_nothing(value):
        return None
    truth = clean_value(value, "bool")
    if not isinstance(truth, bool):
        raise ValueError("expected true or false")
    return truth


def listed(value: Value) -> Value:
    """A list that is written as JSON in a text as the list; anything else as it is."""
    if isinstance(value, str) and value.startswith("["):
        try:
            entries = json.loads(value)
        except (ValueError, RecursionError):
            return value
        if isinstance(entries, list) and all(
            entry is None or isinstance(entry, str | int | float) for entry in entries
        ):
            return entries
    return value


def value_name(value: Scalar) -> str:
    """How a mapping names a value of a table: the text; ``true``; ``8`` for 8 and 8.0."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else category_text(value)


_DETAIL = re.compile(
    r"\s*[:;,(\[{|/].*|\s+-+\s.*|\s+(by|on|at|after|with|due|because|in|for|from|exit|code|rc|signal)"
    r"\b.*|[\s_#-]*[0-9][\s0-9._-]*",
    re.IGNORECASE | re.DOTALL,
)
"""What follows a word for how a job ended: by whom, where, with which exit code."""
_MEMORY = re.compile(r"out[ _-]?of[ _-]?memory|\boom\b|cannot allocate memory", re.IGNORECASE)


def gist(text: str) -> str:
    """A word for how a job ended without its details: ``cancelled`` of "CANCELLED by 10000"."""
    bare = " ".join(text.split())[:200]
    return (_DETAIL.split(bare, maxsplit=1)[0] or bare).strip().lower().replace(" ", "_")


def status_in(value: Scalar) -> Status | None:
    """What a word for how a job ended means, whatever its case; ``None`` if nobody knows.

    Details do not count: "CANCELLED by 10000" and "FAILED (exit code 137)" are known.
    """
    name = value_name(value)
    word = name.lower().replace(" ", "_").replace("-", "_")
    status = _STATUS.get(word)
    if status is not None or not isinstance(value, str):
        return status
    if _MEMORY.search(name) and not word.startswith(("no_", "not_", "completed", "succe")):
        return Status.OUT_OF_MEMORY
    short = gist(name).replace("-", "_")
    # "completed with errors" did not simply complete.
    doubtful = _STATUS.get(short) is Status.SUCCEEDED and re.search("err|fail|warn", word)
    return None if doubtful else _STATUS.get(short)
