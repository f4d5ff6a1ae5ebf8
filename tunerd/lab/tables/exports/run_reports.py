"""Reports of one run: a trainer that reports every epoch writes many rows of one job."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tunerd.core.observation import Value
from tunerd.lab.tables.exports.base import (
    ColumnHint,
    DetectedExport,
    ExportFormat,
    ReadOptions,
    Reshape,
    Rows,
    TableHead,
    is_numeric,
    names,
)
from tunerd.lab.tables.rows import SkippedRows, TableRow

__all__ = ["EXPORTER", "one_row_per_run"]

MOST_OPEN = 20_000
"""Runs whose reports may come mixed. Of more, the one that began first counts as ended."""

_RUNS = names("""
    trial_id run_id run run_name run_uuid trial trial_name job_id jobid experiment_id exp_id
    exp_name task_id experiment uuid wandb_run
""")
_PROGRESS = names("""
    training_iteration global_step step _step train_step training_step iteration iter epoch steps
    epochs round batch_idx num_steps timestep timesteps
""")
_EPOCHS = names("epoch global_step training_iteration train_step training_step")
"""What counts reports even where runs have no name: other counts may be of repeats."""


def one_row_per_run(run: str | None, progress: str, thing: str) -> Reshape:
    """Join the reports of each run into one row.

    Args:
        run: the column that names it. Without one a run ends where ``progress`` does not rise.
        progress: the column that counts its reports.
        thing: what the tool calls a run.
    """

    def reshape(rows: Rows, not_jobs: SkippedRows, reading: ReadOptions) -> Rows:
        if reading.reports == "all":
            yield from rows
            return
        joined = _RunDeduplicator(
            run, progress, f"an earlier report of a {thing}", not_jobs, reading
        )
        yield from joined.over(rows)

    return reshape


@dataclass
class _RunDeduplicator:
    run: str | None
    progress: str
    dropped: str
    not_jobs: SkippedRows
    reading: ReadOptions

    def over(self, rows: Rows) -> Rows:
        """The chosen report of each run, in the order in which runs begin."""
        open_: dict[object, TableRow] = {}
        turn = 0
        before: float | None = None
        for row in rows:
            if not isinstance(row, TableRow):
                yield row
                continue
            key: object = row.values.get(self.run) if self.run else None
            if self.run is None:
                place = _number(row.values.get(self.progress))
                turn += before is not None and place is not None and place <= before
                before = place if place is not None else before
                key = turn
            if key is None:
                yield row
                continue
            key = key if not isinstance(key, list) else str(key)
            known = open_.get(key)
            if known is not None:
                self.not_jobs.add(self.dropped)
                open_[key] = self.chosen(known, row)
                continue
            open_[key] = row
            if len(open_) > MOST_OPEN:
                yield open_.pop(next(iter(open_)))
        yield from open_.values()

    def chosen(self, first: TableRow, second: TableRow) -> TableRow:
        """One of two reports of a run; the second stands below the first."""
        if self.reading.reports == "best" and self.reading.metric is not None:
            value = _number(first.values.get(self.reading.metric))
            other = _number(second.values.get(self.reading.metric))
            if value is None or other is None:
                return first if other is None and value is not None else second
            better = other > value if self.reading.goal == "maximize" else other < value
            return second if better else first
        value, other = (_number(row.values.get(self.progress)) for row in (first, second))
        return first if value is not None and other is not None and other < value else second


def _number(value: Value) -> float | None:
    if isinstance(value, bool | list) or value is None:
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _recognise(head: TableHead) -> DetectedExport | None:
    """Any table in which what runs comes again, and only what is measured differs."""
    run, progress = _columns(head)
    if progress is None:
        return None
    if run is None and _plain(progress) not in _EPOCHS and not any(map(_of_training, head.columns)):
        return None
    runs = _by_run(head, run) if run is not None else _by_resets(head, progress)
    if not _is_of_reports(head, runs, progress, run):
        return None
    return _export(run, progress, f"reports of {len(runs)} or more runs")


def _asked(head: TableHead) -> DetectedExport | None:
    """The same where a mapping says so: one run is enough."""
    run, progress = _columns(head)
    return None if progress is None else _export(run, progress, "reports of runs")


def _export(run: str | None, progress: str, title: str) -> DetectedExport:
    again = f"{run} that comes again" if run is not None else f"{progress} that begins anew"
    hints = {progress: ColumnHint("ignored", f"counts the reports of a {run or 'run'}")}
    if run is not None:
        hints[run] = ColumnHint("job_id", "names the run")
    return DetectedExport(
        "reports",
        title,
        (again, f"{progress} that rises"),
        hints,
        reshape=one_row_per_run(run, progress, "run"),
        reported="run",
    )


def _columns(head: TableHead) -> tuple[str | None, str | None]:
    """The column that names runs, and the one that counts their reports."""
    lower = {_plain(column): column for column in reversed(head.columns)}
    run = next((lower[name] for name in _RUNS if name in lower), None)
    progress = next((lower[name] for name in _PROGRESS if name in lower), None)
    return run, progress if progress and is_numeric(head.values(progress)) else None


def _of_training(column: str) -> bool:
    """Whether a column is of what only training reports."""
    return not {"loss", "perplexity", "ppl"}.isdisjoint(_plain(column).split("_"))


def _plain(column: str) -> str:
    return column.strip().lower().replace(" ", "_").replace("-", "_")


def _is_of_reports(
    head: TableHead, runs: dict[str, list[TableRow]], progress: str, run: str | None
) -> bool:
    several = [rows for rows in runs.values() if len(rows) > 1]
    if len(runs) < 2 or 2 * len(several) < len(runs):
        return False
    if not all(_rises(rows, progress) for rows in several):
        return False
    others = [column for column in head.columns if column not in (run, progress)]
    varying = [column for column in others if any(_differs(rows, column) for rows in several)]
    fixed = [column for column in others if column not in varying]
    chosen = any(len({str(rows[0].values.get(c)) for rows in runs.values()}) > 1 for c in fixed)
    return chosen and all(_is_reported(head, several, column) for column in varying)


def _by_run(head: TableHead, run: str) -> dict[str, list[TableRow]]:
    runs: dict[str, list[TableRow]] = {}
    for row in head.rows:
        if (name := row.values.get(run)) is not None:
            runs.setdefault(str(name), []).append(row)
    return runs


def _by_resets(head: TableHead, progress: str) -> dict[str, list[TableRow]]:
    """Runs that have no name: one ends where its progress does not rise."""
    runs: dict[str, list[TableRow]] = {}
    before: float | None = None
    for row in head.rows:
        place = _number(row.values.get(progress))
        if before is None or (place is not None and place <= before):
            runs[str(len(runs))] = []
        runs[str(len(runs) - 1)].append(row)
        before = place if place is not None else before
    return runs


def _rises(rows: list[TableRow], column: str) -> bool:
    return all(place < other for place, other in _pairs(_places(rows, column)))


def _pairs(places: list[float]) -> Iterator[tuple[float, float]]:
    return pairwise(places)


def _differs(rows: list[TableRow], column: str) -> bool:
    return len({str(row.values.get(column)) for row in rows}) > 1


def _is_reported(head: TableHead, several: list[list[TableRow]], column: str) -> bool:
    """Whether what differs within runs was measured: many values, a clock, a flag at the end."""
    values = head.values(column)
    if not values or set(map(str, values)) <= {"true", "false", "True", "False"}:
        return True
    if len(set(map(str, values))) >= 0.5 * len(values):
        return True
    places = [_places(rows, column) for rows in several]
    return is_numeric(values) and all(
        place <= other for run in places for place, other in _pairs(run)
    )


def _places(rows: list[TableRow], column: str) -> list[float]:
    numbers = (_number(row.values.get(column)) for row in rows)
    return [place for place in numbers if place is not None]


EXPORTER = ExportFormat("reports", _recognise, asked=_asked)
