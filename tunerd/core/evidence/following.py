"""What a job did with the advice that was there for it.

========== ====================================================================================
followed   it carries a recommendation's id, and ran what that offered it
changed    it carries a recommendation's id, and ran something else
ignored    advice was published for its context, and it carries no id
unasked    nothing was published that it could have followed, as far as is known
========== ====================================================================================

A job carries the id of the advice that it was launched with, which may be older than what is
recommended by the time it ends. Of a candidate the id itself names the configuration. Of an older
incumbent nothing is left to compare with; the job is taken at its word.

What is published when a job is learned may be younger than the job. While it is the first that the
context was ever told, its time says which jobs could not have followed. Of a later revision it says
nothing: there was an earlier one, and when that came is not kept.
"""

from collections.abc import Mapping
from typing import Literal

from tunerd.core.observation import Observation, Value, started
from tunerd.core.recommendation import Recommendation

__all__ = ["Following", "follows"]

Following = Literal["followed", "changed", "ignored", "unasked"]


def follows(
    job: Observation, config_id: str, published: Recommendation | None, stay: str | None
) -> Following:
    """Class one job.

    Args:
        job: as it was reported.
        config_id: candidate id of the configuration that it ran.
        published: what was recommended to its context when it came; None when nothing was.
        stay: candidate id of that recommendation's incumbent; None when it has none.
    """
    if job.recommendation_id is None:
        return "unasked" if published is None or _too_late(job, published) else "ignored"
    if job.candidate_id is not None:
        return "followed" if job.candidate_id == config_id else "changed"
    if published is None or job.recommendation_id != published.recommendation_id:
        return "followed"
    if stay is not None:
        return "followed" if config_id == stay else "changed"
    return "followed" if _fits(job.config, published.baseline) else "changed"


def _too_late(job: Observation, published: Recommendation) -> bool:
    """Whether the job had begun, or was over, before its context was told anything."""
    return published.revision == 1 and (started(job) or job.finished_at) < published.issued_at


def _fits(config: Mapping[str, Value], baseline: Mapping[str, Value] | None) -> bool:
    return baseline is not None and all(config.get(k) == v for k, v in baseline.items())
