"""Tables of jobs as studies and observations: what benchmarks run tunerd on.

A table is ``NAME.csv`` or ``NAME.csv.gz`` beside ``NAME.json``, which names every column's role
(``context``, ``tunable``, ``objective``, ``status``, ``timestamp``, ``auxiliary``), type, unit and
direction. Any such table will do: from the description comes a study file with its mapping, and
the jobs are read as ``tunerd import`` and ``tunerd backtest`` read them. To have the study file::

    python -m benchmarks.tables NAME --data FOLDER > study.toml

The five that the project is measured on are third-party data with their own licences and are not
part of tunerd; each is read by path:

- ``vtrain_megatron``: VIA-Research/vTrain, MIT; Megatron-DeepSpeed GPT training, 2 to 512 GPUs
- ``trimtuner_ps``: pedrogbmendes/TrimTuner, MIT; TensorFlow parameter-server training on AWS
- ``llmfoundry_fsdp``: mosaicml/llm-foundry, Apache-2.0; MPT pre-training with FSDP
- ``pollux_dp``: petuum/adaptdl, Apache-2.0; six data-parallel PyTorch jobs
- ``calculon_simulated_16k``: computed with calculon-ai/calculon, Apache-2.0; simulated
"""

import argparse
import json
import keyword
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunerd.core.expressions import RESERVED
from tunerd.core.observation import Observation, Scalar
from tunerd.core.study_file import parse_study
from tunerd.lab.tables.files import TableFile, TableRow, open_table
from tunerd.lab.tables.mapping import read_observations
from tunerd.lab.tables.values import status_in, typed

__all__ = ["DATA", "TABLES", "Table", "read_table"]

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Where the tables are unless an option says otherwise: beside the checkout."""
TABLES = (
    "vtrain_megatron",
    "llmfoundry_fsdp",
    "pollux_dp",
    "trimtuner_ps",
    "calculon_simulated_16k",
)
RATIOS = 8
"""Numbers that go over more than this factor are compared by ratios."""


@dataclass(frozen=True)
class Table:
    """A table as tunerd sees it."""

    study: str
    """Text of a study file whose space is the grid of the values that occur."""
    observations: tuple[Observation, ...]
    """Oldest first where dated, else in the order of the file; sequences 1, 2, …"""
    dated: bool
    unusable: Mapping[str, int]
    """Rows that could not be used, by reason."""


def read_table(
    name: str,
    data: Path = DATA,
    *,
    as_context: Collection[str] = (),
    as_parameter: Collection[str] = (),
    objective: str | None = None,
    constraints: Mapping[str, str] | None = None,
) -> Table:
    """Read ``data/NAME.csv[.gz]`` by the roles in ``data/NAME.json``.

    Args:
        name: of the table.
        data: its folder.
        as_context: tunables that are given here and not tuned.
        as_parameter: context columns that are tuned here.
        objective: which one; the first of the description unless stated.
        constraints: rules that a person would write down, by name.

    Raises:
        FileNotFoundError: there is no such table.
    """
    file = open_table(_found(name, data))
    text = study_text(
        name,
        json.loads((data / f"{name}.json").read_text()),
        file,
        as_context=as_context,
        as_parameter=as_parameter,
        objective=objective,
        constraints=constraints or {},
    )
    history = read_observations(parse_study(text, f"{name}.json"), None, [file])
    return Table(text, history.observations, history.dated, history.unusable)


def _found(name: str, data: Path) -> Path:
    for ending in (".csv", ".csv.gz"):
        if (data / f"{name}{ending}").exists():
            return data / f"{name}{ending}"
    raise FileNotFoundError(f"no {name}.csv or {name}.csv.gz in {data}")


def study_text(
    name: str,
    about: Mapping[str, Any],
    file: TableFile,
    *,
    as_context: Collection[str] = (),
    as_parameter: Collection[str] = (),
    objective: str | None = None,
    constraints: Mapping[str, str],
) -> str:
    """The study file of a described table; see :func:`read_table`."""
    columns = [_Column(one, as_context, as_parameter) for one in about["columns"]]
    rows = [row.values for row in file.rows() if isinstance(row, TableRow)]
    for column in columns:
        column.look(rows)
    goal = next(c for c in columns if c.role == "objective" and objective in (None, c.source))
    tuned = [c for c in columns if c.role == "tunable" and c.values]
    given = [c for c in columns if c.role == "context"]
    renamed = {c.name: c.source for c in (*tuned, *given, goal) if c.name != c.source}
    maximize = str(goal.about.get("direction", "max")).startswith("max")
    lines = [
        "schema = 1",
        f"name = {json.dumps(re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')[:63])}",
        'mode = "publish"',
        "[objective]",
        f"metric = {json.dumps(goal.name)}",
        f"goal = {json.dumps('maximize' if maximize else 'minimize')}",
        f"unit = {json.dumps(goal.about.get('unit', ''))}",
        f"scale = {json.dumps('log' if goal.positive else 'linear')}",
        "[context]",
        *(f"{c.name} = {_inline(c.kind())}" for c in given),
        "[parameters]",
        *(f"{c.name} = {_inline(c.kind() | {'values': c.values})}" for c in tuned),
        *(["[constraints]"] if constraints else []),
        *(f"{rule} = {json.dumps(text)}" for rule, text in constraints.items()),
        "[mapping]",
        *(f"finished_at = {json.dumps(c.source)}" for c in columns if c.role == "timestamp"),
        *(f"columns = {_inline(renamed)}" for _ in (1,) if renamed),
        *_status([c for c in columns if c.role == "status"], goal, rows),
    ]
    return "\n".join(lines) + "\n"


class _Column:
    """One column: what the description says of it, and what stands in it."""

    def __init__(
        self, about: Mapping[str, Any], as_context: Collection[str], as_parameter: Collection[str]
    ) -> None:
        self.about = about
        self.source: str = about["name"]
        self.name = _identifier(self.source)
        self.role: str = about["role"]
        if self.source in as_context:
            self.role = "context"
        elif self.source in as_parameter:
            self.role = "tunable"
        given = about.get("type", "category")
        self.type = given if given in ("int", "float", "bool") else "category"
        self.values: list[Scalar] = []

    def look(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Collect the distinct values that can be read, in order."""
        found = set()
        for row in rows:
            try:
                found.add(typed(row.get(self.source), self.type))  # type: ignore[arg-type]
            except ValueError:
                continue
        self.values = sorted(found - {None}, key=lambda v: (str(type(v)), v))

    @property
    def positive(self) -> bool:
        return bool(self.values) and all(isinstance(v, int | float) and v > 0 for v in self.values)

    def kind(self) -> dict[str, object]:
        """Type and scale."""
        numbers = [v for v in self.values if isinstance(v, int | float)]
        if self.type in ("int", "float") and self.positive and max(numbers) > RATIOS * min(numbers):
            return {"type": self.type, "scale": "log"}
        return {"type": self.type}


