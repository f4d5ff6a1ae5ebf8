"""Extremely randomized trees (Geurts, Ernst and Wehenkel 2006), told as a model of LightGBM's.

A node is cut at the best of one cut per column, each drawn at random between the extremes of what
the node holds. A mean of many such trees is smooth where one of best cuts has steps, and noise
leads it astray less. LightGBM's own ``extra_trees`` draws over the whole column instead: in grids
of few values most of its cuts are void, and trees of thousands of rows end with thirty leaves.

Trees are grown side by side, one level of all of them at a time, and written as LightGBM's text, so
that predicting, explaining and keeping them is as with any other booster.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray, IntArray, Words, stirred

__all__ = ["extra_trees"]

TOGETHER = 100_000
"""Rows that are handled at once, each counted once per tree: a few tens of MB."""
CATEGORIES, MISSING_LEFT, MISSING_RIGHT = 1, 10, 8
"""LightGBM's ``decision_type``: these categories go left and all else right; a number, and a
missing one left or right."""
WORD = 32
"""Categories in one word of LightGBM's sets of them."""


def extra_trees(
    X: FloatArray,
    label: FloatArray,
    weight: FloatArray,
    categorical: Sequence[int],
    *,
    trees: int,
    rows_each: int,
    seed: int,
) -> str:
    """Grow trees whose mean is the answer, down to single rows.

    Args:
        X: (n, F), n at least 1; NaN where a value is missing.
        label: (n,)
        weight: (n,) positive.
        categorical: columns that hold numbers of categories, from 0 on.
        trees: how many.
        rows_each: what each is grown from at most, drawn anew.
        seed: of what is drawn.

    Returns:
        The text of a model.

    Raises:
        ValueError: nothing to learn from, or something that is not a number.
    """
    if len(X) == 0 or np.isinf(X).any() or not np.isfinite(label).all():
        raise ValueError("trees need at least one row, finite labels and no infinities")
    rng = np.random.default_rng(seed)
    each = min(len(X), rows_each)
    drawn = [rng.permutation(len(X))[:each] for _ in range(trees)]
    together = max(TOGETHER // each, 1)
    texts: list[str] = []
    for first in range(0, trees, together):
        growth = _TreeGrower(X, label, weight, categorical, drawn[first : first + together], rng)
        texts += growth.texts(1.0 / trees)
    columns = range(X.shape[1])
    head = {
        "version": "v4",
        "num_class": "1",
        "num_tree_per_iteration": "1",
        "label_index": "0",
        "max_feature_idx": f"{X.shape[1] - 1}",
        "objective": "regression",
        "feature_names": " ".join(f"Column_{i}" for i in columns),
        "feature_infos": " ".join("none" for _ in columns),
    }
    parts = ["tree\n" + _lines(head)]
    parts += [f"Tree={i}\n{text}\n" for i, text in enumerate(texts)]
    return "\n".join([*parts, "end of trees\n"])


class _NodeSplits(NamedTuple):
    """One cut for each of k nodes, or those chosen among several."""

    column: IntArray
    """(k,) -1 where there is none."""
    threshold: FloatArray
    """(k,) what is not above goes left; of categories those whose :func:`_numbers` are not."""
    missing_left: BoolArray
    """(k,)"""
    left: BoolArray
    """(rows,) which go left."""
    gain: FloatArray
    """(k,) more is better; -inf where nothing is told apart."""

    def better(self, other: "_NodeSplits", of_row: IntArray) -> "_NodeSplits":
        """The better of two for each node, the first where neither is."""
        new = other.gain > self.gain
        return _NodeSplits(
            np.where(new, other.column, self.column),
            np.where(new, other.threshold, self.threshold),
            np.where(new, other.missing_left, self.missing_left),
            np.where(new[of_row], other.left, self.left),
            np.where(new, other.gain, self.gain),
        )


class _TreeLevel(NamedTuple):
    """The k nodes of a level, over all trees, as they were decided."""

    tree: IntArray
    """(k,)"""
    word: Words
    """(k,) by which each draws categories."""
    cuts: _NodeSplits
    child: IntArray
    """(k,) node on the left, that on the right is the next; nodes count from 0 over all levels."""
    value: FloatArray
    """(k,) weighted mean of the labels."""
    rows: IntArray
    """(k,) how many."""


class _TreeGrower:
    """Some trees of as many rows each. Rows lie by node, nodes of a level beside each other."""

    def __init__(
        self,
        X: FloatArray,
        label: FloatArray,
        weight: FloatArray,
        categorical: Sequence[int],
        drawn: Sequence[IntArray],
        rng: np.random.Generator,
    ) -> None:
        self._columns = np.ascontiguousarray(X.T)
        self._label, self._weight, self._rng = label, weight, rng
        self._categorical = np.isin(np.arange(X.shape[1]), categorical)
        self._categories = 1 + int(np.nanmax(X[:, self._categorical], initial=0))
        self._levels: list[_TreeLevel] = []
        rows, starts = np.concatenate(drawn), np.arange(len(drawn)) * len(drawn[0])
        tree, nodes = np.arange(len(drawn)), 0
        while len(starts):
            count = np.diff(np.append(starts, len(rows)))
            of_row = np.repeat(np.arange(len(starts)), count)
            word = self._rng.integers(2**64, size=len(starts), dtype=np.uint64)
            cuts, value = self._cut(rows, starts, of_row, word)
            inner = cuts.column >= 0
            nodes += len(starts)
            pair = np.cumsum(inner) - 1
            self._levels.append(_TreeLevel(tree, word, cuts, nodes + 2 * pair, value, count))
            tree = np.repeat(tree[inner], 2)
            stays = inner[of_row]
            place = 2 * pair[of_row[stays]] + ~cuts.left[stays]
            order = np.argsort(place, kind="stable")
            rows = rows[stays][order]
            starts = np.searchsorted(place[order], np.arange(len(tree)))

    def _cut(
        self, rows: IntArray, starts: IntArray, of_row: IntArray, word: Words
    ) -> tuple[_NodeSplits, FloatArray]:
        """The best of one cut per column, and the mean, of each node; none where all labels are
        the same."""
        k, label, weight = len(starts), self._label[rows], self._weight[rows]
        count = np.bincount(of_row)
        weighted = weight * label
        summed, mass = np.add.reduceat(weighted, starts), np.add.reduceat(weight, starts)
        mixed = np.maximum.reduceat(label, starts) > np.minimum.reduceat(label, starts)
        best = _NodeSplits(
            np.full(k, -1),
            np.zeros(k),
            np.zeros(k, bool),
            np.zeros(len(rows), bool),
            np.full(k, -np.inf),
        )
        for column in range(len(self._columns)):
            drawn = self._drawn(column, rows, starts, of_row, word)
            here = np.add.reduceat(drawn.left.astype(np.int64), starts)
            part = np.add.reduceat(weight * drawn.left, starts)
            some = np.add.reduceat(weighted * drawn.left, starts)
            usable = mixed & (here > 0) & (here < count)
            part, rest = np.where(usable, part, 1.0), np.where(usable, mass - part, 1.0)
            gain = np.where(usable, some**2 / part + (summed - some) ** 2 / rest, -np.inf)
            best = best.better(drawn._replace(gain=gain), of_row)
        return best, summed / mass

    def _drawn(
        self, column: int, rows: IntArray, starts: IntArray, of_row: IntArray, word: Words
    ) -> _NodeSplits:
        """A cut of each node by one column: of categories any part, of numbers what is below a
        point between the extremes, evenly by ratio where all are positive."""
        k, value = len(starts), self._columns[column][rows]
        missing, missing_left = np.isnan(value), self._rng.random(k) < 0.5
        categorical = self._categorical[column]
        if categorical:
            number = _numbers(word[of_row], column, np.nan_to_num(value).astype(np.uint64))
            value = np.where(missing, np.nan, number)
        low, high = np.fmin.reduceat(value, starts), np.fmax.reduceat(value, starts)
        positive = (low > 0) & ~categorical
        share, ratio = self._rng.random(k), np.divide(high, low, where=positive, out=np.ones(k))
        at = np.where(positive, low * ratio**share, low + share * (high - low))
        at = np.where(at < high, at, low)
        # Of equal numbers all go left, and being missing is what tells rows apart.
        missing_left &= (low < high) & ~categorical
        left = np.where(missing, missing_left[of_row], value <= at[of_row])
        return _NodeSplits(np.full(k, column), at, missing_left, left, np.zeros(k))

    def texts(self, share: float) -> list[str]:
        """Each tree as LightGBM writes it, its values times ``share``."""
        parts = ((at.tree, at.word, *at.cuts[:3], *at[3:]) for at in self._levels)
        trees, word, column, threshold, missing_left, child, value, rows = (
            np.concatenate(part) for part in zip(*parts, strict=True)
        )
        value, lines = value * share, []
        for tree in range(len(self._levels[0].tree)):
            here = np.flatnonzero(trees == tree)
            inner, leaves = here[column[here] >= 0], here[column[here] < 0]
            name = np.zeros(len(trees), np.int64)
            name[inner], name[leaves] = np.arange(len(inner)), -1 - np.arange(len(leaves))
            sets = self._categorical[column[inner]]
            limit = threshold[inner]
            limit[sets] = np.arange(sets.sum())
            kind = np.where(missing_left[inner], MISSING_LEFT, MISSING_RIGHT)
            kind[sets] = CATEGORIES
            chosen = inner[sets, None]
            number = _numbers(word[chosen], column[chosen], np.arange(self._categories))
            words = _words(number <= threshold[chosen])
            lines.append(
                _lines(
                    {
                        "num_leaves": str(len(leaves)),
                        "num_cat": str(sets.sum()),
                        "split_feature": _told(column[inner]),
                        "threshold": _told(limit),
                        "decision_type": _told(kind),
                        "left_child": _told(name[child[inner]]),
                        "right_child": _told(name[child[inner] + 1]),
                        "leaf_value": _told(value[leaves], "{:.9g}".format),
                        "leaf_count": _told(rows[leaves]),
                        "internal_value": _told(value[inner], "{:.6g}".format),
                        "internal_count": _told(rows[inner]),
                        "cat_boundaries": _told(np.arange(len(words) + 1) * words.shape[1]),
                        "cat_threshold": _told(words.ravel()),
                        "is_linear": "0",
                        "shrinkage": "1",
                    }
                )
            )
        return lines


def _numbers(word: Words, column: IntArray | int, category: IntArray | Words) -> FloatArray:
    """What stands for categories where a node is cut: any numbers between 0 and 1, others for each
    node and column."""
    place = np.asarray(column, np.uint64) << np.uint64(32) | np.asarray(category, np.uint64)
    return np.asarray(stirred(word ^ stirred(place)) / 2.0**64, np.float64)


def _words(members: BoolArray) -> IntArray:
    """(sets, categories) → (sets, words), a bit for each category."""
    sets, categories = members.shape
    words = -(-categories // WORD)
    bits = np.zeros((sets, words * WORD), np.int64)
    bits[:, :categories] = members
    return np.asarray((bits.reshape(sets, words, WORD) << np.arange(WORD)).sum(axis=2), np.int64)


def _told(values: IntArray | FloatArray, spelled: Callable[[float], str] = repr) -> str:
    return " ".join(map(spelled, values.tolist()))


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())
