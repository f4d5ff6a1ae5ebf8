"""Ways to look for good configurations. A new one is one file and one line in :data:`SEARCHERS`."""

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from tunerd.core.searchers.base import Searcher

__all__ = ["SEARCHERS", "searcher_class"]

SEARCHERS: dict[str, str] = {
    "evolution": "tunerd.core.searchers.evolution:EvolutionSearcher",
    "optuna": "tunerd.core.searchers.optuna:OptunaSearcher",
    "random": "tunerd.core.searchers.random:RandomSearcher",
    "reinforce": "tunerd.core.searchers.reinforce:ReinforceSearcher",
}
"""Name in a study file → module and class."""


def searcher_class(name: str) -> "type[Searcher]":
    """Import the searcher called ``name``; its constructor takes the study's ``[search]`` table.

    Raises:
        KeyError: there is no such searcher; study files are checked against :data:`SEARCHERS`.
    """
    module, _, attribute = SEARCHERS[name].partition(":")
    return cast("type[Searcher]", getattr(import_module(module), attribute))
