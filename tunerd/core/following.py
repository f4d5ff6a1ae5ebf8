"""What a job did with the advice that was there for it.

========== ====================================================================================
followed   it carries a recommendation's id, and ran what that offered it
changed    it carries a recommendation's id, and ran something else
ignored    advice was published for its context, and it carries no id
unasked    nothing was published that it could have followed
========== ====================================================================================

A job carries the id of the advice that it was launched with, which may be older than what is
recommended by the time it ends. Of a candidate the id itself names the configuration. Of an older
incumbent nothing is left to compare with; the job is taken at its word.
"""

from collections.abc import Mapping
from typing import Literal

from tunerd.core.observation import Observation, Value
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
        return "unasked" if published is None else "ignored"
    if job.candidate_id is not None:
        return "followed" if job.candidate_id == config_id else "changed"
    if published is None or job.recommendation_id != published.recommendation_id:
        return "followed"
    if stay is not None:
        return "followed" if config_id == stay else "changed"
    return "followed" if _fits(job.config, published.baseline) else "changed"


def _fits(config: Mapping[str, Value], baseline: Mapping[str, Value] | None) -> bool:
    return baseline is not None and all(config.get(k) == v for k, v in baseline.items())
