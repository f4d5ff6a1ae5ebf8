"""LightGBM with its traps fenced off: the predictor and the model of what runs both grow on this.

A wrong parameter, or a model text that lost a byte, aborts the whole process instead of raising;
so parameters come from a checked type, and a text is loaded only if its digest agrees. Training
runs on one thread: beside another busy process two threads are hundreds of times slower on a few
hundred rows. ``OMP_WAIT_POLICY=passive`` must be set by whoever starts the process.
"""

import ctypes
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.estimators.codec import seal, unseal

__all__ = ["BoosterEnsemble", "TreeBooster", "TreeDataset", "TreeOptions", "lightgbm"]


def _lend_openmp() -> None:
    """LightGBM's wheel wants the system's ``libgomp.so.1``, which a slim machine lacks. Where torch
    is installed, its wheel brings one: lent before the import, it spares an ``apt-get``."""
    with suppress(OSError):
        ctypes.CDLL("libgomp.so.1")
        return
    torch = find_spec("torch")
    if torch is not None and torch.origin is not None:
        with suppress(OSError):
            library = Path(torch.origin).parent / "lib" / "libgomp.so.1"
            ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


AVERAGED = {"boosting": "rf", "feature_fraction_bynode": 0.83}
"""LightGBM's names for no boosting, and for five of six columns at each cut."""

BINNING = {
    "min_data_in_bin": 1,
    "max_bin": 255,
    "feature_pre_filter": False,
    "verbosity": -1,
    "num_threads": 1,
}
"""How rows are binned. LightGBM's pre-filter leaves out every column that cannot be cut into leaves
of ``min_data_in_leaf`` rows, by its default of 20 and not by what a booster is grown with later:
with fewer than 40 rows no column at all is left, and with any number none that is rarely varied."""

UNUSED = ("sklearn", "pandas", "joblib")
"""What LightGBM imports wherever it is installed, for interfaces that nothing here uses: more than
a second of a processor and 100 MB in each process that grows trees."""

DEALS = 50
"""Seeds that a random forest is tried with at most. Of few rows its first tree may be dealt
none at all, and then LightGBM says NaN of everything (its pull request 7404): of two rows with one
seed in six, of more than ten hardly ever."""

MANY_ROWS = 2_000
"""Rows from which two threads predict."""


class _SilentLogger:
    """LightGBM prints to stdout unless told where to write."""

    def info(self, _: str) -> None:
        pass

    def warning(self, _: str) -> None:
        pass


@cache
def lightgbm() -> ModuleType:
    """The library, imported for the first trees: it takes a second, which most commands can do
    without.

    Raises:
        OSError: there is no OpenMP runtime.
    """
    _lend_openmp()
    with _hidden(UNUSED):
        import lightgbm as library

    library.register_logger(_SilentLogger())
    return library


