"""The folder of studies: one TOML file each."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.toml import MOST_BYTES
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.files import read_text

__all__ = ["load_studies", "passed_over", "read_studies", "read_study"]

_MEANT = re.compile(r"[^.].*\.(tml|toml\.txt)", re.IGNORECASE)
"""Names that a study file gets by a slip, or from an editor that adds its own ending."""


def load_studies(folder: Path) -> tuple[Study, ...]:
    """Read every ``*.toml`` of a folder, in capitals or not, in the order of their names.

    Raises:
        MisconfiguredError: with the mistakes of all files, a missing folder, and two files
            that describe a study of the same name.
    """
    try:
        files = sorted(path for path in folder.iterdir() if _is_study(path))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "this cannot be the name of one"
        raise MisconfiguredError(
            [ValidationProblem(str(folder), f"cannot read the folder of studies: {why}")]
        ) from None
    return read_studies(files)


def passed_over(folder: Path) -> list[str]:
    """Say of what looks like studies in a folder and is not read why not, a sentence each."""
    notes = []
    with suppress(OSError, ValueError):  # who reads the studies says so
        for path in sorted(folder.iterdir()):
            if _MEANT.fullmatch(path.name):
                notes.append(f"{path} is not read: the name of a study file ends in .toml")
            elif not path.name.startswith(".") and path.is_dir() and any(_studies_in(path)):
                notes.append(f"{path} is not read: studies lie in {folder} itself")
    return notes


def _studies_in(folder: Path) -> list[Path]:
    with suppress(OSError):
        return [path for path in folder.iterdir() if _is_study(path)]
    return []


def _is_study(path: Path) -> bool:
    return path.suffix.lower() == ".toml"


def read_studies(files: Sequence[Path]) -> tuple[Study, ...]:
    """Read study files; raises ``MisconfiguredError`` with the mistakes of all of them."""
    problems: list[ValidationProblem] = []
    by_name: dict[str, tuple[Path, Study]] = {}
    for file in files:
        try:
            study = read_study(file)
        except MisconfiguredError as error:
            problems += error.problems
            continue
        if study.name in by_name:
            other = by_name[study.name][0]
            problems.append(
                ValidationProblem(
                    f"{file}: name", f"{study.name!r} is the name of the study in {other} too"
                )
            )
        else:
            by_name[study.name] = (file, study)
    if problems:
        raise MisconfiguredError(problems)
    return tuple(study for _, study in by_name.values())


def read_study(file: Path) -> Study:
    """Read one study file; raises ``MisconfiguredError`` with all of its mistakes."""
    try:
        text = read_text(file, MOST_BYTES)
    except OSError as error:
        raise MisconfiguredError(
            [ValidationProblem(str(file), f"cannot be read: {error.strerror}")]
        ) from None
    except UnicodeDecodeError as error:
        raise MisconfiguredError(
            [ValidationProblem(str(file), f"should be UTF-8; byte {error.start} is not")]
        ) from None
    return parse_study(text, str(file))
