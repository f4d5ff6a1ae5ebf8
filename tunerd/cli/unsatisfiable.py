"""Constraints that can never hold: in the space, or in all that history has."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tunerd.core.space import SearchSpace
from tunerd.core.space.rules import reads_of
from tunerd.core.study import Study
from tunerd.errors import NothingFeasibleError, TunerdError, ValidationProblem

if TYPE_CHECKING:
    from tunerd.core.observation import Observation
    from tunerd.settings import Settings

__all__ = ["impossible", "latest_jobs", "never_true"]

ENOUGH = 20
"""Jobs from which on a constraint that none of them keeps is told."""
LOOKED_AT = 1_000
"""The latest jobs of a study by which its constraints are judged."""


def impossible(study: Study) -> Iterator[ValidationProblem]:
    """Constraints on parameters alone that no configuration of the space keeps."""
    context = {feature.name for feature in study.context}
    alone = tuple(
        constraint
        for constraint in study.constraints
        if context.isdisjoint(reads_of(study.derived, constraint.expression))
    )
    if not alone:
        return
    try:
        SearchSpace(replace(study, constraints=alone), {})
    except NothingFeasibleError as error:
        why = str(error).partition(" in the context ")[0]
        yield ValidationProblem(
            f"{study.name}: constraints", f"{why}: nothing could be recommended"
        )


def never_true(study: Study, jobs: "Sequence[Observation]") -> Iterator[str]:
    """What to say of constraints that none of many jobs keeps."""
    if len(jobs) < ENOUGH or not study.constraints:
        return
    columns = study.columns([job.context for job in jobs], [job.config for job in jobs])
    for constraint in study.constraints:
        if not constraint.expression.evaluate(columns).satisfied().any():
            yield (
                f"{constraint.name} ({constraint.expression.text}) holds in none of the latest "
                f"{len(jobs):,} jobs"
            )


def latest_jobs(settings: "Settings", study: str, most: int = LOOKED_AT) -> "list[Observation]":
    """The latest jobs of a study; none where there is no store that could be read."""
    from tunerd.cli.options import open_the_store
    from tunerd.core.observation import effective

    try:
        with open_the_store(settings, upgrade=False) as store:
            row = store.study(study)
            if row is None:
                return []
            after = max(0, row.last_sequence - most)
            return effective(store.observations(study, after=after, limit=most))
    except (TunerdError, OSError):
        return []
