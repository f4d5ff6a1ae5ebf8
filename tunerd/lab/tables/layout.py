"""A mapping laid over the columns of one table: which column is read as what."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tunerd.core.expressions import suggestion
from tunerd.core.observation import Scalar, Status, Value
from tunerd.core.study import MappingTable, Study
from tunerd.core.study.context_key import ValueType
from tunerd.core.study.mapping import ColumnTable, StatusTable, TimeTable
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.events.quantities import PLAIN, NumberNotation
from tunerd.events.times import pattern_problem, read_time, time_zone, zone_problem
from tunerd.lab.tables.values import gist, is_nan, listed, status_in, typed, value_name

__all__ = ["EventField", "StatusField", "TableLayout", "TimeField", "lay_out"]

MOST_KNOWN = 4_096
MOST_SHOWN = 40
"""Columns of a table that a message lists."""


@dataclass(frozen=True, slots=True)
class EventField:
    """A value of an event, and where the table has it."""

    name: str
    where: str
    """Its place in the event, for reasons: ``config.tp``."""
    columns: tuple[str, ...]
    """One; several for the positions of a repeat parameter; none where there is but a default."""
    kind: ValueType | None
    """``None`` is kept as it is."""
    factor: float = 1.0
    values: Mapping[str, Scalar] = field(default_factory=dict)
    default: Value = None
    repeated: bool = False
    notation: NumberNotation = PLAIN
    known: dict[tuple[type, Scalar], Scalar] = field(default_factory=dict, repr=False)
    """Values that were converted before: tables repeat themselves."""

    def read(self, row: Mapping[str, Value]) -> Value:
        """Its value in a row, in its type; ``None`` if it is missing. Raises ValueError."""
        raw = self.raw(row)
        if isinstance(raw, list) and len(raw) == 1 and self.kind and not self.repeated:
            raw = raw[0]  # programs write [5.0] for 5.0
        value: Value = None
        if isinstance(raw, list):
            if self.kind is not None and not self.repeated:
                raise ValueError("expected one value, not a list")
            several = [self._one(entry) for entry in raw]
            value = None if all(entry is None for entry in several) else several
        elif raw is not None:
            value = self._one(raw)
        return self.default if value is None else value

    def raw(self, row: Mapping[str, Value]) -> Value:
        """What stands in the table."""
        if len(self.columns) == 1:
            raw = row.get(self.columns[0])
            return listed(raw) if self.repeated else raw
        return [_scalar(row.get(column)) for column in self.columns] or None

    def _one(self, raw: Scalar) -> Scalar:
        key = (raw.__class__, raw)  # 1, 1.0 and True are equal, but not to every type
        if key in self.known:
            return self.known[key]
        if self.kind is None and is_nan(raw):
            return None
        value = self.values.get(value_name(raw), raw) if self.values else raw
        value_read = (
            value if self.kind is None else typed(value, self.kind, self.factor, self.notation)
        )
        if len(self.known) < MOST_KNOWN:
            self.known[key] = value_read
        return value_read


@dataclass(frozen=True, slots=True)
class TimeField:
    """When a job finished."""

    column: str | None
    table: TimeTable

    def read(self, row: Mapping[str, Value]) -> datetime | None:
        """The time in a row; ``None`` if it is missing. Raises ValueError."""
        raw = row.get(self.column) if self.column else None
        if raw is None and (raw := self.table.default) is None:
            return None
        return read_time(raw, self.table.format, time_zone(self.table.timezone))


@dataclass(frozen=True, slots=True)
class StatusField:
    """How a job ended."""

    column: str | None
    table: StatusTable

    def read(self, row: Mapping[str, Value]) -> Status | None:
        """The status in a row; ``None`` if it is missing. Raises ValueError."""
        raw = row.get(self.column) if self.column else None
        if raw is None:
            return Status(self.table.default) if self.table.default else None
        word = "" if isinstance(raw, list) else value_name(raw)
        listed_as = self.table.values.get(word) or self.table.values.get(gist(word))
        status = Status(listed_as) if listed_as else status_in(word)
        if status is None and self.table.other is None:
            raise ValueError(f"nothing says what {word[:40]!r} means: list it in status.values")
        return status or Status(self.table.other or "")


@dataclass(frozen=True)
class TableLayout:
    """Everything that is read of a row."""

    finished_at: TimeField
    status: StatusField
    context: tuple[EventField, ...]
    config: tuple[EventField, ...]
    metrics: tuple[EventField, ...]
    labels: tuple[EventField, ...]
    job: tuple[EventField, ...]
    """``measured_s``, ``gpus`` and the like: fields of the event itself."""
    notes: tuple[str, ...]
    """What a person should know: names of the study that the table does not have."""

    @property
    def dated(self) -> bool:
        """Whether the table says when its jobs finished."""
        return self.finished_at.column is not None


def lay_out(
    study: Study, mapping: MappingTable, columns: Sequence[str], table: str, where: str
) -> TableLayout:
    """Find the columns of everything; ``table`` names the table, ``where`` the mapping.

    Raises:
        MisconfiguredError: with every mistake: columns that the table does not have, a table
            without the objective or without any parameter.
    """
    plan = _LayoutBuilder(study, mapping, tuple(columns), table, where)
    layout = plan.layout()
    if plan.problems:
        raise MisconfiguredError(plan.problems)
    return layout


class _LayoutBuilder:
    def __init__(
        self, study: Study, mapping: MappingTable, columns: Sequence[str], table: str, where: str
    ) -> None:
        self.study, self.mapping, self.columns = study, mapping, columns
        self.table, self.where = table, where
        self.problems: list[ValidationProblem] = []
        self.missing: list[str] = []
        """Context features and parameters without a column or a default."""
        self.unmeasured = False
        """Whether the objective is nowhere in the first rows, and need not be."""
        self.said = False
        """Whether the columns that there are have been listed."""

    def layout(self) -> TableLayout:
        study = self.study
        context = [self.given("context", f.name, f.type) for f in study.context]
        config = [self.given("config", p.name, p.type, p.repeated) for p in study.parameters]
        config_is_there = any(field.columns for field in config)
        if not config_is_there and not self.problems:
            names = ", ".join(p.name for p in study.parameters)
            self.mistake(("columns",), f"{self.table} has no column for any parameter: {names}")
        return TableLayout(
            self.finished_at(),
            self.status(),
            (*context, *self.kept("context")),
            (*config, *self.kept("config")),
            (*self.measured(), *self.kept("metrics")),
            tuple(EventField(c, f"labels.{c}", (c,), None) for c in self.there("labels")),
            tuple(self.job()),
            tuple(self.notes()),
        )

    # ── the study's own names ────────────────────────────────────────────────────────────────

    def given(
        self, section: str, name: str, kind: ValueType | None, repeated: bool = False
    ) -> EventField:
        """A context feature or parameter."""
        field = self.column(section, name, kind, repeated)
        if not field.columns and field.default is None:
            self.missing.append(name)
        return field

    def measured(self) -> Iterator[EventField]:
        """The objective and the guards."""
        objective = self.study.objective.metric
        for metric in dict.fromkeys([objective, *(g.metric for g in self.study.guards)]):
            field = self.column("metrics", metric, "float")
            if field.columns:
                yield field
            elif metric in self.mapping.columns:
                continue  # it is a mistake, and said
            elif self.of_failures:
                self.unmeasured |= metric == objective
                yield EventField(
                    metric, field.where, (field.where,), "float"
                )  # later rows may have it
            elif metric == objective:
                message = f"{self.table} has no column for the objective, {metric!r}"
                self.mistake(("columns",), self.with_columns(message, metric))

    @property
    def of_failures(self) -> bool:
        """Whether these are tunerd's own events, of jobs that measured nothing: they teach what
        runs. Of any other table, and where anything else was measured, a name is wrong."""
        own = {"schema", "status"} <= set(self.columns)
        guards = {f"metrics.{guard.metric}" for guard in self.study.guards}
        metrics = {column for column in self.columns if column.startswith("metrics.")}
        return own and metrics <= guards and not self.mapping.metrics

    def kept(self, section: str) -> Iterator[EventField]:
        """Further columns that are to be kept."""
        kind: ValueType | None = "float" if section == "metrics" else None
        for name in getattr(self.mapping, section):
            if name in self.mapping.columns:
                yield self.column(section, name, kind)
            elif self.is_there((section,), name):
                yield EventField(name, f"{section}.{name}", (name,), kind)

    def column(
        self, section: str, name: str, kind: ValueType | None, repeated: bool = False
    ) -> EventField:
        entry = self.mapping.columns.get(name)
        default = self.default(name, kind)
        where = f"{section}.{name}"
        path = ("columns", name)
        if isinstance(entry, list):
            columns = tuple(column for column in entry if self.is_there(path, column))
            return EventField(name, where, columns, kind, default=default, repeated=True)
        if entry is None:
            named = (column for column in (name, where) if column in self.columns)
            columns = tuple(named)[:1]
            return EventField(name, where, columns, kind, default=default, repeated=repeated)
        more = ColumnTable(column=entry) if isinstance(entry, str) else entry
        column = more.column or name
        columns = (column,) if self.is_there(path, column) else ()
        notation = NumberNotation(more.format, more.unit)
        for key, is_given in (("factor", more.factor != 1.0), ("format", not notation.plain)):
            if is_given and kind not in ("int", "float"):
                self.mistake((*path, key), f"{name!r} is no number")
        return EventField(
            name, where, columns, kind, more.factor, more.values, default, repeated, notation
        )

    def default(self, name: str, kind: ValueType | None) -> Value:
        given = self.mapping.defaults.get(name)
        try:
            if isinstance(given, list):
                return [_typed(entry, kind) for entry in given]
            return _typed(given, kind)
        except ValueError as error:
            self.mistake(("defaults", name), f"{error}, not {given!r}")
            return None

    # ── fields of the event ──────────────────────────────────────────────────────────────────

    def finished_at(self) -> TimeField:
        entry = self.mapping.finished_at
        more = entry if isinstance(entry, TimeTable) else TimeTable(column=entry)
        if problem := zone_problem(more.timezone):
            self.mistake(("finished_at", "timezone"), problem)
            more = more.model_copy(update={"timezone": "UTC"})
        if problem := pattern_problem(more.format):
            self.mistake(("finished_at", "format"), f"{more.format!r} {problem}")
        elif more.default is not None:
            try:
                read_time(more.default, more.format, time_zone(more.timezone))
            except ValueError as error:
                self.mistake(("finished_at", "default"), f"{error}, not {more.default!r}")
        return TimeField(self.event_column("finished_at", entry is not None, more.column), more)

    def status(self) -> StatusField:
        entry = self.mapping.status
        more = entry if isinstance(entry, StatusTable) else StatusTable(column=entry)
        needed = entry is not None and (more.column is not None or bool(more.values))
        return StatusField(self.event_column("status", needed, more.column), more)

    def job(self) -> Iterator[EventField]:
        kinds: dict[str, ValueType] = {"attempt": "int", "measured_s": "float", "gpus": "int"}
        for name in ("job_id", "event_id", "attempt", "measured_s", "gpus", "user"):
            entry = getattr(self.mapping, name)
            more = entry if isinstance(entry, ColumnTable) else ColumnTable(column=entry)
            # A column of events' ids counts only when asked for: it is unique where it came from.
            column = None
            if entry is not None or name != "event_id":
                column = self.event_column(name, entry is not None, more.column)
            if column is not None:
                kind = kinds.get(name, "category")
                notation = NumberNotation(more.format, more.unit)
                yield EventField(
                    name, name, (column,), kind, more.factor, more.values, notation=notation
                )

    def event_column(self, name: str, needed: bool, column: str | None) -> str | None:
        """The column of a field; one that is called so by chance may be the study's."""
        if column is None and not needed:
            taken = {f.name for f in self.study.context} | {p.name for p in self.study.parameters}
            return name if name in self.columns and name not in taken else None
        column = column or name
        return column if self.is_there((name,), column) else None

    # ── what is said ─────────────────────────────────────────────────────────────────────────

    def there(self, section: str) -> Iterator[str]:
        return (c for c in getattr(self.mapping, section) if self.is_there((section,), c))

    def is_there(self, path: tuple[str, ...], column: str) -> bool:
        if column in self.columns:
            return True
        message = f"{self.table} has no column {column!r}"
        self.mistake(path, self.with_columns(message, column))
        return False

    def with_columns(self, message: str, wrong: str) -> str:
        """The message with the columns that there are; all of them once."""
        hint = suggestion(wrong, self.columns)
        if self.said:
            return message + hint
        self.said = True
        shown = ", ".join(self.columns[:MOST_SHOWN])
        more = len(self.columns) - MOST_SHOWN
        return f"{message}{hint}; it has {shown}{f' and {more} more' if more > 0 else ''}"

    def mistake(self, path: tuple[str, ...], message: str) -> None:
        where = self.where + ".".join(path)
        if (problem := ValidationProblem(where, message)) not in self.problems:
            self.problems.append(problem)

    def notes(self) -> Iterator[str]:
        if self.missing:
            names = ", ".join(self.missing)
            yield f"{self.table} has no column for {names}: its jobs count as without"
        if self.unmeasured:
            metric = self.study.objective.metric
            yield f"{self.table} begins with jobs without {metric!r}: they teach what runs"


def _scalar(value: Value) -> Scalar:
    if isinstance(value, list):
        raise ValueError("expected one value, not a list")
    return value


def _typed(value: Value, kind: ValueType | None) -> Scalar:
    return _scalar(value) if kind is None else typed(_scalar(value), kind)
