"""What a study predicts with, kept up to date: the model, the sample it is rebuilt from, and
the rebuilds.

Every portion of jobs updates the model at constant cost. Full rebuilds run aside in a background
executor and are swapped in at a *sequence*, not when they happen to be ready, so that the
machine's speed cannot change a result.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tunerd.core.arrays import IntArray
from tunerd.core.features import FeatureMap, Rows
from tunerd.core.features.replay import Replay, sequences_at
from tunerd.core.model import Model
from tunerd.core.observation import Observation
from tunerd.core.study import Study

__all__ = ["SWAP_AFTER", "Fetch", "Training", "portions"]

Fetch = Callable[[Sequence[int]], Sequence[Observation]]
"""Reads the observations with these sequences from history, in this order."""

FIRST_FIT = 5
"""Observations with an objective before the first model: five random jobs, then the model
(findings: a start of five beats a start of fifteen)."""
SMALL = 300
"""Up to here a full fit takes a fraction of a second and is done on the spot."""
GROWTH = 0.2
"""A rebuild follows when history grew by this share since the last fit, so that what rebuilds
cost per event stays constant."""
MAX_GROWTH = 4_000
"""… or by this many observations, once the sample that a rebuild sees is full."""
SWAP_AFTER = 64
"""Observations between the start of a rebuild and its swap. A rebuild that is not ready by then
is waited for."""
RECENT = 500
"""Window that an update's correction is fitted on."""
PORTION = 32
"""Observations learned together at the start of a study, and from four times as many on a quarter
of what is known: else a table of 400 old jobs would be learned whole, and none of them predicted
first."""


@dataclass(slots=True)
class _Rebuild:
    started_at: int
    future: "Future[Model]"


@dataclass
class Training:
    """Holds a study's model and trains it. Rows come in the order of their sequences."""

    study: Study
    features: FeatureMap
    background: Executor
    model: Model | None = field(init=False, default=None)
    """The one that serves."""
    replay: Replay = field(init=False, default_factory=Replay)
    _rebuild: _Rebuild | None = field(init=False, default=None)

    def gather(self, rows: Rows, sequence: int) -> None:
        """Keep rows, the last of which is ``sequence``, without learning them."""
        self.replay.add(rows, np.arange(sequence - len(rows) + 1, sequence + 1))

    def learn(self, rows: Rows, sequence: int) -> bool:
        """Let the model learn rows, the last of which is ``sequence``; says whether it was
        replaced."""
        self.gather(rows, sequence)
        if self._rebuild is not None and sequence >= self._rebuild.started_at + SWAP_AFTER:
            self._swap(self._rebuild, sequence)
            return True
        on_the_spot = sequence <= SMALL and self._has_grown(sequence)
        if self._can_fit() and (self.model is None or on_the_spot):
            self.model = self._fit(self.replay.rows(), sequence)
            return True
        if self.model is not None:
            self.model.update(rows, self.replay.recent(RECENT), sequence)
            if self._rebuild is None and self._has_grown(sequence):
                self._start_rebuild(sequence, self.replay.rows())
        return False

    def catch_up(self, sequence: int) -> None:
        """Fit on what was gathered up to ``sequence``."""
        if self._can_fit():
            self.model = self._fit(self.replay.rows(), sequence)

    def _can_fit(self) -> bool:
        scored = np.isfinite(self.replay.rows().score) if self.model is None else None
        return scored is None or int(scored.sum()) >= FIRST_FIT

    def _has_grown(self, sequence: int) -> bool:
        fitted_at = self.model.fitted_at if self.model else 0
        return sequence - fitted_at >= max(FIRST_FIT, min(GROWTH * fitted_at, MAX_GROWTH))

    def _fit(self, rows: Rows, at: int) -> Model:
        return Model.fit(self.study, self.features, rows, at)

    def _start_rebuild(self, at: int, rows: Rows) -> None:
        self._rebuild = _Rebuild(at, self.background.submit(self._fit, rows, at))

    def _swap(self, rebuild: _Rebuild, sequence: int) -> None:
        self.model = rebuild.future.result()
        self._rebuild = None
        since = self.replay.since(rebuild.started_at)
        self.model.update(since, self.replay.recent(RECENT), sequence)

    # -- keeping ----------------------------------------------------------------------------

    def dump(self) -> dict[str, object]:
        """Everything but the model, as JSON values; see :meth:`restore`."""
        return {"rebuild": self._rebuild.started_at if self._rebuild else None}

    def restore(
        self,
        state: Mapping[str, Any],
        parts: Mapping[str, bytes] | None,
        steps: Iterable[tuple[int, int]],
        last: int,
        fetch: Fetch,
    ) -> None:
        """Become, up to observation ``last``, exactly what gave ``state``.

        ``parts`` is the last checkpoint of the model (:meth:`Model.dump`), None if there was
        none; ``steps`` are the (first, last) sequences of the steps, oldest first, of which those
        after the checkpoint are learned again.
        """
        if parts is None:
            self._refill(last, fetch)
            return
        model = Model.load(self.study, self.features, parts)
        self.model = model
        self._refill(model.learned, fetch)
        for first, to in steps:
            if first > model.learned and to <= last:
                for start, end in portions(first, to):
                    rows = self.features.rows(fetch(range(start, end + 1)))
                    self.gather(rows, end)
                    model.update(rows, self.replay.recent(RECENT), end)
        if model.learned != last:
            raise ValueError(f"steps lead to {model.learned}, not to {last}")
        started: int | None = state["rebuild"]
        if started is not None:
            self._start_rebuild(started, self.features.rows(fetch(_at(started))))

    def _refill(self, sequence: int, fetch: Fetch) -> None:
        """Fill the replay as it was at a sequence."""
        sequences = sequences_at(sequence)
        if len(sequences):
            self.replay.add(self.features.rows(fetch(sequences.tolist())), sequences)


def portions(first: int, last: int) -> Iterator[tuple[int, int]]:
    """First and last sequence of what is learned together of the observations of a step."""
    while first <= last:
        end = min(first - 1 + max(PORTION, (first - 1) // 4), last)
        yield first, end
        first = end + 1


def _at(sequence: int) -> list[int]:
    at: IntArray = sequences_at(sequence)
    return [int(one) for one in at]