@contextmanager
def _hidden(names: Sequence[str]) -> Iterator[None]:
    """Who tries to import these libraries meanwhile finds none, unless they are there already."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@dataclass(frozen=True, slots=True)
class TreeOptions:
    """What a booster is grown with. Raises ValueError for what would abort the process."""

    trees: int
    leaves: int
    min_rows: int
    """Rows a leaf holds at least."""
    seed: int
    learning_rate: float = 0.1
    rows_share: float = 0.8
    """Share of the rows that each tree sees."""
    objective: Literal["regression", "binary"] = "regression"
    averaged: bool = False
    """A random forest (Breiman 2001): trees side by side, whose mean is the answer, instead of
    trees that each correct the ones before."""

    def __post_init__(self) -> None:
        whole = (self.trees >= 1, 2 <= self.leaves <= 1024, self.min_rows >= 1, self.seed >= 0)
        shares = (self.rows_share, self.learning_rate)
        if not all(whole) or not all(0.0 < share <= 1.0 for share in shares):
            raise ValueError(f"unusable tree options: {self}")

    def parameters(self) -> dict[str, Any]:
        """LightGBM's names for them, and what is the same for all.

        The defaults for categories are made for thousands of rows per value. At 150 rows,
        splits on single values raise Spearman within a workload from .25 to .77.
        """
        return {
            **(AVERAGED if self.averaged else {}),
            "objective": self.objective,
            "learning_rate": self.learning_rate,
            "num_leaves": self.leaves,
            "min_data_in_leaf": self.min_rows,
            "bagging_fraction": self.rows_share,
            "bagging_freq": 1,
            "seed": self.seed,
            "boost_from_average": self.objective == "binary",
            "min_data_per_group": 5,
            "cat_smooth": 1,
            "cat_l2": 1,
            "max_cat_to_onehot": 16,
            "num_threads": 1,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }


class TreeDataset:
    """Rows binned once, for several boosters with labels of their own."""

    def __init__(
        self, X: FloatArray, categorical: Sequence[int], weight: FloatArray | None = None
    ) -> None:
        if len(X) == 0 or np.isinf(X).any():
            raise ValueError("trees need at least one row and no infinities")
        if weight is not None and not (np.isfinite(weight).all() and (weight > 0).all()):
            raise ValueError("weights must be positive and finite")
        self._first = X[:1].copy()
        self._copies = 2 if len(X) == 1 else 1
        """A single row is told twice: a tree's share of it would be none, and LightGBM raises."""
        X, weight = self._told(X), None if weight is None else self._told(weight)
        self._set = lightgbm().Dataset(
            X,
            np.zeros(len(X)),
            weight=weight,
            categorical_feature=list(categorical),
            params=BINNING,
            free_raw_data=True,
        )

    def grow(self, label: FloatArray, options: TreeOptions) -> "TreeBooster":
        """Fit one booster; ``label`` is (n,), for ``binary`` 0 or 1."""
        if not np.isfinite(label).all():
            raise ValueError("labels must be finite: LightGBM learns from NaN without a word")
        self._set.construct()
        self._set.set_label(self._told(label))
        for seed in range(options.seed, options.seed + DEALS):
            grown = self._grown(replace(options, seed=seed))
            if not options.averaged or np.isfinite(grown.predict(self._first)[0]):
                return grown
        raise ValueError(f"too few rows for {options}: no tree is dealt any")

    def _grown(self, options: TreeOptions) -> "TreeBooster":
        booster = lightgbm().Booster(options.parameters(), self._set)
        for _ in range(options.trees):
            if booster.update():
                break  # no split left that gains anything
        return TreeBooster(booster.model_to_string())

    def _told(self, values: FloatArray) -> FloatArray:
        return values if self._copies == 1 else np.repeat(values, self._copies, axis=0)


class TreeBooster:
    """A grown booster. Always read back from its text, so that a model from a checkpoint and the
    one that wrote it are the same thing."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._booster = lightgbm().Booster(model_str=text)

    def predict(self, X: FloatArray) -> FloatArray:
        """(n, F) → (n,): sums of leaves; for ``binary`` the probability of 1."""
        threads = 2 if len(X) >= MANY_ROWS else 1  # each row is one thread's: the same bits
        return np.asarray(self._booster.predict(X, num_threads=threads), dtype=np.float64)

    def contributions(self, X: FloatArray) -> FloatArray:
        """(n, F) → (n, F + 1): what each column adds to a prediction (SHAP), and last what is
        expected without any. Rows sum to the prediction, before a ``binary`` link."""
        shares = self._booster.predict(X, pred_contrib=True, num_threads=1)
        return np.asarray(shares, dtype=np.float64)


class BoosterEnsemble:
    """Several boosters that answer side by side."""

    def __init__(self, members: Sequence[TreeBooster]) -> None:
        self.members = tuple(members)
        self._dumped: bytes | None = None

    def predict(self, X: FloatArray) -> FloatArray:
        """(n, F) → (n, members)."""
        if len(X) < MANY_ROWS:
            return np.stack([trees.predict(X) for trees in self.members], axis=1)
        order = np.lexsort(X.T)  # neighbours go the same way down a tree: twice as fast
        sorted_rows, predictions = X[order], np.empty((len(X), len(self.members)))
        for m, trees in enumerate(self.members):
            predictions[order, m] = trees.predict(sorted_rows)
        return predictions

    def contributions(self, X: FloatArray) -> FloatArray:
        """(n, F) → (n, F + 1): :meth:`TreeBooster.contributions`, the mean of all members."""
        mean_contributions: FloatArray = np.mean(
            [trees.contributions(X) for trees in self.members], axis=0
        )
        return mean_contributions

    def dump(self) -> bytes:
        """Texts of all members, a third of their size, behind a digest; made once."""
        if self._dumped is None:
            texts = "\0".join(trees.text for trees in self.members)
            self._dumped = seal(zlib.compress(texts.encode(), level=1))
        return self._dumped

    @classmethod
    def load(cls, blob: bytes) -> "BoosterEnsemble":
        """Build from what :meth:`dump` gave.

        Raises:
            ValueError: a byte is missing or changed. LightGBM would abort the process.
        """
        try:
            texts = zlib.decompress(unseal(blob)).decode()
        except zlib.error as error:  # the digest agrees: another tunerd wrote it
            raise ValueError(f"damaged model: {error}; fit it again") from None
        return cls([TreeBooster(text) for text in texts.split("\0")])
