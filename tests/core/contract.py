"""The study of the contract as an example, with a job of it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from tunerd.core.observation import Observation, Status, Value
from tunerd.core.study_file import parse_study

CONTRACT = parse_study((Path(__file__).parents[1] / "studies" / "contract.toml").read_text())
CONTEXT: dict[str, Value] = {"model_params": 7e9, "gpu": "H100", "n_gpus": 64, "global_batch": 512}
CONFIG: dict[str, Value] = {
    "tp": 4,
    "pp": 2,
    "cp": 1,
    "micro_batch": 2,
    "precision": "fp8",
    "hbm_reserved": 0.8,
    "sharding": [*["NO_SHARD"] * 3, *["FULL_SHARD"] * 5],
}
METRICS = {"tokens_per_second_per_gpu": 400.0}


def job(
    context: Mapping[str, Value] = CONTEXT,
    config: Mapping[str, Value] = CONFIG,
    metrics: Mapping[str, float] = METRICS,
    status: Status = Status.SUCCEEDED,
) -> Observation:
    return Observation(
        study=CONTRACT.name,
        source="test",
        event_id="e",
        job_id="j",
        status=status,
        finished_at=datetime(2026, 11, 1, tzinfo=UTC),
        context=context,
        config=config,
        metrics=metrics,
    )
