"""How far each configuration lies above or below what its columns explain, wherever it runs.

Trees and processes smooth over configurations that are alike. Where the same ones ran in several
contexts, what is left of one in some of them repeats in others: a random effect per configuration
(Henderson 1975), drawn to 0 by how little it repeats, to which contexts alike contribute most. How
much it takes to be alike, and how firmly effects are drawn, is chosen by what would have told each
context from the others. Where that is nothing, as in spaces in which hardly any configuration is
met twice, there are none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray, Words, stirred
from tunerd.core.estimators.codec import pack, seal, seal_json, unpack, unseal, unseal_json
from tunerd.core.estimators.design import DesignTransform
from tunerd.core.features import FeatureMap, FeatureRows

__all__ = ["ConfigEffects"]

FALLS = (0.5, 2.0, 8.0)
"""How fast contexts count less the less alike they are, one of these: e^(-fall (d² - d₁²)), with d²
in units of its mean over pairs of contexts, and d₁ that of the nearest in which the configuration
ran, which counts 1. Never 0: what three contexts say of each other would often choose it, and a
fourth is told better by those that it is like."""
DRAWN = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Contexts that an effect of 0 counts as, one of these."""
ASKED = 4_000
"""Pairs of a configuration and a context that this is chosen by, at most: n of them."""
CLEAR = 3.0
"""Effects that tell less than CLEAR / √n of the variance are luck: that is its size where pairs are
shuffled. A gain measured against its own standard error would be blind where few configurations are
special, and is deceived more often where none is."""
LEAST_LEFT = 0.04
"""Share of the variance that is taken to be left, at least."""
MOST = 64
"""Contexts kept of one configuration: what is asked of it costs as many."""
NUMBERS = ("unit", "fall", "drawn", "left")
ARRAYS = ("columns", "around", "names", "begin", "context", "rest", "places")


