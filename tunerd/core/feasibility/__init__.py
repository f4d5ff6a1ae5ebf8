"""The probability that a configuration runs at all: :mod:`.boundary` over everything tried
anywhere, corrected by what was :mod:`.tried` in the context itself."""

from tunerd.core.feasibility.model import FeasibilityModel

__all__ = ["FeasibilityModel"]
