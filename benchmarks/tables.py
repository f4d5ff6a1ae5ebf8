"""The measured tables as studies and observations: what benchmarks run tunerd on.

The tables are third-party data with their own licences and are not part of tunerd; each is read
by path from a folder of ``NAME.csv.gz`` and ``NAME.json``, which names every column's role:

- ``vtrain_megatron``: VIA-Research/vTrain, MIT; Megatron-DeepSpeed GPT training, 2 to 512 GPUs
- ``trimtuner_ps``: pedrogbmendes/TrimTuner, MIT; TensorFlow parameter-server training on AWS
- ``llmfoundry_fsdp``: mosaicml/llm-foundry, Apache-2.0; MPT pre-training with FSDP
- ``pollux_dp``: petuum/adaptdl, Apache-2.0; six data-parallel PyTorch jobs
- ``calculon_simulated_16k``: computed with calculon-ai/calculon, Apache-2.0; simulated
"""

import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tunerd.core.observation import Observation, Scalar, Status, Value

__all__ = ["DATA", "Table", "read_table"]

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Where the tables are unless an option says otherwise: beside the checkout."""

CONSTRAINTS = {
    "vtrain_megatron": {"fills_the_cluster": "tp * dp * pp == n_gpus"},
    "calculon_simulated_16k": {"fills_the_cluster": "tp * dp * pp == n_gpus"},
}
"""What holds in every row by the table's description, and a person would write down."""

_STATUS = {"ok": Status.SUCCEEDED, "infeasible": Status.OUT_OF_MEMORY}


@dataclass(frozen=True)
class Table:
    """A table as tunerd sees it."""

    study: str
    """Text of a study file whose space is the grid of the values that occur."""
    observations: tuple[Observation, ...]
    """In the order of the file, sequences 1, 2, …; ``event_id`` is the row."""


def read_table(name: str, data: Path = DATA) -> Table:
    """Read ``data/NAME.csv.gz`` by the roles in ``data/NAME.json``.

    The first objective of the description is the study's; other numbers are further metrics.
    """
    about = json.loads((data / f"{name}.json").read_text())
    with gzip.open(data / f"{name}.csv.gz", "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    columns: list[dict[str, Any]] = about["columns"]
    study = name.replace("_", "-")
    return Table(
        _study(study, columns, rows, CONSTRAINTS.get(name, {})),
        tuple(_observation(study, i, columns, row) for i, row in enumerate(rows)),
    )


def _study(
    name: str,
    columns: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, str]],
    constraints: Mapping[str, str],
) -> str:
    objective = next(c for c in columns if c["role"] == "objective")
    goal = "maximize" if objective["direction"] == "max" else "minimize"
    lines = [
        "schema = 1",
        f"name = {json.dumps(name)}",
        'mode = "publish"',
        "[objective]",
        f"metric = {json.dumps(objective['name'])}",
        f'goal = "{goal}"',
        f"unit = {json.dumps(objective['unit'])}",
        "[context]",
        *(f"{c['name']} = {_table(_kind(c))}" for c in columns if c["role"] == "context"),
        "[parameters]",
    ]
    for column in columns:
        if column["role"] == "tunable":
            values = {_value(column, row[column["name"]]) for row in rows} - {None}
            found = sorted(values, key=lambda value: (str(type(value)), value))
            lines.append(f"{column['name']} = {_table(_kind(column) | {'values': found})}")
    lines += ["[constraints]", *(f"{k} = {json.dumps(v)}" for k, v in constraints.items())]
    return "\n".join(lines) + "\n"


def _kind(column: Mapping[str, Any]) -> dict[str, object]:
    """Type and scale; numbers over more than a factor of 8 are compared by ratios."""
    kind: dict[str, object] = {"type": column["type"]}
    low, high = column.get("min"), column.get("max")
    if column["type"] in ("int", "float") and low and high and low > 0 and high > 8 * low:
        kind["scale"] = "log"
    return kind


def _table(values: Mapping[str, object]) -> str:
    return "{ " + ", ".join(f"{k} = {json.dumps(v)}" for k, v in values.items()) + " }"


def _observation(
    study: str, row_number: int, columns: Sequence[Mapping[str, Any]], row: Mapping[str, str]
) -> Observation:
    context: dict[str, Value] = {}
    config: dict[str, Value] = {}
    metrics: dict[str, float] = {}
    status, finished = Status.SUCCEEDED, datetime(2026, 1, 1, tzinfo=UTC)
    finished += timedelta(minutes=row_number)
    for column in columns:
        name, role = column["name"], column["role"]
        value = _value(column, row[name])
        if role == "context":
            context[name] = value
        elif role == "tunable":
            config[name] = value
        elif role == "status":
            status = _STATUS[str(value)]
        elif role == "timestamp":
            finished = datetime.fromisoformat(str(value)).replace(tzinfo=UTC)
        elif isinstance(value, int | float):
            metrics[name] = float(value)
    return Observation(
        study=study,
        source="table",
        event_id=str(row_number),
        job_id=str(row_number),
        status=status,
        finished_at=finished,
        context=context,
        config=config,
        metrics=metrics,
        sequence=row_number + 1,
    )


def _value(column: Mapping[str, Any], text: str) -> Scalar:
    if text == "":
        return None
    match column["type"]:
        case "int":
            return int(float(text))
        case "float":
            return float(text)
        case "bool":
            return text == "True"
        case _:
            return text
