"""What signals say of a job: the value that held when it ran becomes part of its context."""

from collections.abc import Sequence
from datetime import timedelta

from msgspec import structs

from tunerd.core.observation import Observation, started
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError
from tunerd.events import Rejection, SignalPoint
from tunerd.store import Transaction
from tunerd.store.signals import KEPT, MOST_SIGNALS

__all__ = ["SignalContext", "outdated_point", "too_many_signals"]


LARGEST_INT = 2.0**63
"""No database holds a larger one; no job may bring one either."""


class SignalContext:
    """Fills in features that come from signals, once, as jobs come in: what is learned from a job
    must not depend on when it is learned. What a job brings itself stays."""

    def __init__(self) -> None:
        self._studies: dict[str, tuple[int, Study | None]] = {}
        """By name: the generation that was looked at, and the study where it uses signals."""

    def fill_in(
        self, tx: Transaction, study: str, jobs: Sequence[Observation]
    ) -> Sequence[Observation]:
        """The jobs of one study, with what signals say of them."""
        parsed = self._of(tx, study)
        return jobs if parsed is None else [self._filled(tx, parsed, job) for job in jobs]

    def _filled(self, tx: Transaction, study: Study, job: Observation) -> Observation:
        context = dict(job.context)
        for feature in study.signals:
            signal = study.signal_of(feature, context)
            # What the study says of jobs without it (`absent`) is for those without a point too.
            brought = any(context.get(n) is not None for n in (feature.name, *feature.was))
            if brought or feature.signal is None or signal is None:
                continue
            over = job.finished_at - timedelta(seconds=feature.signal.over_s)
            began = started(job)
            mean = tx.signal_mean(signal, min(over, began or over), job.finished_at)
            if mean is not None and (feature.type != "int" or abs(mean) < LARGEST_INT):
                context[feature.name] = round(mean) if feature.type == "int" else mean
        return job if context == job.context else structs.replace(job, context=context)

    def _of(self, tx: Transaction, study: str) -> Study | None:
        row = tx.study(study)
        if row is None:
            return None
        generation, parsed = self._studies.get(study, (-1, None))
        if generation != row.generation:
            parsed = _with_signals(tx, study)
            self._studies[study] = row.generation, parsed
        return parsed


def _with_signals(tx: Transaction, study: str) -> Study | None:
    """A study whose context has features from signals; None where this tunerd cannot read it."""
    current = tx.generation(study)
    if current is None or "signal" not in current.text:
        return None
    try:
        parsed: Study = parse_study(current.text)
    except MisconfiguredError:  # of a newer tunerd: the tune stage says so
        return None
    return parsed if parsed.signals else None


def too_many_signals() -> Rejection:
    """Why a point of one more signal is not kept."""
    return Rejection(
        "labels", f"there are {MOST_SIGNALS:,} signals already; a label must not name each job"
    )


def outdated_point(point: SignalPoint) -> Rejection:
    """Why a point that is older than points are kept is not kept."""
    return Rejection(
        "time",
        f"{point.time.isoformat()} is more than {KEPT.days} days before now, too old to keep",
    )
