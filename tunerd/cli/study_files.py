"""Study files beside what runs: a file that was changed holds only when it was taken up."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunerd.core.study import Study
    from tunerd.store import Store

__all__ = ["StudyFiles", "study_files"]


@dataclass(frozen=True)
class StudyFiles:
    """What the folder of studies holds at the moment."""

    folder: Path
    studies: "Mapping[str, Study]"
    """By name; those whose files have no mistake."""
    problems: int
    """Mistakes; `tunerd check` lists them."""
    missing: bool
    """There is no folder, or it cannot be looked into from here."""

    def beside(self, store: "Store", name: str) -> dict[str, Any] | None:
        """How a study's file differs from the generation that runs; None where nobody can say."""
        study, runs = self.studies.get(name), store.generation(name)
        if study is None or runs is None:
            return None if self.missing or self.problems else {"state": "missing", "changes": []}
        if study.content_hash == runs.content_hash:
            return {"state": "same", "changes": []}
        from dataclasses import asdict

        from tunerd.core.study_file import parse_study
        from tunerd.core.study_file.diff import differences

        was = parse_study(runs.text, f"{name}, generation {runs.generation}")
        changes = [asdict(difference) for difference in differences(was, study)]
        return {"state": "differs", "changes": changes}

    def told(self, known: Collection[str]) -> dict[str, Any]:
        """What concerns no study that runs."""
        return {
            "folder": str(self.folder),
            "problems": self.problems,
            "not_taken_up": sorted(name for name in self.studies if name not in known),
        }


def study_files(folder: Path) -> StudyFiles:
    """Read the folder of studies, as far as it can be read."""
    from tunerd.errors import MisconfiguredError
    from tunerd.settings.studies import read_studies

    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except (OSError, ValueError):
        return StudyFiles(folder, {}, 0, missing=True)
    by_name: dict[str, Study] = {}
    problems = 0
    for path in paths:
        try:
            (study,) = read_studies([path])
        except MisconfiguredError as error:
            problems += len(error.problems)
        else:
            by_name[study.name] = study
    return StudyFiles(folder, by_name, problems, missing=False)