@dataclass(frozen=True)
class ConfigEffects:
    """Of C configurations in K contexts, P of the pairs; of nothing where there are none."""

    columns: IntArray
    """Of X, that make a configuration."""
    around: IntArray
    """Of X, that make a context."""
    design: DesignTransform
    """Of those of a context: how alike two are …"""
    unit: float
    """… with that of its distances."""
    names: Words
    """(C,) ascending."""
    begin: IntArray
    """(C + 1,) where the pairs of each begin."""
    context: IntArray
    """(P,)"""
    rest: FloatArray
    """(P,) mean of what was left, less that of the context."""
    places: FloatArray
    """(K, d)"""
    fall: float = 0.0
    drawn: float = 0.0
    left: float = 1.0
    """Share of the variance that they leave; 1 where there are none."""

    @classmethod
    def fit(
        cls, features: FeatureMap, rows: FeatureRows, rest: FloatArray, unseen: IntArray
    ) -> Self:
        """Learn from ``rest`` (n, M), what each of M members leaves of some rows.

        ``unseen`` (n,) is which member has not seen a row, M where every one has. A member that
        saw a configuration in all contexts leaves what sums to nothing over them, as if they had
        nothing in common: how alike contexts are is asked where one was not seen, if there is such
        a row.
        """
        columns = np.flatnonzero([column.group == "parameter" for column in features.columns])
        around = np.flatnonzero(features.of_context)
        categorical = [features.columns[i].categorical for i in around.tolist()]
        keys, first, context = np.unique(rows.context_key, return_index=True, return_inverse=True)
        design = DesignTransform.fit(rows.X[:, around], categorical)
        places = design(rows.X[np.ix_(first, around)])
        apart = 2.0 * float(places.var(axis=0).sum()) if len(places) else 0.0
        unit = float(np.sqrt(max(apart, 1e-12)))
        names, place = np.unique(_names(rows.X[:, columns]), return_inverse=True)
        pairs, pair = np.unique(place * len(keys) + context, return_inverse=True)
        each, members, which = _means(pair, rest, rows.weight), rest.shape[1], np.empty_like(pairs)
        which[pair] = unseen
        which[pair[which[pair] != unseen]] = members
        place, context = np.divmod(pairs, len(keys))
        each -= _means(context, each, np.ones(len(each)))[context]
        kept = _few(place)
        place, context, each, which = place[kept], context[kept], each[kept], which[kept]
        begin = np.searchsorted(place, np.arange(len(names) + 1))
        mean = each.mean(axis=1)
        everything = cls(columns, around, design, unit, names, begin, context, mean, places / unit)
        if (which == members).all():
            each, which = mean[:, None], np.zeros(len(which), np.int64)
        return everything._chosen(place, each, which)

    def _chosen(self, place: IntArray, each: FloatArray, which: IntArray) -> Self:
        """The same with what tells pairs best from other contexts; ``place`` (P,) is which
        configuration each is of, ``each`` (P, M) what members leave, and ``which`` (P,) is to be
        asked. None where nothing does."""
        often = np.flatnonzero((np.diff(self.begin)[place] > 1) & (which < each.shape[1]))
        some = often[np.linspace(0, len(often) - 1, min(len(often), ASKED)).astype(np.int64)]
        true, context = each[some, which[some]], self.context[some]
        size = float(true @ true)
        best = 1.0 - CLEAR / np.sqrt(max(len(some), 1)), 0.0, 0.0
        for fall in FALLS if size > 0.0 else ():
            total, count = self._gathered(
                place[some], self.places[context], fall, context, each, which[some]
            )
            for drawn in DRAWN:
                off = true - total / (count + drawn)
                best = min(best, (max(float(off @ off) / size, LEAST_LEFT), fall, drawn))
        left, fall, drawn = best
        if drawn:
            return replace(self, fall=fall, drawn=drawn, left=left)
        nothing = {name: getattr(self, name)[:0] for name in ("names", "context", "rest", "places")}
        return replace(self, begin=self.begin[:1], **nothing)

    def of(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n, F) → (n,) effects, and (n,) variance in multiples of what they leave where a
        configuration ran: 1 there, and more where nobody has run it."""
        effects, wider = np.zeros(len(X)), np.full(len(X), 1.0 / self.left)
        if len(self.names) and len(X):
            names = _names(X[:, self.columns])
            place = np.minimum(np.searchsorted(self.names, names), len(self.names) - 1)
            known = np.flatnonzero(self.names[place] == names)
            if len(known):
                where = self.design(X[np.ix_(known, self.around)]) / self.unit
                rest = self.rest[:, None]
                total, count = self._gathered(place[known], where, self.fall, None, rest)
                effects[known], wider[known] = total / (count + self.drawn), 1.0
        return effects, wider

    def _gathered(
        self,
        place: IntArray,
        where: FloatArray,
        fall: float,
        but: IntArray | None,
        each: FloatArray,
        which: IntArray | int = 0,
    ) -> tuple[FloatArray, FloatArray]:
        """Of n configurations, asked of at (n, d) contexts' places: (n,) sums of what was left of
        them, ``each`` (P, M) by the members ``which`` (n,), and (n,) what these count as; that of
        the context ``but`` (n,) takes no part."""
        many = np.diff(self.begin)[place]
        first = np.cumsum(many) - many
        row = np.repeat(np.arange(len(place)), many)
        pair = np.arange(len(row)) + (self.begin[place] - first)[row]
        context = self.context[pair]
        apart = ((where[row] - self.places[context]) ** 2).sum(axis=1)
        if but is not None:
            apart[context == but[row]] = np.inf
        counts = np.exp(-fall * (apart - np.minimum.reduceat(apart, first)[row]))
        left = each[pair, np.broadcast_to(which, len(place))[row]]
        total = np.bincount(row, counts * left, len(place)).astype(np.float64)
        return total, np.bincount(row, counts, len(place)).astype(np.float64)

    def dump(self) -> dict[str, bytes]:
        """State as named blobs that notice damage."""
        state = {name: getattr(self, name) for name in NUMBERS} | {"design": self.design.dump()}
        arrays = {name: getattr(self, name) for name in ARRAYS}
        return {"effects": seal_json(state), "effects of": seal(pack(arrays))}

    @classmethod
    def load(cls, blobs: Mapping[str, bytes]) -> Self:
        """Build from what :meth:`dump` gave, which may be among other blobs.

        Raises:
            KeyError: one is missing.
            ValueError: one is damaged.
        """
        state, arrays = unseal_json(blobs["effects"]), unpack(unseal(blobs["effects of"]))
        return cls(**arrays | state | {"design": DesignTransform.load(state["design"])})


def _means(group: IntArray, values: FloatArray, weight: FloatArray) -> FloatArray:
    """(n, M) → (k, M) means over groups 0 to k - 1, ``weight`` (n,)."""
    total = np.bincount(group, weight)
    return np.stack([np.bincount(group, weight * column) / total for column in values.T], axis=1)


def _few(place: IntArray) -> IntArray:
    """Of ascending numbers, where to find at most :data:`MOST` of each, spread evenly."""
    _, begin, inverse, many = np.unique(
        place, return_index=True, return_inverse=True, return_counts=True
    )
    turn, many = np.arange(len(place)) - begin[inverse], many[inverse]
    return np.flatnonzero((turn + 1) * MOST // many > turn * MOST // many)


def _names(X: FloatArray) -> Words:
    """(n, F) → (n,) one number per configuration: of a million, two share one in 10^-7 of cases."""
    bits = np.where(np.isnan(X), np.nan, X + 0.0).view(np.uint64)
    places = stirred(np.arange(X.shape[1], dtype=np.uint64))
    return np.asarray(stirred(bits ^ places).sum(axis=1, dtype=np.uint64), np.uint64)
