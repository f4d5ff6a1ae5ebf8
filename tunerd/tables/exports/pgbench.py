"""PostgreSQL's pgbench: what it prints at the end of each run, in one log or many."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tunerd.tables.exports.base import Export, Exporter, Head, Hint
from tunerd.tables.exports.commands import options_of

__all__ = ["EXPORTER"]

_FLAGS = {
    "c": "clients",
    "j": "threads",
    "T": "duration",
    "M": "query_mode",
    "s": "scale_factor",
    "t": "transactions",
    "f": "script",
    "D": "define",
    "R": "rate",
    "b": "builtin",
}
_LINES = (
    (r"transaction type: (.+)", "pgbench.transaction_type"),
    (r"scaling factor: ([\d.]+)", "pgbench.scaling_factor"),
    (r"query mode: (\w+)", "pgbench.query_mode"),
    (r"number of clients: (\d+)", "pgbench.clients"),
    (r"number of threads: (\d+)", "pgbench.threads"),
    (r"number of transactions per client: (\d+)", "pgbench.transactions_per_client"),
    (r"duration: (\d+) s", "pgbench.duration_s"),
    (r"number of transactions actually processed: (\d+)", "transactions"),
    (r"number of failed transactions: (\d+)", "failed_transactions"),
    (r"latency average (?:=|is) ([\d.]+) ms", "latency_average_ms"),
    (r"latency average: ([\d.]+) ms", "latency_average_ms"),
    (r"latency stddev (?:=|is) ([\d.]+) ms", "latency_stddev_ms"),
    (r"latency stddev: ([\d.]+) ms", "latency_stddev_ms"),
    (r"initial connection time = ([\d.]+) ms", "initial_connection_ms"),
    (r"tps = ([\d.]+) \(including connections establishing\)", "tps_with_connecting"),
    (r"tps = ([\d.]+)", "tps"),
)
_PATTERNS = tuple((re.compile(pattern), name) for pattern, name in _LINES)
_SETTING = re.compile(r"\s*(?:#|SET|--)?\s*([a-z][a-z_.]{2,40})\s*[=:]\s*'?([\w.+-]{1,40})'?;?\s*")


def _is_log(start: str) -> bool:
    return "transaction type:" in start and ("tps = " in start or "scaling factor:" in start)


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a run. What stands above a run (its command, ``name = value``) is part of it."""
    record: dict[str, Any] = {}
    inside = False
    for line in lines:
        text = line.strip()
        if text.startswith("transaction type:") and inside:
            yield record
            record, inside = {}, False
        if (options := options_of(text, "pgbench", _FLAGS)) is not None:
            if inside:
                yield record
                record, inside = {}, False
            record |= {f"option.{name}": value for name, value in options.items()}
            continue
        found = next(((n, m[1]) for p, n in _PATTERNS if (m := p.match(text))), None)
        if found is not None:
            name, value = found
            record[name] = _value(value)
            inside |= name == "pgbench.transaction_type"
        elif (setting := _SETTING.fullmatch(line.rstrip())) and not text.startswith("tps"):
            if inside and "tps" in record:
                yield record
                record, inside = {}, False
            if not inside:
                record[f"setting.{setting[1]}"] = _value(setting[2])
    if inside:
        yield record


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


_CHOSEN = ("pgbench.clients", "pgbench.threads", "pgbench.query_mode")


def _recognise(head: Head) -> Export | None:
    if not head.has("pgbench.scaling_factor") or not head.among(("tps", "latency_average_ms")):
        return None
    hints = {}
    for column in head.columns:
        section, _, name = column.partition(".")
        if column in _CHOSEN:
            hints[column] = Hint("parameter", "how pgbench was started", name)
        elif section == "setting":
            hints[column] = Hint("parameter", "stands above the run", name)
        elif section == "option":
            hints[column] = Hint("ignored", "is told by pgbench too", name)
        elif section == "pgbench":
            role = "ignored" if "duration" in name or "per_client" in name else "context"
            hints[column] = Hint(role, "what pgbench ran", name)
        else:
            hints[column] = Hint("metric", "measured by pgbench")
    own = {
        "clients",
        "threads",
        "duration",
        "query_mode",
        "scale_factor",
        "transactions",
        "script",
        "test",
        "builtin",
    }
    for column in head.starting("option."):
        if column[len("option.") :] not in own:
            hints[column] = Hint("parameter", "how pgbench was started", column[len("option.") :])
    goal = "tps" if "tps" in head.columns else "latency_average_ms"
    hints[goal] = Hint("objective", "measured by pgbench", None, 0.8,
                       "maximize" if goal == "tps" else "minimize")  # fmt: skip
    return Export(
        "pgbench", "a log of pgbench", ("transaction type", "scaling factor", "tps"), hints
    )


EXPORTER = Exporter("pgbench", _recognise, log=_log, is_log=_is_log)
