"""How many columns ``tunerd init`` takes for what they are, over tables that are described.

Every ``NAME.json`` in a folder describes a table beside it (``NAME.csv.gz``, or any other format
that tunerd reads): ``columns`` with ``name``, ``role`` and ``type``. The study is drafted without
any help, and each column of the table is held against its description:

- ``context``, ``tunable``, ``status``, ``timestamp``: it has to be in the draft as that;
- ``objective``: it has to be the draft's objective, or one of its further metrics, for a study has
  one objective and a table may have several; that the draft's objective is one that the description
  calls so is a figure of its own;
- ``auxiliary``: it must be neither context nor parameter, objective, status nor time;
- type, for context and tunables: that of the study, ``int``, ``float``, ``category`` (described as
  ``string`` too) or ``bool``. A ``float`` of whole numbers only may be an ``int`` (a described type
  is often that of pandas, which cannot hold missing integers), and a ``category`` of ``True`` and
  ``False`` a ``bool``. The others have to be numbers, texts or times as described: a study gives
  them no type.

A column is right when its role and its type are. Nothing here is about any one table.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.kit import Bars, arguments
from benchmarks.tables import DATA
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.lab.tables.draft import StudyDraft, draft, study_name
from tunerd.lab.tables.files import open_table
from tunerd.lab.tables.guess import guess
from tunerd.lab.tables.profile import profile
from tunerd.lab.tables.roles import ColumnGuess

__all__ = ["Judged", "judge", "main"]

LEAST = 0.9
ROLES = {
    "context": {"context"},
    "tunable": {"parameter"},
    "objective": {"objective", "metric"},
    "status": {"status"},
    "timestamp": {"finished_at", "time"},
    "auxiliary": {"metric", "derived", "job_id", "user", "label", "ignored"},
}
KINDS = {"int": "number", "float": "number", "bool": "text", "datetime": "time", "date": "time"}
"""What is not listed is text."""


@dataclass(frozen=True)
class Judged:
    """What one column was taken for, and what it is."""

    column: str
    role: str
    kind: str
    described: Mapping[str, Any]

    @property
    def role_is_right(self) -> bool:
        return self.role in ROLES[self.described["role"]]

    @property
    def type_is_right(self) -> bool:
        wanted = self.described.get("type", self.kind)
        if self.described["role"] not in ("context", "tunable") or not self.role_is_right:
            return KINDS.get(wanted, "text") == KINDS.get(self.kind, "text")
        values = self.described.get("values", [])
        if wanted == "float" and self.kind == "int":
            return bool(values) and all(float(value).is_integer() for value in values)
        if wanted == "category" and self.kind == "bool":
            return {str(value) for value in values} <= {"True", "False"}
        return bool(self.kind == {"string": "category"}.get(wanted, wanted))

    @property
    def right(self) -> bool:
        return self.role_is_right and self.type_is_right


def judge(table: Path, description: Mapping[str, Any]) -> tuple[list[Judged], bool]:
    """Every column of a table, and whether the objective is one that people tune for."""
    guesses = guess(profile(open_table(table)))
    made = draft(guesses, study_name(table), table)
    study = parse_study(made.text)
    columns = {column["name"]: column for column in description["columns"]}
    judged = [
        Judged(one.column.name, one.role, _kind(one, made, study), columns[one.column.name])
        for one in guesses.columns
        if one.column.name in columns
    ]
    return judged, columns[guesses.objective.column.name]["role"] == "objective"


def _kind(one: ColumnGuess, made: StudyDraft, study: Study) -> str:
    """The type that the drafted study gives a column, else what it holds."""
    name = made.names.get(one.column.name)
    types: dict[str, str] = {feature.name: feature.type for feature in study.context}
    types |= {parameter.name: parameter.type for parameter in study.parameters}
    return types.get(name or "", one.column.kind)


def _tables(folder: Path) -> list[tuple[Path, Mapping[str, Any]]]:
    """Tables with a description beside them."""
    found = []
    for about in sorted(folder.glob("*.json")):
        beside = [one for one in sorted(folder.glob(f"{about.stem}.*")) if one != about]
        description = json.loads(about.read_text())
        if beside and "columns" in description:
            found.append((beside[0], description))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments("How many columns tunerd init takes for what they are.")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    options = parser.parse_args(argv)
    bars = Bars("roles")
    tables = _tables(options.data)
    if not tables:
        bars.say("skipped: no tables in", str(options.data), "(--data says where they are)")
        return 1 if options.check else 0
    everything: list[Judged] = []
    objectives = 0
    for table, description in tables:
        judged, objective = judge(table, description)
        objectives += objective
        everything += judged
        bars.say(f"{table.name.split('.')[0]}: columns right", _share(judged), f"of {len(judged)}")
        for one in judged:
            if not one.right:
                wanted = f"{one.described['role']} {one.described.get('type', '')}"
                print(f"      {one.column}: taken for {one.role} {one.kind}, is {wanted}")
    bars.say("roles right", sum(one.role_is_right for one in everything) / len(everything))
    bars.say("objectives that people tune for", objectives, f"of {len(tables)}")
    share = _share(everything)
    bars.hold("columns with role and type right", share, share >= LEAST, f">= {LEAST}")
    return bars.end(options)


def _share(judged: Sequence[Judged]) -> float:
    return sum(one.right for one in judged) / max(1, len(judged))


if __name__ == "__main__":
    sys.exit(main())
