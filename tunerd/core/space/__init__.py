"""Search spaces: what may be tried in a context, and how to sample it.

:mod:`.rules` are the constraints of one context, :mod:`.cells` lists what satisfies them where that
can be afforded, :mod:`.wide` samples where not, :mod:`.infeasible` says why nothing is feasible.
"""

from tunerd.core.space.space import Block, Space

__all__ = ["Block", "Space"]
