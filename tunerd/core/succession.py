"""What a new generation of a study takes over from the one before, beyond what history tells.

Much hangs on names: the key of a context, the id of a configuration. Both are made of names and
values as a study has them, and a new generation may name, type and count them otherwise. So what
is taken over is put into its words first: a key by what the context was, an id by what the
configuration was. Two may become one, where what told them apart is gone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tunerd.core.history import Regime
from tunerd.core.observation import Scalar
from tunerd.core.study import Study

__all__ = ["Succession"]

Begun = tuple[int, float | None]
"""A sequence from which estimates began again, and by how much older ones moved; see
:meth:`tunerd.core.evidence.Evidence.begin_at`."""


class Succession:
    """Which context of the former generation is which now. ``before`` is its study, None where
    nobody can read it any more; ``contexts`` are the former contexts by their keys."""

    def __init__(
        self, study: Study, before: Study | None, contexts: Mapping[str, Mapping[str, Scalar]]
    ) -> None:
        self.heirs = {key: study.context_key(context) for key, context in contexts.items()}
        """Former key → the present one."""
        self.parents: dict[str, list[str]] = {}
        """Present key → the former ones."""
        for key, heir in self.heirs.items():
            self.parents.setdefault(heir, []).append(key)
        self.comparable = before is not None and study.scores_like(before)
        """Whether scores mean the same, so that one can be held against the other."""

    def regimes(self, former: Iterable[Regime]) -> tuple[Regime, ...]:
        """Regimes, by present keys. One of contexts that this generation does not know goes, and
        one that acted on some of those that became one."""
        found = []
        for regime in former:
            if regime.keys is None:
                found.append(regime)
                continue
            acted = set(regime.keys)
            keys = sorted(heir for heir, whence in self.parents.items() if acted >= set(whence))
            if keys:
                found.append(replace(regime, keys=tuple(keys)))
        return tuple(found)

    def begun(self, told: Mapping[str, Iterable[Begun]]) -> dict[str, list[Begun]]:
        """When estimates began again, by present keys, given it by former ones; of several that
        became one what they have in common."""
        found = {}
        for heir, (first, *others) in self.parents.items():
            both = set.intersection(
                *({since for since, _ in told.get(one, ())} for one in (first, *others))
            )
            if kept := [(since, moved) for since, moved in told.get(first, ()) if since in both]:
                found[heir] = sorted(kept, key=lambda one: one[0])
        return found
