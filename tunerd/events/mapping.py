"""Records in any other format: a TOML file says which are a job's and what their fields mean.

``ingest.mappings`` names the file. Each ``[[mapping]]`` in it is an event format of its own: paths
into the record, constants, factors and tables of words. There is no language in it to be evaluated.
:func:`load_mappings` says everything that is wrong with the file at once.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunerd.core.observation import END_STATUSES
from tunerd.core.toml import MOST_BYTES, load_toml
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.events.foreign import entries, half, measured, plain, text, whole
from tunerd.events.half import HalfEvent
from tunerd.events.job import JOB_SCHEMA
from tunerd.events.quantities import NumberNotation, read_quantity
from tunerd.events.reasons import MAX_NAME, did_you_mean
from tunerd.events.rejection import Rejection
from tunerd.events.times import pattern_problem, read_time, time_zone, zone_problem
from tunerd.events.values import describe
from tunerd.files import read_text

__all__ = ["RecordMapping", "load_mappings", "parse_mappings"]

ValuePath = tuple[str, ...]
ALL = "*"
"""Names all entries of an object."""
MOST_MAPPINGS = 100
_TIMES = frozenset({"submitted_at", "started_at", "reported_at", "finished_at"})
_WHOLE = frozenset({"attempt", "steps", "gpus"})
_FLAGS = frozenset({"partial", "history"})
_SECTIONS = ("context", "config", "metrics", "labels")
_FIELDS = tuple(name for name in HalfEvent.__struct_fields__ if name not in ("schema", *_SECTIONS))
_NUMBERS = ("number", "1.234,5", "1,234.5", "duration", "size", "count")
_KEYS = ("name", "when", "fields", *_SECTIONS)
_VALUE_KEYS = (
    "path",
    "value",
    "default",
    "factor",
    "format",
    "unit",
    "timezone",
    "values",
    "other",
)
_CONDITION_KEYS = ("equals", "not", "prefix", "present", "min", "max")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ALONE = "takes all entries of an object as they are: a path alone"
_MISSING = object()


# -- what a mapping is ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MappedValue:
    """Where one value of the event comes from."""

    path: ValuePath = ()
    value: Any = None
    """A constant, where there is no path."""
    default: Any = None
    factor: float | None = None
    notation: NumberNotation | None = None
    time: str | None = None
    """How a time is written."""
    timezone: str = "UTC"
    values: Mapping[str, Any] = field(default_factory=dict)
    other: Any = None


@dataclass(frozen=True, slots=True)
class RecordCondition:
    """Something that a record must be to be the mapping's."""

    path: ValuePath
    holds: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class RecordMapping:
    """One ``[[mapping]]``: an event format."""

    name: str
    conditions: tuple[RecordCondition, ...]
    fields: Mapping[str, MappedValue]
    sections: Mapping[str, Mapping[str, MappedValue]]

    def recognises(self, content: Mapping[str, Any], headers: Mapping[str, bytes]) -> bool:  # noqa: ARG002
        """Whether this record is the mapping's; never an event of the contract."""
        schema = content.get("schema")
        if isinstance(schema, str) and schema.startswith("tunerd."):
            return False
        return all(condition.holds(_find(content, condition.path)) for condition in self.conditions)

    def unwrap(
        self,
        content: dict[str, Any],
        headers: Mapping[str, bytes],  # noqa: ARG002
    ) -> dict[str, Any] | Rejection:
        """The job event, or half of one, that the record is."""
        made: dict[str, Any] = {"schema": JOB_SCHEMA, "source": self.name}
        try:
            for name, spec in self.fields.items():
                if (raw := _field(name, spec, content)) is not None:
                    made[name] = raw
            for section, values in self.sections.items():
                made[section] = _section(section, values, content)
        except _UnmappableError as error:
            return error.why
        if made.get("type") in ("started", "reported"):
            made = {name: v for name, v in made.items() if name not in ("status", "finished_at")}
        return made if "event_id" in made else made | {"event_id": _event_id(made)}


class _UnmappableError(Exception):
    def __init__(self, where: str, problem: str) -> None:
        super().__init__(problem)
        self.why = Rejection(where, problem)


