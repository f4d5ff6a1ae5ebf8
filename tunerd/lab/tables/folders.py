"""Folders of runs as one table: MLflow's file store, Ray Tune's trials, a JSON result, a CSV or
what a program printed of each run. What the names of files and folders say is read too.

Only regular files are read, in the order of their names; links are not followed.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.files import read_bytes
from tunerd.lab.tables.documents import is_known, is_log, log_records, records_in
from tunerd.lab.tables.exports.command_lines import is_secret
from tunerd.lab.tables.exports.smac import hpbandster_trials
from tunerd.lab.tables.path_settings import path_settings
from tunerd.lab.tables.rows import TableRow, UnreadableLine, flattened
from tunerd.lab.tables.text_reader import open_text

__all__ = ["folder_bytes", "folder_digest", "folder_rows"]

MOST_FILES = 200_000
MOST_DEEP = 6
"""Folders within folders that are looked into."""
MAX_FILE = 32 << 20
"""Bytes of one file in a folder."""
_MLFLOW = ("params", "metrics", "tags")
_STATUSES = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
"""What numbers in MLflow's ``meta.yaml`` stand for."""
_JSON = (".json", ".jsonl", ".ndjson")
_LOGS = (".txt", ".log", ".out", "")
_TABLES = (".csv", ".tsv")


def folder_rows(folder: Path) -> Iterator[TableRow | UnreadableLine]:
    """The runs in a folder. Raises MisconfiguredError when there is none."""
    files = _files(folder)
    number = 0
    for row in _runs(folder, files):
        number += 1
        if isinstance(row, UnreadableLine):
            yield UnreadableLine(number, row.reason, row.text)
        else:
            yield TableRow(number, row)
    if not number:
        message = (
            "is a folder without runs that are known: MLflow's store, Ray Tune's trials"
            " (result.json), a JSON file for each run, or what a known program printed of each, or"
            " several CSVs"
        )
        raise MisconfiguredError([ValidationProblem(str(folder), message)])


def folder_bytes(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in _files(folder))


def folder_digest(folder: Path) -> str:
    """SHA-256 of the names and contents of its files."""
    digest = hashlib.sha256()
    for file in _files(folder):
        digest.update(str(file.relative_to(folder)).encode("utf-8", "surrogateescape"))
        digest.update(hashlib.sha256(_bytes(file)).digest())
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    """Its regular files, in the order of their names."""
    files: list[Path] = []
    for place, folders, names in os.walk(folder):
        here = Path(place)
        if len(here.relative_to(folder).parts) >= MOST_DEEP:
            folders.clear()
        folders.sort()
        files += [
            here / name for name in sorted(names) if _is_plain(here / name) and name[0] != "."
        ]
        if len(files) > MOST_FILES:
            message = f"has more than {MOST_FILES:,} files"
            raise MisconfiguredError([ValidationProblem(str(folder), message)])
    return files


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _bytes(path: Path) -> bytes:
    """What is in a file; raises OSError where it is too large."""
    return read_bytes(path, MAX_FILE)


def _text(path: Path) -> str:
    return _bytes(path).decode("utf-8", "replace")


def _runs(folder: Path, files: list[Path]) -> Iterator[Mapping[str, Any] | UnreadableLine]:
    if stores := _stores(files):
        yield from (_mlflow_run(run, logged) for run, logged in stores.items())
        return
    trials = [file for file in files if file.name == "result.json"]
    if trials:
        for file in trials:
            for row in _records(file):
                yield row if isinstance(row, UnreadableLine) else _trial(row, file)
        return
    results = [file for file in files if file.name == "results.json"]
    if results and all(file.with_name("configs.json") in files for file in results):
        yield from (row for file in results for row in _of_hpbandster(file))
        return
    yield from _one_each(folder, files)


def _of_hpbandster(results: Path) -> Iterator[Mapping[str, Any]]:
    lines = _lines(results.with_name("configs.json")), _lines(results)
    return map(flattened, hpbandster_trials(*lines))


