"""What ``backtest`` and ``simulate`` judge by: tables of old jobs, or a study's history."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunerd.cli.options import open_the_store, read_settings
from tunerd.errors import MisconfiguredError, ValidationProblem

if TYPE_CHECKING:
    from tunerd.core.observation import Observation
    from tunerd.core.study import Study
    from tunerd.settings import Settings

__all__ = ["HistoricalJobs", "old_jobs"]

PAGE = 5_000
MOST_REASONS = 8


@dataclass(frozen=True)
class HistoricalJobs:
    """A study and jobs of it, oldest first where dated."""

    study: "Study"
    observations: "tuple[Observation, ...]"
    """Sequences 1, 2, …"""
    dated: bool
    unusable: Mapping[str, int]
    """Rows that could not be used, by reason."""
    notes: tuple[str, ...]
    source: str
    """Where they came from, for people."""

    def warnings(self) -> list[str]:
        """What a person should know of them, a line each."""
        lines = [f"note: {note}" for note in self.notes]
        count = sum(self.unusable.values())
        if count:
            lines.append(f"{count:,} {'row' if count == 1 else 'rows'} cannot be used:")
            lines += [f"  {n:,}: {why}" for why, n in list(self.unusable.items())[:MOST_REASONS]]
        return lines


def old_jobs(
    study: str,
    files: Sequence[Path],
    mapping: Path | None,
    settings: Path | None,
    progress: Callable[[int, int], None] | None = None,
) -> HistoricalJobs:
    """Read the jobs of ``study``, a study file or the name of a study.

    Args:
        study: a path, else the name of a study in the folder of the settings or in the store.
        files: tables of old jobs; without any, the study's history in the store.
        mapping: a mapping beside the study's own.
        settings: the settings file, where a name or the store needs one.
        progress: told bytes read and bytes in all.

    Raises:
        MisconfiguredError: with everything that is wrong, and when no job can be used.
    """
    if mapping is not None and not files:
        raise click.UsageError("--mapping says how to read a FILE; there is none")
    history = _study(study, settings)
    jobs = _of_tables(history, files, mapping, progress) if files else _of_store(history, settings)
    if not jobs.observations:
        why = "; ".join(jobs.warnings()) or "no job has finished yet"
        raise MisconfiguredError([ValidationProblem(jobs.source, f"no job to go by: {why}")])
    return jobs


def _study(name: str, settings: Path | None) -> "Study":
    from tunerd.core.expressions import suggestion
    from tunerd.core.study_file import parse_study
    from tunerd.settings import is_there
    from tunerd.settings.studies import load_studies, read_study

    if name.endswith(".toml") or Path(name).is_file():
        return read_study(Path(name))
    known = read_settings(settings)
    in_folder = load_studies(known.studies) if is_there(known.studies) else ()
    for study in in_folder:
        if study.name == name:
            return study
    with open_the_store(known, upgrade=False) as store:
        generation = store.generation(name)
        names = sorted({s.name for s in in_folder} | {s.name for s in store.studies()})
    if generation is None:
        there = f"there are {', '.join(names)}" if names else "there is none"
        message = f"no such study file, and no such study; {there}{suggestion(name, names)}"
        raise MisconfiguredError([ValidationProblem(name, message)])
    return parse_study(generation.text, name)


def _of_tables(
    study: "Study",
    files: Sequence[Path],
    mapping: Path | None,
    progress: Callable[[int, int], None] | None,
) -> HistoricalJobs:
    from tunerd.lab.tables.files import open_table
    from tunerd.lab.tables.mapping import read_mapping, read_observations, reading_of

    mapping_file = None if mapping is None else read_mapping(mapping, study)
    reading = reading_of(study, study.mapping if mapping_file is None else mapping_file)
    tables = [open_table(file, reading) for file in files]
    history = read_observations(study, mapping_file, tables, progress)
    notes = [f"{table.path}: {line}" for table in tables for line in table.told()]
    source = ", ".join(str(file) for file in files)
    return HistoricalJobs(
        study,
        history.observations,
        history.dated,
        history.unusable,
        (*history.notes, *notes),
        source,
    )


def _of_store(study: "Study", file: Path | None) -> HistoricalJobs:
    from tunerd.core.observation import effective

    settings: Settings = read_settings(file)
    jobs: list[Observation] = []
    with open_the_store(settings, upgrade=False) as store:
        after = 0
        while page := store.observations(study.name, after=after, limit=PAGE):
            jobs += page
            after = page[-1].sequence
    return HistoricalJobs(study, tuple(effective(jobs)), True, {}, (), f"history of {study.name}")
