"""Folders of runs as one table: MLflow's file store, Ray Tune's trials, JSON results of each run.

Only regular files are read, in the order of their names; links are not followed.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.files import read_bytes
from tunerd.lab.tables.documents import records_in
from tunerd.lab.tables.rows import TableRow, UnreadableLine, flattened

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
            " (result.json), or a JSON file for each run. A table is a file"
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
    for file in trials or [path for path in files if path.suffix.lower() in _JSON]:
        try:
            text = _text(file)
        except OSError as error:
            yield UnreadableLine(0, str(error.strerror or error), str(file))
            continue
        for row in records_in(text):
            yield _named(row, folder, file, bool(trials))


def _named(
    row: TableRow | UnreadableLine, folder: Path, file: Path, trial: bool
) -> Mapping[str, Any] | UnreadableLine:
    """A record with the name of its file, and of a trial with what it was given."""
    if isinstance(row, UnreadableLine):
        return UnreadableLine(0, row.reason, f"{file}: {row.text}")
    values = dict(row.values)
    if not trial:
        return {"file": str(file.relative_to(folder)), **values}
    values.setdefault("trial_id", file.parent.name)
    if not any(name.startswith("config") for name in values):
        with suppress(OSError, ValueError, RecursionError):
            given = json.loads(_text(file.with_name("params.json")))
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
