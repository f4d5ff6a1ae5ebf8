"""The search spaces of a study's contexts, those that were looked at lately."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np

from tunerd.core.decisions.orders import Orders
from tunerd.core.observation import Scalar, Value
from tunerd.core.space import Space
from tunerd.core.study import Study
from tunerd.errors import NothingFeasibleError

__all__ = ["Spaces", "why_not"]


class Spaces:
    """The study's search spaces by context key, the least recently used one forgotten; with
    ``orders`` as their limits leave them.

    Some take tens of milliseconds to build, and a busy study has a thousand contexts.
    """

    MOST = 256

    def __init__(
        self,
        study: Study,
        orders: Orders | None = None,
        only: Mapping[str, Sequence[Mapping[str, Value]]] | None = None,
    ) -> None:
        """``only`` has, by context key, the configurations beside which nothing may be tried."""
        self._study = study
        self._orders = orders
        self._only = only or {}
        self._known: OrderedDict[str, Space | NothingFeasibleError] = OrderedDict()

    def get(self, key: str, context: Mapping[str, Scalar]) -> Space:
        """The space of a context.

        Raises:
            NothingFeasibleError: the constraints rule out everything there.
        """
        space = self._known.get(key)
        if space is None:
            study = self._study if self._orders is None else self._orders.study_in(key)
            only = self._only.get(key)
            try:
                space = Space(study.with_choices(only or ()), context, only)
            except NothingFeasibleError as error:
                space = error
            self._known[key] = space
            if len(self._known) > self.MOST:
                self._known.popitem(last=False)
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


def why_not(study: Study, context: Mapping[str, Scalar], config: Mapping[str, Value]) -> str:
    """Why a configuration, by present names, does not lie in the space of a context."""
    for parameter in study.parameters:
        value = config.get(parameter.name)
        if value is None:
            return f"{parameter.name} is missing"
        for one in parameter.spread(value):
            if parameter.index(one) is None:
                ends = f"{parameter.choices[0]} to {parameter.choices[-1]}"
                lies = f"within {ends}" if parameter.ranged else "one of its values"
                return f"{parameter.name} = {one} is not {lies}"
    columns = study.columns([context], [config])
    for constraint in study.constraints:
        if not bool(np.all(constraint.expression.evaluate(columns).satisfied())):
            return f"breaks {constraint.name}: {constraint.expression.text}"
    return "nothing is feasible in this context"
