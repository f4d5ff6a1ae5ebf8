"""Versions of a study's model: what was built, why, how it compared, and where it is kept."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tunerd.store.access import StoreReads, StoreWrites
from tunerd.store.json_text import to_json, whole_json
from tunerd.store.tables import models

__all__ = ["ModelReads", "ModelVersion", "ModelWrites", "serving"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """One model that was built, or taken up again, and what became of it."""

    version: int
    """Counts up from 1 within the study, across its generations."""
    generation: int
    checkpoint: str | None
    """Its name where it began to serve; None for one that never did so beyond a step."""
    why: str
    """``first``, ``grown``, ``drift``, ``generation``, ``back`` or ``latest``."""
    fitted_sequence: int
    """Last observation that its fit could see."""
    decided_sequence: int
    """Observation at which it took over or was turned down."""
    took_over: bool
    detail: Mapping[str, Any] = field(default_factory=dict)
    """``contest``: how it compared with the one before; ``of``: the version taken up again;
    ``command``: the operator's command."""
    decided_at: datetime


def serving(versions: Iterable[ModelVersion]) -> ModelVersion | None:
    """The one that serves, of versions newest first; None where none took over."""
    return next((model for model in versions if model.took_over), None)


class ModelReads(StoreReads):
    """Looking at versions."""

    def models(self, study: str) -> list[ModelVersion]:
        """All versions that are remembered, newest first."""
        statement = (
            sa.select(models).where(models.c.study == study).order_by(models.c.version.desc())
        )
        with self._reading() as connection:
            return list(map(_version, connection.execute(statement)))


class ModelWrites(ModelReads, StoreWrites):
    """Adding and forgetting versions. Call ``fence`` first in the same transaction."""

    def add_model(self, study: str, model: ModelVersion) -> None:
        """Remember a version. Its number must be new."""
        self._connection.execute(
            sa.insert(models).values(
                study=study,
                version=model.version,
                generation=model.generation,
                checkpoint=model.checkpoint,
                why=model.why,
                fitted_sequence=model.fitted_sequence,
                decided_sequence=model.decided_sequence,
                took_over=model.took_over,
                detail=to_json(model.detail, "detail"),
                decided_at=model.decided_at,
            )
        )

    def forget_models(self, study: str, up_to: int) -> None:
        """Forget versions up to this one; their checkpoints are pruned with the others."""
        self._connection.execute(
            sa.delete(models).where(models.c.study == study, models.c.version <= up_to)
        )


def _version(row: sa.Row[Any]) -> ModelVersion:
    values = dict(row._mapping)
    del values["study"]
    what = f"version {row.version} of study {row.study!r}"
    return ModelVersion(**values | {"detail": whole_json(row.detail, what, {})})
