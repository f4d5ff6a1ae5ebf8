"""Versions of a study's model: which checkpoints are kept, and what an operator can go back to."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from tunerd.core.model.training import ModelBuild
from tunerd.stages.recommendations import LogEvent
from tunerd.store import ModelVersion, Transaction

__all__ = ["add_versions", "built_last", "keep_versions"]

REMEMBERED = 200
"""Versions listed; of most of them only the row is left."""


def add_versions(
    tx: Transaction,
    study: str,
    generation: int,
    built: list[ModelBuild],
    checkpoint: str | None,
    said: Mapping[str, Any],
    now: datetime,
) -> list[LogEvent]:
    """Remember what became of models in a step, which ``checkpoint`` ends; ``said`` is what to
    add of a version that an operator took up again. Returns what to log."""
    known = tx.models(study) if built else []
    number = known[0].version if known else 0
    last = max((i for i, model in enumerate(built) if model.took_over), default=None)
    lines = []
    for i, model in enumerate(built):
        detail: dict[str, Any] = {} if model.contest is None else {"contest": model.contest.dump()}
        if model.failed is not None:
            detail["failed"] = model.failed
        if model.why in ("back", "latest"):
            detail |= said
        version = ModelVersion(
            version=number + 1 + i,
            generation=generation,
            checkpoint=checkpoint if i == last else None,
            why=model.why,
            fitted_sequence=model.fitted_at,
            decided_sequence=model.decided_at,
            took_over=model.took_over,
            detail=detail,
            decided_at=now,
        )
        tx.add_model(study, version)
        lines.append(_line(version))
    if built and number + len(built) > REMEMBERED:
        tx.forget_models(study, up_to=number + len(built) - REMEMBERED)
    return lines


def keep_versions(tx: Transaction, study: str, generation: int, most: int) -> list[str]:
    """Checkpoints of the latest versions, to which an operator can go back."""
    kept = [
        version.checkpoint
        for version in tx.models(study)
        if version.checkpoint is not None and version.generation == generation
    ]
    return kept[:most]


def built_last(versions: Iterable[ModelVersion], generation: int) -> ModelVersion | None:
    """The latest of this generation that took over because it was built, and not because an
    operator said so."""
    return next(
        (
            version
            for version in versions
            if version.took_over
            and version.generation == generation
            and version.why not in ("back", "latest")
        ),
        None,
    )


def _line(version: ModelVersion) -> LogEvent:
    detail: dict[str, Any] = {
        "version": version.version,
        "why": version.why,
        "fitted_at": version.fitted_sequence,
    }
    if failed := version.detail.get("failed"):
        return LogEvent("rebuild failed", detail | {"problem": failed}, wrong=True)
    if contest := version.detail.get("contest"):
        detail |= {"told_by": contest["by"], "jobs": contest["jobs"]}
    return LogEvent("model took over" if version.took_over else "challenger turned down", detail)
