"""How well ``boosted_trees`` ranks configurations of measured tables, beside default LightGBM.

Two situations per table: a fifth of the rows held out at random, and only 5 % of the rows known.
The figure is Kendall's τ within contexts, over contexts with at least eight unseen rows. The peer
sees the same matrix and split, once on the raw objective and once on its logarithm; the bar is the
better of the two, less what the paired differences of the repeats leave open.

``boosted_trees`` was tuned on these very tables: read the margins as optimistic.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import lightgbm
import numpy as np

from benchmarks.kit import Bars, arguments
from benchmarks.tables import DATA, read_table
from tunerd.core.arrays import FloatArray
from tunerd.core.features import FeatureMap
from tunerd.core.features.rows import Rows
from tunerd.core.predictors.boosted_trees import BoostedTrees
from tunerd.core.scores import kendall, within_contexts
from tunerd.core.study import Study, parse_study

TABLES = ("vtrain_megatron", "trimtuner_ps")
KNOWN = {"a fifth held out": 0.8, "5 % known": 0.05}
REPEATS = 10


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    parser.add_argument("--tables", nargs="+", default=TABLES, help="which ones")
    options = parser.parse_args(argv)
    bars = Bars("prediction")
    if not (options.data / f"{options.tables[0]}.json").exists():
        bars.say("skipped: no tables in", str(options.data), "(--data says where they are)")
        return 1 if options.check else 0
    repeats = 2 if options.quick else REPEATS
    for name in options.tables:
        table = read_table(name, options.data)
        study = parse_study(table.study)
        features = FeatureMap(study)
        rows = features.rows(table.observations)
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        for situation, share in KNOWN.items():
            print(f"{name}, {situation}: {len(rows)} rows, {repeats} repeats")
            compare(bars, f"{name}, {situation}", study, features, rows, share, repeats)
    return bars.end(options)


def compare(
    bars: Bars,
    title: str,
    study: Study,
    features: FeatureMap,
    rows: Rows,
    share: float,
    repeats: int,
) -> None:
    """One table in one situation."""
    taus: dict[str, list[float]] = {"boosted_trees": [], "raw": [], "log": []}
    covered, seconds = [], []
    for repeat in range(repeats):
        order = np.random.default_rng(repeat).permutation(len(rows))
        cut = round(share * len(rows))
        known, unseen = rows.take(order[:cut]), rows.take(order[cut:])
        started = time.perf_counter()
        predictor = BoostedTrees.fit(study, features, known, seed=repeat)
        seconds.append(time.perf_counter() - started)
        prediction = predictor.predict(unseen)
        taus["boosted_trees"].append(tau(prediction.mean, unseen))
        taus["log"].append(tau(default_lightgbm(features, known, known.score, unseen), unseen))
        sign = 1.0 if study.objective.goal == "maximize" else -1.0
        raw = np.array([study.metric_value(float(score)) for score in known.score]) * sign
        taus["raw"].append(tau(default_lightgbm(features, known, raw, unseen), unseen))
        off = np.abs(unseen.score - prediction.mean) / prediction.spread
        covered.append(float(np.mean(off < 1.2816)))
    for peer in ("raw", "log"):
        bars.say(f"{title}: τ, default LightGBM on {peer}", shown(taus[peer]))
    best = max(("raw", "log"), key=lambda peer: np.mean(taus[peer]))
    ahead = np.array(taus["boosted_trees"]) - np.array(taus[best])
    noise = float(ahead.std(ddof=1) / np.sqrt(repeats))
    bars.say(f"{title}: τ, boosted_trees", shown(taus["boosted_trees"]))
    bars.hold(
        f"{title}: ahead by",
        float(ahead.mean()),
        ahead.mean() + 2 * noise >= 0,
        f"not below 0 by more than 2 · {noise:.3f}",
    )
    bars.say(f"{title}: jobs inside the 80 % band", float(np.mean(covered)))
    bars.say(f"{title}: one fit", float(np.median(seconds)), "s")


def default_lightgbm(
    features: FeatureMap, known: Rows, label: FloatArray, unseen: Rows
) -> FloatArray:
    """What a person gets who trains LightGBM as it comes, categories declared."""
    categorical = [i for i, column in enumerate(features.columns) if column.categorical]
    data = lightgbm.Dataset(known.X, label, categorical_feature=categorical)
    # One thread changes no tree; it keeps a busy machine from stalling the comparison.
    booster = lightgbm.train({"verbosity": -1, "num_threads": 1, "deterministic": True}, data)
    return np.asarray(booster.predict(unseen.X, num_threads=1), dtype=np.float64)


def tau(predicted: FloatArray, rows: Rows) -> float:
    return within_contexts(kendall, predicted, rows.score, rows.context_key)


def shown(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


if __name__ == "__main__":
    sys.exit(main())
