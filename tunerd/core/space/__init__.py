"""Search spaces: what may be tried in a context, and how to sample it.

:mod:`.rules` are the constraints of one context, :mod:`.feasible_tables` lists what satisfies them
where that can be afforded, :mod:`.constrained_sampling` samples where not, :mod:`.infeasible` says
why nothing is feasible.
"""

from tunerd.core.space.space import IndependentBlock, SearchSpace

__all__ = ["IndependentBlock", "SearchSpace"]
