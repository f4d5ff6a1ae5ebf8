"""The search spaces of a study's contexts, those that were looked at lately."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np

from tunerd.core.decisions.overrides import OverrideSet
from tunerd.core.observation import Observation, Scalar, Value
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.errors import NothingFeasibleError

__all__ = ["SpaceCache", "in_space_text", "why_not", "why_outside"]

MOST_REASONS = 5
"""Reasons why jobs lie outside the space that are told."""


class SpaceCache:
    """The study's search spaces by context key, the least recently used one forgotten; with
    ``orders`` as their limits leave them.

    Some take tens of milliseconds to build, and a busy study has a thousand contexts.
    """

    MOST = 4_096
    MOST_BYTES = 64 * 2**20
    """Of what the spaces that are kept have listed."""

    def __init__(
        self,
        study: Study,
        orders: OverrideSet | None = None,
        only: Mapping[str, Sequence[Mapping[str, Value]]] | None = None,
    ) -> None:
        """``only`` has, by context key, the configurations beside which nothing may be tried."""
        self._study = study
        self._orders = orders
        self._only = only or {}
        self._known: OrderedDict[str, SearchSpace | NothingFeasibleError] = OrderedDict()
        self._bytes = 0

    def get(self, key: str, context: Mapping[str, Scalar]) -> SearchSpace:
        """The space of a context.

        Raises:
            NothingFeasibleError: the constraints rule out everything there.
        """
        space = self._known.get(key)
        if space is None:
            study = self._study if self._orders is None else self._orders.study_in(key)
            only = self._only.get(key)
            try:
                space = SearchSpace(study.with_choices(only or ()), context, only)
            except NothingFeasibleError as error:
                space = error
            self._known[key] = space
            self._bytes += _bytes(space)
            while len(self._known) > 1 and (
                len(self._known) > self.MOST or self._bytes > self.MOST_BYTES
            ):
                self._bytes -= _bytes(self._known.popitem(last=False)[1])
        self._known.move_to_end(key)
        if isinstance(space, NothingFeasibleError):
            raise space
        return space

    def own_config(
        self, key: str, context: Mapping[str, Scalar], config: Mapping[str, Value]
    ) -> dict[str, Value]:
        """The study's own parameters of a job's configuration, by their present names: as the
        study file prints them where they lie in the space, as the event had them elsewhere."""
        config = self._study.named(config)
        try:
            space = self.get(key, context)
            code = space.encode(config)
        except NothingFeasibleError:
            code = None
        if code is not None:
            return space.decode(code)
        return config


def _bytes(space: SearchSpace | NothingFeasibleError) -> int:
    return space.nbytes if isinstance(space, SearchSpace) else 0


def why_not(study: Study, context: Mapping[str, Scalar], config: Mapping[str, Value]) -> str:
    """Why a configuration, by present names, does not lie in the space of a context."""
    wrong = _wrong_value(study, config) or _broken(study, [context], [config])[0]
    return wrong or "nothing is feasible in this context"


def why_outside(study: Study, jobs: Sequence[Observation]) -> list[str | None]:
    """Why each of these jobs does not lie in the study's space, the same for all values alike; None
    where it does. Constraints are evaluated for all jobs at once: job by job takes 14 times as
    long."""
    contexts = [study.clean_context(job.context) for job in jobs]
    configs = [study.named(job.config) for job in jobs]
    reasons = [_wrong_value(study, config, shown=False) for config in configs]
    right = [i for i, wrong in enumerate(reasons) if wrong is None]
    broken = _broken(study, [contexts[i] for i in right], [configs[i] for i in right])
    for i, wrong in zip(right, broken, strict=True):
        reasons[i] = wrong
    return reasons


def _wrong_value(study: Study, config: Mapping[str, Value], *, shown: bool = True) -> str | None:
    """Which parameter is missing or has another value than it may have; ``shown`` or not."""
    for parameter in study.parameters:
        given = config.get(parameter.name)
        if given is None:
            return f"{parameter.name} is missing"
        for entry in parameter.spread(given):
            if parameter.index(entry) is None:
                ends = f"{parameter.choices[0]} to {parameter.choices[-1]}"
                lies = f"within {ends}" if parameter.ranged else "one of its values"
                return f"{parameter.name}{f' = {entry}' if shown else ''} is not {lies}"
    return None


def _broken(
    study: Study, contexts: Sequence[Mapping[str, Scalar]], configs: Sequence[Mapping[str, Value]]
) -> list[str | None]:
    """The first constraint that each configuration breaks."""
    reasons: list[str | None] = [None] * len(configs)
    if not study.constraints or not configs:
        return reasons
    columns = study.columns(contexts, configs)
    for constraint in study.constraints:
        kept = np.broadcast_to(constraint.expression.evaluate(columns).satisfied(), len(configs))
        for i in np.flatnonzero(~kept).tolist():
            reasons[i] = reasons[i] or f"breaks {constraint.name}: {constraint.expression.text}"
    return reasons


def in_space_text(inside: int, outside: Mapping[str, int]) -> str:
    """How many jobs lie in the space, and why the others do not (jobs by reason), for a person."""
    total = inside + sum(outside.values())
    text = f"{inside:,} of {total:,} {'job lies' if total == 1 else 'jobs lie'} in the space"
    reasons = sorted(outside.items(), key=lambda reason: -reason[1])
    shown = [f"{count:,}: {why}" for why, count in reasons[:MOST_REASONS]]
    if rest := sum(count for _, count in reasons[MOST_REASONS:]):
        shown.append(f"{rest:,}: for other reasons")
    return "; ".join([text, *shown])