def _one_each(folder: Path, files: list[Path]) -> Iterator[Mapping[str, Any] | UnreadableLine]:
    """The runs of a folder with a file, or a folder, for each."""
    documents = [path for path in files if path.suffix.lower() in _JSON]
    texts = [path for path in files if path.suffix.lower() in _LOGS]
    logs = [path for path in texts if _is_log(path)] if len(texts) > len(documents) else []
    if len(logs) > len(documents):
        documents = []  # they say something about the runs
    tables = [path for path in files if path.suffix.lower() in _TABLES]
    if len(tables) > max(1, len(documents), len(logs)):
        documents, logs = [], []
    runs: Mapping[Path, Iterable[TableRow | UnreadableLine]] = _by_folder(documents)
    runs = runs or {path: _records(path) for path in documents or logs or tables}
    named = path_settings([path.relative_to(folder) for path in runs])
    tool = None
    for (path, rows), settings in zip(runs.items(), named, strict=True):
        if settings is None:
            yield UnreadableLine(
                0, "its name has no settings as the names of all others", str(path)
            )
            continue
        beside = {"file": str(path.relative_to(folder)), **_overrides(path)}
        for row in rows:
            if isinstance(row, UnreadableLine):
                yield row
                continue
            if logs and not documents:
                tool = _same_tool(folder, tool, row)
            known = {name.rpartition(".")[2].lower() for name in (*beside, *row.values)}
            new = {name: value for name, value in settings.items() if name.lower() not in known}
            yield {**beside, **row.values, **new}


def _lines(file: Path) -> Iterator[Any]:
    """The JSON values in the lines of a file; without lines that are none."""
    for line in _text(file).splitlines():
        with suppress(ValueError, RecursionError):
            yield json.loads(line)


def _same_tool(folder: Path, tool: Any, row: TableRow) -> Any:
    """The program whose output a row is of; raises MisconfiguredError where it is another one."""
    other = row.values.get("tool")
    if tool not in (None, other):
        message = f"has what {tool} and {other} print: a table is of one, so put them apart"
        raise MisconfiguredError([ValidationProblem(str(folder), message)])
    return other


def _records(file: Path) -> Iterator[TableRow | UnreadableLine]:
    """The records in a file, or why there are none."""
    try:
        if file.suffix.lower() in _TABLES:
            yield from _table_rows(file)
            return
        if file.suffix.lower() not in _JSON:
            yield from (row for row in log_records(file) if isinstance(row, TableRow))
            return
        for row in records_in(_text(file)):
            if isinstance(row, UnreadableLine):
                yield UnreadableLine(0, row.reason, f"{file}: {row.text}")
            else:
                yield row
    except OSError as error:
        yield UnreadableLine(0, str(error.strerror or error), str(file))


def _table_rows(file: Path) -> Iterator[TableRow | UnreadableLine]:
    """The rows of one of several tables in a folder; raises OSError where it is too large."""
    from tunerd.lab.tables.files import ReadOptions, open_table  # which opens folders too

    if file.stat().st_size > MAX_FILE:
        raise OSError(f"has more than {MAX_FILE:,} bytes")
    try:
        yield from open_table(file, ReadOptions("none", part=True)).rows()
    except MisconfiguredError as error:
        yield UnreadableLine(0, error.problems[0].message, str(file))


def _is_log(file: Path) -> bool:
    """Whether a file is what a known program prints."""
    with suppress(OSError, MisconfiguredError), open_text(file) as text:
        return is_log(text.text.read(1 << 16))
    return False


def _by_folder(files: list[Path]) -> dict[Path, list[TableRow | UnreadableLine]]:
    """One record for each folder of a run that has several files: what went in, what came out.

    Empty where folders do not have the same files; of runs that failed some may lack what came
    out. What an exporter knows stands for its folder.
    """
    folders: dict[Path, list[Path]] = {}
    for file in files:
        folders.setdefault(file.parent, []).append(file)
    counts = Counter(file.name for file in files)
    common = {name for name, count in counts.items() if 4 * count >= 3 * len(folders)}
    first = next((folder for folder in folders if all((folder / c).exists() for c in common)), None)
    if len(folders) < 2 or len(common) < 2 or first is None:
        return {}
    names = {name for name in common if _is_known(first / name)} or common
    if len(names) > 1 and _are_alike([first / name for name in names]):
        return {}  # each is a run
    return {
        folder: _joined([f for f in many if f.name in names], len(names) > 1)
        for folder, many in folders.items()
    }


def _are_alike(files: list[Path]) -> bool:
    """Whether two files of a folder have mostly the same names in them."""
    keys = [
        set(row.values)
        for file in files
        for row in islice(_records(file), 1)
        if isinstance(row, TableRow)
    ]
    return any(2 * len(a & b) > min(len(a), len(b)) for a, b in combinations(keys, 2))


