"""Tables with the commands of their runs: what these set are columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    Reshape,
    TableHead,
    each_row,
    names,
)
from tunerd.lab.tables.exports.command_lines import arguments_of

__all__ = ["EXPORTER", "options_in", "with_options"]

_COLUMNS = names("command cmd cmdline command_line commandline invocation command_being_timed")
_OPTION = "option."
MOST_OPTIONS = 100


def options_in(head: TableHead, column: str) -> dict[str, ColumnHint]:
    """What the commands of a column set and no other column says, as columns of their own: what
    differs from run to run."""
    commands = [arguments_of(str(command)) for command in head.values(column)]
    varying = [
        name
        for name in dict.fromkeys(name for command in commands for name in command)
        if len({command.get(name) for command in commands}) > 1
    ]
    known = {_column(row.values.get(other) for row in head.rows) for other in head.columns}
    return {
        f"{_OPTION}{name}": ColumnHint(INPUT, "stands in the command", name)
        for name in varying[:MOST_OPTIONS]
        if _column(command.get(name) for command in commands) not in known
    }


def _column(values: Any) -> tuple[str, ...]:
    return tuple(map(str, values))


def with_options(column: str, options: Sequence[str], head: TableHead) -> Reshape:
    """The rows with what their commands set. The commands are not kept: a password may stand
    there. A switch that stands in some is false in the others."""
    commands = [_set(row.values, column) for row in head.rows]
    switches = {name for name in options if {c.get(name) for c in commands} == {None, "true"}}

    missing = {name: "false" if name in switches else None for name in options}

    def of_row(row: Mapping[str, Any]) -> dict[str, Any]:
        given = _set(row, column)
        values = {name: value for name, value in row.items() if name != column}
        return {**values, **{n: given.get(n, v) for n, v in missing.items()}}

    return each_row(of_row)


def _set(values: Mapping[str, Any], column: str) -> dict[str, str]:
    given = arguments_of(str(values.get(column) or ""))
    return {f"{_OPTION}{name}": value for name, value in given.items()}


def _recognise(head: TableHead) -> DetectedExport | None:
    plain = {c.strip().lower().replace(" ", "_"): c for c in reversed(head.columns)}
    column = next((plain[name] for name in _COLUMNS if name in plain), None)
    options = options_in(head, column) if column is not None else {}
    if column is None or not options:
        return None
    return DetectedExport(
        "commands",
        "a table with the commands of its runs",
        (column,),
        options,
        reshape=with_options(column, list(options), head),
        columns=(*(c for c in head.columns if c != column), *options),
    )


EXPORTER = ExportFormat("commands", _recognise)
