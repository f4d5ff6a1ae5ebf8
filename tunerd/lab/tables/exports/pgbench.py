"""PostgreSQL's pgbench: what it prints at the end of each run, in one log or many."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tunerd.lab.tables.exports.base import ColumnHint, DetectedExport, ExportFormat, TableHead
from tunerd.lab.tables.exports.command_lines import ended, is_trouble, number_or_text, options_of

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
    run = _PgbenchRun()
    for line in lines:
        text = line.strip()
        begins = text.startswith("transaction type:") and "pgbench.transaction_type" in run.record
        options = options_of(text, "pgbench", _FLAGS)
        setting = _SETTING.fullmatch(line.rstrip())
        above = setting is not None and run.measured and not text.startswith("tps")
        if run.begun and (begins or options is not None or above):
            yield run.ended()
            run = _PgbenchRun()
        run.take(text, options, setting)
    if run.begun:
        yield run.ended()


class _PgbenchRun:
    def __init__(self) -> None:
        self.record: dict[str, Any] = {}
        self.begun = False
        self.trouble = False

    @property
    def measured(self) -> bool:
        return "tps" in self.record

    def ended(self) -> dict[str, Any]:
        return ended(self.record, ("tps", "latency_average_ms"), self.trouble)

    def take(
        self, text: str, options: Mapping[str, str] | None, setting: re.Match[str] | None
    ) -> None:
        """Take what one line says."""
        if options is not None:
            self.record |= {f"option.{k}": number_or_text(v) for k, v in options.items()}
            self.begun = True
            return
        match = next(((n, m[1]) for p, n in _PATTERNS if (m := p.match(text))), None)
        if match is not None:
            self.record[match[0]] = number_or_text(match[1])
            self.begun |= match[0] == "pgbench.transaction_type"
        elif setting is not None and "pgbench.transaction_type" not in self.record:
            self.record[f"setting.{setting[1]}"] = number_or_text(setting[2])
        self.trouble |= "failed transactions" not in text and is_trouble(text)


_CHOSEN = ("pgbench.clients", "pgbench.threads", "pgbench.query_mode")


def _recognise(head: TableHead) -> DetectedExport | None:
    if not head.has("pgbench.scaling_factor") or not head.among(("tps", "latency_average_ms")):
        return None
    hints = {}
    for column in head.columns:
        section, _, name = column.partition(".")
        if column in _CHOSEN:
            hints[column] = ColumnHint("parameter", "how pgbench was started", name)
        elif section == "setting":
            hints[column] = ColumnHint("parameter", "stands above the run", name)
        elif section == "option":
            hints[column] = ColumnHint("ignored", "is told by pgbench too", name)
        elif section == "pgbench":
            role = "ignored" if "duration" in name or "per_client" in name else "context"
            hints[column] = ColumnHint(role, "what pgbench ran", name)
        else:
            hints[column] = ColumnHint("metric", "measured by pgbench")
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
            hints[column] = ColumnHint(
                "parameter", "how pgbench was started", column[len("option.") :]
            )
    hints["status"] = ColumnHint("status", "whether the run ended with a result")
    goal = "tps" if "tps" in head.columns else "latency_average_ms"
    hints[goal] = ColumnHint("objective", "measured by pgbench", None, 0.8,
                       "maximize" if goal == "tps" else "minimize")  # fmt: skip
    return DetectedExport(
        "pgbench", "a log of pgbench", ("transaction type", "scaling factor", "tps"), hints
    )


EXPORTER = ExportFormat("pgbench", _recognise, log=_log, is_log=_is_log)