def _event_id(made: Mapping[str, Any]) -> str:
    """A whole job is told once; a half may be told again, with more in it."""
    kind: Any = made.get("type") or "completed"
    is_part = kind in ("started", "reported") or made.get("partial") is True
    if is_part or not ({"context", "config"} & made.keys()):
        rest = {name: v for name, v in made.items() if name not in ("source", "job_id", "type")}
        with suppress(ValueError, OverflowError, RecursionError):  # what no event may hold
            return str(
                half(kind, text(made["source"]) or "", made.get("job_id"), **rest)["event_id"]
            )
    return f"{made.get('job_id')}/{text(made.get('attempt')) or 1}"[:MAX_NAME]


def _find(content: Any, path: ValuePath) -> Any:
    """What stands at a path; ``_MISSING`` where there is nothing. A number picks from a list."""
    for name in path:
        if isinstance(content, dict):
            content = content.get(name, _MISSING)
        elif isinstance(content, list) and name.isascii() and name.isdigit() and len(name) < 6:
            content = content[int(name)] if int(name) < len(content) else _MISSING
        else:
            return _MISSING
    return content


def _found(where: str, spec: MappedValue, content: Any) -> Any:
    """The value before it is read as what the field is; None where there is none."""
    if not spec.path:
        return spec.value
    raw = _find(content, spec.path)
    if raw is _MISSING or raw is None:
        return spec.default
    if spec.values or spec.other is not None:
        word = _word(raw)
        if word in spec.values:
            return spec.values[word]
        if spec.other is not None:
            return spec.other
    if spec.notation is not None or spec.factor is not None:
        return _number(where, spec, raw)
    return raw