def _identifier(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)[:60] or "column"
    taken = plain in RESERVED or keyword.iskeyword(plain)
    return f"c_{plain}" if taken or plain[0].isdigit() else plain


def _status(
    columns: Sequence[_Column], goal: _Column, rows: Sequence[Mapping[str, Any]]
) -> list[str]:
    """How the status column's own words are to be read.

    A word that tunerd does not know says that the configuration runs where any of its rows has
    the objective, else that it does not: a table holds what was tried for its configuration.
    Without such a column a row without the objective has failed.
    """
    if not columns:
        lacking = any(row.get(goal.source) in (None, "") for row in rows)
        return ['status = { default = "failed" }'] if lacking else []
    column = columns[0]
    unknown = [str(word) for word in column.values if status_in(word) is None]
    told = {
        word: "succeeded"
        if any(
            row.get(goal.source) not in (None, "")
            for row in rows
            if str(row.get(column.source)) == word
        )
        else "out_of_memory"
        for word in unknown
    }
    return [f"status = {_inline({'column': column.source, 'values': told})}"]


def _inline(values: Mapping[str, object]) -> str:
    def written(value: object) -> str:
        return _inline(value) if isinstance(value, Mapping) else json.dumps(value)

    return "{ " + ", ".join(f"{json.dumps(k)} = {written(v)}" for k, v in values.items()) + " }"


def main() -> int:
    """Print the study file of a table."""
    parser = argparse.ArgumentParser(description="Print the study file of a described table.")
    parser.add_argument("name", help="NAME of NAME.json and NAME.csv[.gz]")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the table")
    parser.add_argument("--as-context", nargs="*", default=(), metavar="COLUMN")
    parser.add_argument("--as-parameter", nargs="*", default=(), metavar="COLUMN")
    options = parser.parse_args()
    table = read_table(
        options.name,
        options.data,
        as_context=options.as_context,
        as_parameter=options.as_parameter,
    )
    print(table.study, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