def _is_known(file: Path) -> bool:
    """Whether an exporter takes a document apart."""
    with suppress(OSError, ValueError, RecursionError):
        return is_known(json.loads(_text(file)))
    return False


def _joined(files: list[Path], several: bool) -> list[TableRow | UnreadableLine]:
    """The records of the files of a run as one, each under the name of its file. A file with
    several records is a log of the run."""
    values: dict[str, Any] = {}
    unread: list[TableRow | UnreadableLine] = []
    for file in files:
        rows = list(islice(_records(file), 2))
        unread += [row for row in rows if isinstance(row, UnreadableLine)]
        if len(rows) == 1 and isinstance(rows[0], TableRow):
            section = f"{file.stem}." if several else ""
            values |= {f"{section}{name}": value for name, value in rows[0].values.items()}
    return [TableRow(0, values)] if values else unread[:1]


def _overrides(path: Path) -> dict[str, Any]:
    """What Hydra was told for a run: lines as ``- lr=0.1`` beside it."""
    where = path if path.is_dir() else path.parent
    overrides = where / ".hydra" / "overrides.yaml"
    lines: list[str] = []
    with suppress(OSError):
        plain = _is_plain(overrides) and not overrides.parent.is_symlink()
        lines = _text(overrides).splitlines() if plain else []
    items = (line[2:].strip().strip("'\"") for line in lines if line.startswith("- "))
    pairs = (item.lstrip("+").partition("=") for item in items if not item.startswith("~"))
    return {
        f"config.{name}": value.strip("'\"")
        for name, equal, value in pairs
        if equal and not is_secret(name)
    }


def _trial(row: TableRow, file: Path) -> Mapping[str, Any]:
    """A report of a trial with what this was given."""
    values = dict(row.values)
    values.setdefault("trial_id", file.parent.name)
    if not any(name.startswith("config") for name in values):
        with suppress(OSError, ValueError, RecursionError):
            parameters = file.with_name("params.json")
            given = json.loads(_text(parameters)) if _is_plain(parameters) else None
            values |= flattened({"config": given}) if isinstance(given, dict) else {}
    return values


def _stores(files: list[Path]) -> dict[Path, list[Path]]:
    """The runs of MLflow's store, each with its files of parameters, metrics and tags.

    An experiment has a ``meta.yaml`` too, and no such files.
    """
    stores: dict[Path, list[Path]] = {f.parent: [] for f in files if f.name == "meta.yaml"}
    for file in files:
        run = next((folder for folder in file.parents[1:MOST_DEEP] if folder in stores), None)
        if run is not None and file.relative_to(run).parts[0] in _MLFLOW:
            stores[run].append(file)
    return {run: logged for run, logged in stores.items() if logged}


def _mlflow_run(run: Path, files: list[Path]) -> Mapping[str, Any] | UnreadableLine:
    """One run of MLflow's store, with the columns that ``search_runs`` gives it."""
    try:
        about = _yaml(_text(run / "meta.yaml"))
        values: dict[str, Any] = {
            "run_id": about.get("run_id") or about.get("run_uuid") or run.name,
            "experiment_id": about.get("experiment_id"),
            "status": _STATUSES.get(about.get("status", ""), about.get("status")),
            "start_time": about.get("start_time"),
            "end_time": about.get("end_time"),
            "artifact_uri": about.get("artifact_uri"),
        }
        for file in files:
            part, *name = file.relative_to(run).parts
            text = _text(file)
            values[f"{part}.{'/'.join(name)}"] = _last(text) if part == "metrics" else text.strip()
    except OSError as error:
        return UnreadableLine(0, str(error.strerror or error), str(run))
    missing = ("", "null", "None")
    return {name: None if value in missing else value for name, value in values.items()}


def _last(text: str) -> str | None:
    """The last value of a metric: a line has a time, a value and a step."""
    parts = text.strip().rpartition("\n")[2].split()
    return parts[1] if len(parts) > 1 else None


def _yaml(text: str) -> dict[str, str]:
    """The scalars of MLflow's own YAML, one ``name: value`` a line."""
    pairs = (line.partition(":") for line in text.splitlines() if line[:1] not in (" ", "#", "-"))
    return {name.strip(): value.strip().strip("'\"") for name, colon, value in pairs if colon}