def _word(value: object) -> str:
    """A value as it stands before ``=`` in a table of words."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return repr(value) if isinstance(value, float) else text(value, 1 << 18) or ""


def _number(where: str, spec: MappedValue, raw: object) -> float | None:
    try:
        if isinstance(raw, str):
            if measured(raw) is None and raw.strip().lower() in ("nan", "inf", "-inf", ""):
                return None
            number: float = read_quantity(raw, spec.notation or NumberNotation())
        elif isinstance(raw, int | float) and not isinstance(raw, bool):
            number = raw
        else:
            raise ValueError("expected a number")
        product = number if spec.factor is None else number * spec.factor
    except (ValueError, OverflowError) as error:
        why = str(error) if isinstance(error, ValueError) else "expected a number of usual size"
        at = ".".join(spec.path)
        raise _UnmappableError(where, f"{why}, got {describe(raw)} at {at[:100]}") from None
    if isinstance(product, float) and product.is_integer() and isinstance(number, int):
        product = int(product) if abs(product) < 2**53 else product
    return product if not isinstance(product, float) or math.isfinite(product) else None


def _field(name: str, spec: MappedValue, content: Any) -> Any:
    """A field of the event, as its type wants it; what is of another type the contract rejects."""
    raw = _found(name, spec, content)
    if raw is None:
        return None
    if name in _TIMES:
        if not isinstance(raw, str | int | float) or isinstance(raw, bool):
            return raw
        try:
            return read_time(raw, spec.time or "auto", time_zone(spec.timezone)).isoformat()
        except ValueError as error:
            raise _UnmappableError(name, f"{error}, got {describe(raw)}") from None
    if name in _WHOLE:
        number = whole(raw)
        return raw if number is None else number
    if name == "measured_s":
        number_s = measured(raw)
        return raw if number_s is None else number_s
    if name in _FLAGS:
        return raw
    if name == "nodes":
        return raw.split(",") if isinstance(raw, str) else raw
    return text(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw


def _section(section: str, values: Mapping[str, MappedValue], content: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, spec in values.items():
        where = f"{section}.{name}"
        raw = _found(where, spec, content)
        if name == ALL:
            given = entries(raw)
            if section == "metrics":
                given = {
                    k: v for k, v in ((k, measured(v)) for k, v in given.items()) if v is not None
                }
            made |= {entry: value for entry, value in given.items() if entry not in values}
        elif section == "metrics" and raw is not None:
            made[name] = _number(where, spec, raw) if isinstance(raw, str) else raw
        elif raw is not None:
            made[name] = raw
    return made


# -- reading the file -----------------------------------------------------------------------------


def load_mappings(file: Path) -> tuple[RecordMapping, ...]:
    """The mappings in a file, in order: the first that recognises a record has it.

    Raises:
        MisconfiguredError: with every mistake in it.
    """
    try:
        content = read_text(file, MOST_BYTES)
    except OSError as error:
        problem = ValidationProblem("ingest.mappings", f"cannot read {file}: {error.strerror}")
        raise MisconfiguredError([problem]) from None
    except ValueError:
        problem = ValidationProblem("ingest.mappings", f"{file} is not UTF-8, or too large")
        raise MisconfiguredError([problem]) from None
    return parse_mappings(content, str(file))


def parse_mappings(content: str, file: str = "mappings.toml") -> tuple[RecordMapping, ...]:
    """The mappings in a text; ``file`` is what mistakes are reported under. Raises as above."""
    try:
        data = load_toml(content)
    except ValueError as error:
        raise MisconfiguredError([ValidationProblem(file, f"is not TOML: {error}")]) from None
    reading = _MappingReader(file)
    mappings = reading.mappings(data)
    if reading.problems:
        raise MisconfiguredError(reading.problems)
    return mappings


class _MappingReader:
    """Reads a file, and goes on after each mistake."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[ValidationProblem] = []

    def mistake(self, where: str, message: str) -> None:
        self.problems.append(ValidationProblem(f"{self.file}: {where}", message))

    def mappings(self, data: Mapping[str, Any]) -> tuple[RecordMapping, ...]:
        self.keys("", data, ("mapping",))
        given = data.get("mapping")
        if not isinstance(given, list) or not given:
            self.mistake("mapping", "should be a list of tables: write [[mapping]]")
            return ()
        if len(given) > MOST_MAPPINGS:
            self.mistake("mapping", f"{len(given):,} are more than {MOST_MAPPINGS}")
            return ()
        mappings = [
            self.mapping(f"mapping[{place}]", table)
            for place, table in enumerate(given)
            if self.table(f"mapping[{place}]", table)
        ]
        for place, table in enumerate(mappings):
            if table.name and table.name in {other.name for other in mappings[:place]}:
                self.mistake(f"mapping[{place}].name", f"{table.name!r} is another's name too")
        return tuple(mappings)

    def mapping(self, where: str, given: Mapping[str, Any]) -> RecordMapping:
        self.keys(where, given, _KEYS)
        fields = self.values(where, "fields", given)
        self.keys(f"{where}.fields", fields, _FIELDS)
        if "fields" not in given or "job_id" not in fields:
            self.mistake(f"{where}.fields.job_id", "is missing: the path of the job's name")
        sections = {
            section: self.values(where, section, given) for section in _SECTIONS if section in given
        }
        return RecordMapping(
            self.name(where, given), self.conditions(where, given), fields, sections
        )

    def name(self, where: str, given: Mapping[str, Any]) -> str:
        from tunerd.events import FORMATS

        name = given.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            message = "should be lower-case letters, digits and hyphens, at most 63"
            self.mistake(f"{where}.name", f"is missing; it {message}" if name is None else message)
            return ""
        if name in {"event", *(form.name for form in FORMATS)}:
            self.mistake(f"{where}.name", f"{name!r} is a format that tunerd has")
        return name

    # -- conditions -------------------------------------------------------------------------

    def conditions(self, where: str, given: Mapping[str, Any]) -> tuple[RecordCondition, ...]:
        table = given.get("when")
        where = f"{where}.when"
        if table is None or table == {}:
            self.mistake(where, 'is missing: which records are these, such as { kind = "run" }')
            return ()
        if not self.table(where, table):
            return ()
        conditions = []
        for name, wanted in table.items():
            path = self.path(f"{where}.{name}", name)
            holds = self.condition(f"{where}.{name}", wanted)
            if path and holds:
                conditions.append(RecordCondition(path, holds))
        return tuple(conditions)

    def condition(self, where: str, wanted: Any) -> Callable[[Any], bool] | None:
        if not isinstance(wanted, dict):
            return self.one_of(where, wanted)
        unknown = [name for name in wanted if name not in _CONDITION_KEYS]
        if unknown:
            path = f"{where.rpartition('.when.')[2]}.{unknown[0]}"
            known = ", ".join(_CONDITION_KEYS)
            message = f'there is no such key; there are {known}. A path stands in quotes: "{path}"'
            self.mistake(f"{where}.{unknown[0]}", message)
        checks: list[Callable[[Any], bool]] = []
        for name, value in wanted.items():
            place = f"{where}.{name}"
            if name in ("equals", "not"):
                if (same := self.one_of(place, value)) is not None:
                    checks.append(same if name == "equals" else _negated(same))
            elif name == "prefix":
                if self.kind(place, value, str, "a text"):
                    checks.append(_begins(value))
            elif name == "present":
                if self.kind(place, value, bool, "true or false"):
                    checks.append(_is_there(value))
            elif name in ("min", "max") and self.number(place, value):
                checks.append(_bounded(name, value))
        if not wanted:
            self.mistake(where, f"is empty; there are {', '.join(_CONDITION_KEYS)}")
        return lambda raw: all(check(raw) for check in checks)

    def one_of(self, where: str, wanted: Any) -> Callable[[Any], bool] | None:
        values = wanted if isinstance(wanted, list) else [wanted]
        if not values or not all(_is_plain(value) for value in values):
            self.mistake(where, "should be a text, a number, true or false, or a list of these")
            return None
        return lambda raw: any(_same(raw, value) for value in values)

    # -- values -----------------------------------------------------------------------------

    def values(self, where: str, section: str, given: Mapping[str, Any]) -> dict[str, MappedValue]:
        table = given.get(section, {})
        if not self.table(f"{where}.{section}", table):
            return {}
        specs = {}
        for name, value in table.items():
            place = f"{where}.{section}.{name}"
            if not 0 < len(name) <= MAX_NAME:
                self.mistake(place, f"a name has 1 to {MAX_NAME} characters")
            elif (spec := self.value(place, section, name, value)) is not None:
                specs[name] = spec
        return specs

    def value(self, where: str, section: str, name: str, given: Any) -> MappedValue | None:
        if isinstance(given, str | list):
            path = self.path(where, given)
            return MappedValue(path=path) if path else None
        if not self.table(where, given, "a path such as run.id, or a table"):
            return None
        self.keys(where, given, _VALUE_KEYS)
        if ("path" in given) == ("value" in given):
            self.mistake(where, "needs a path, or a constant value; one of the two")
            return None
        if "value" in given:
            for key in (key for key in _VALUE_KEYS if key in given and key != "value"):
                self.mistake(f"{where}.{key}", "has no effect on a constant")
            if name == ALL:
                self.mistake(where, _ALONE)
            self.constant(f"{where}.value", section, name, given["value"])
            return MappedValue(value=given["value"])
        path = self.path(f"{where}.path", given["path"])
        self.same_kind(where, section, name, given)
        values = given.get("values", {})
        if self.table(f"{where}.values", values):
            for word, meaning in values.items():
                self.constant(f"{where}.values.{word}", section, name, meaning)
        else:
            values = {}
        for key in ("default", "other"):
            if key in given:
                self.constant(f"{where}.{key}", section, name, given[key])
        is_time = section == "fields" and name in _TIMES
        numeric = not is_time and ("format" in given or "unit" in given)
        return MappedValue(
            path,
            default=given.get("default"),
            factor=self.factor(where, given),
            notation=self.notation(where, given) if numeric else None,
            time=self.time_format(where, given) if is_time else None,
            timezone=self.zone(where, given),
            values=values,
            other=given.get("other"),
        )

    def constant(self, where: str, section: str, name: str, value: Any) -> None:
        if plain(value) is None:
            self.mistake(where, "should be a text, a number, true or false, or a list of these")
        elif section == "metrics":
            # A text may be a number in a notation: 1h.
            readable = (
                re.search(r"\d", value) if isinstance(value, str) else measured(value) is not None
            )
            if not readable:
                self.kind(where, value, _Nothing, "a number")
        elif section != "fields":
            return
        elif name in _FLAGS:
            self.kind(where, value, bool, "true or false")
        elif name in _WHOLE and whole(value) is None:
            self.kind(where, value, _Nothing, "a whole number from 0 on")
        elif name == "status" and value not in END_STATUSES:
            hint = did_you_mean(str(value).lower(), END_STATUSES)
            self.mistake(where, f"should be one of {', '.join(END_STATUSES)}, not {value!r}{hint}")
        elif name == "type" and value not in ("started", "reported", "completed"):
            self.mistake(where, f"should be started, reported or completed, not {value!r}")

    def same_kind(self, where: str, section: str, name: str, given: Mapping[str, Any]) -> None:
        """Keys that say nothing about this kind of value."""
        is_time = section == "fields" and name in _TIMES
        is_text = section == "fields" and name not in _TIMES | _WHOLE | {"measured_s"}
        for key in ("factor", "unit"):
            if key in given and (is_time or is_text):
                self.mistake(f"{where}.{key}", f"{name!r} is no number")
        if "format" in given and is_text:
            self.mistake(f"{where}.format", f"{name!r} is neither a number nor a time")
        if "timezone" in given and not is_time:
            self.mistake(f"{where}.timezone", f"{name!r} is no time")
        if name == ALL and given.keys() - {"path"}:
            self.mistake(where, _ALONE)

    def factor(self, where: str, given: Mapping[str, Any]) -> float | None:
        factor = given.get("factor")
        if factor is None or not self.number(f"{where}.factor", factor):
            return None
        if not 0 < factor < 1e100:
            self.mistake(f"{where}.factor", f"should be above 0, not {factor!r}")
        return float(factor)

    def notation(self, where: str, given: Mapping[str, Any]) -> NumberNotation:
        form, unit = given.get("format", "number"), given.get("unit", "")
        if form not in _NUMBERS:
            self.mistake(f"{where}.format", f"should be one of {', '.join(_NUMBERS)}, not {form!r}")
            form = "number"
        if not self.kind(f"{where}.unit", unit, str, "a text"):
            unit = ""
        return NumberNotation(form, unit)

    def time_format(self, where: str, given: Mapping[str, Any]) -> str:
        form = given.get("format", "auto")
        if not self.kind(f"{where}.format", form, str, "a text"):
            return "auto"
        if form not in ("auto", "seconds", "milliseconds") and "%" not in form:
            message = 'should be auto, seconds, milliseconds, or a pattern such as "%d.%m.%Y %H:%M"'
            self.mistake(f"{where}.format", f"{message}, not {form!r}")
            return "auto"
        if "%" in form and (problem := pattern_problem(form)) is not None:
            self.mistake(f"{where}.format", f"{form!r} {problem}")
            return "auto"
        return str(form)

    def zone(self, where: str, given: Mapping[str, Any]) -> str:
        zone = given.get("timezone", "UTC")
        if not self.kind(f"{where}.timezone", zone, str, "a text"):
            return "UTC"
        if (problem := zone_problem(zone)) is not None:
            self.mistake(f"{where}.timezone", problem)
            return "UTC"
        return str(zone)

    # -- shapes -----------------------------------------------------------------------------

    def path(self, where: str, given: Any) -> ValuePath:
        """``a.b.0``; a name with a dot in it as ``a\\.b``, or in a list of names."""
        parts: Any = given
        if isinstance(given, str):
            parts = [part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", given)]
        good = isinstance(parts, list) and parts and all(isinstance(p, str) and p for p in parts)
        if not good or len(parts) > 32:
            self.mistake(where, 'should be a path such as run.id, or ["labels", "a.b/c"]')
            return ()
        return tuple(parts)

    def keys(self, where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
        for name in given:
            if name not in known:
                hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
                place = f"{where}.{name}" if where else name
                self.mistake(place, f"there is no such key{hint}")

    def table(self, where: str, given: Any, wanted: str = "a table") -> bool:
        return self.kind(where, given, dict, wanted)

    def number(self, where: str, given: Any) -> bool:
        if isinstance(given, bool) or not isinstance(given, int | float):
            return self.kind(where, given, _Nothing, "a number")
        try:
            good = math.isfinite(float(given))
        except OverflowError:
            good = False
        if not good:
            self.mistake(where, "should be a finite number")
        return good

    def kind(self, where: str, given: Any, wanted: type, words: str) -> bool:
        if isinstance(given, wanted):
            return True
        self.mistake(where, f"should be {words}, not {describe(given)}")
        return False


class _Nothing:
    """Nothing is of this type."""


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _same(raw: Any, wanted: Any) -> bool:
    """Whether a record's value is the wanted one; true is not 1."""
    if isinstance(raw, bool) or isinstance(wanted, bool):
        return raw is wanted
    return _is_plain(raw) and bool(raw == wanted)


def _negated(same: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda raw: not same(raw)


def _begins(prefix: str) -> Callable[[Any], bool]:
    return lambda raw: isinstance(raw, str) and raw.startswith(prefix)


def _is_there(wanted: bool) -> Callable[[Any], bool]:
    return lambda raw: (raw is not _MISSING and raw is not None) == wanted


def _bounded(name: str, bound: float) -> Callable[[Any], bool]:
    def holds(raw: Any) -> bool:
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            return False
        return bool(raw >= bound if name == "min" else raw <= bound)

    return holds
