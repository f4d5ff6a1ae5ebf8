"""Which configuration a job gets: recommended, else the baseline; and what was known last."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tunerd.client import Choice, RecommendationFile, Recommendations
from tunerd.exec.plan import JobPlan, write_whole
from tunerd.exec.stream import AwayError, follow, requests_to

__all__ = ["ChosenConfig", "choose"]

CATCH_UP_S = 10.0


@dataclass(frozen=True)
class ChosenConfig:
    """What a job is launched with, and where that comes from."""

    config: dict[str, Any]
    kind: str
    """``exploit``, ``explore``, ``confirm``, ``incumbent`` or ``baseline``."""
    choice: Choice | None
    """For the event; None where no message was followed."""
    note: str = ""
    """What went another way than wished, for a person."""


def choose(
    plan: JobPlan,
    job_id: str,
    attempt: int,
    *,
    defaults: Mapping[str, Any],
    offline: Path | None,
    ask_s: float,
    state: Path,
) -> ChosenConfig:
    """The configuration of one job.

    In this order: the recommendation for the context, the one for the study's empty context, the
    same of ``offline`` (or of what was known last) where the stream is away, the baseline. What is
    missing then comes from ``defaults``.
    """
    last = state / "last" / sha256(f"{plan.where}|{plan.context_key}".encode()).hexdigest()
    note = ""
    try:
        choice, message = _live(plan, job_id, attempt, ask_s)
        _remember(last, message)
    except (AwayError, OSError) as error:
        choice, note = _known(plan, job_id, attempt, offline, last), str(error)
    config = dict(choice.config) if choice else dict(plan.baseline)
    config |= {name: value for name, value in defaults.items() if name not in config}
    return ChosenConfig(config, choice.kind if choice else "baseline", choice, note)


def _live(
    plan: JobPlan, job_id: str, attempt: int, ask_s: float
) -> tuple[Choice | None, dict[str, Any] | None]:
    recommendations = follow(plan)
    try:
        recommendations.catch_up(CATCH_UP_S)
        if ask_s > 0 and recommendations.find(plan.context_key) is None:
            _ask(plan, recommendations, ask_s)
        choice = recommendations.choose(plan.context_key, job_id, attempt=attempt)
        return choice, recommendations.find(plan.context_key)
    finally:
        recommendations.close()


def _ask(plan: JobPlan, recommendations: Recommendations, seconds: float) -> None:
    requests = requests_to(plan)
    try:
        recommendations.ask(
            requests,
            context_key=plan.context_key,
            study=plan.study,
            context=plan.context,
            timeout_s=seconds,
        )
    finally:
        requests.close()


def _remember(last: Path, message: dict[str, Any] | None) -> None:
    """Keep the message for when the stream is away; forget the one that no longer holds."""
    with suppress(OSError):
        if message is None:
            last.unlink(missing_ok=True)
            return
        text = json.dumps(message)
        if not last.exists() or last.read_text() != text:
            last.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(last, text)


def _known(
    plan: JobPlan, job_id: str, attempt: int, offline: Path | None, last: Path
) -> Choice | None:
    if offline is not None:
        return RecommendationFile(offline).choose(plan.context_key, job_id, attempt=attempt)
    recommendations = Recommendations()
    with suppress(OSError, ValueError):
        message = json.loads(last.read_text())
        recommendations.take(message["context_key"], message)
    return recommendations.choose(plan.context_key, job_id, attempt=attempt)
