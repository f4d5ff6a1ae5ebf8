"""How well ``boosted_trees`` ranks configurations of measured tables, beside default LightGBM.

Two situations per table: a fifth of the rows held out at random, and only 5 % of the rows known.
The figure is Kendall's τ within contexts, over contexts with at least eight unseen rows. The peer
is asked about the same rows, once on the raw objective and once on its logarithm; the bar is the
better of the two, less what the paired differences of the repeats leave open.
``benchmarks.yardsticks`` asks everybody everything; this is its smallest part, in a minute.

``boosted_trees`` was tuned on these very tables: read the margins as optimistic.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.kit import Bars, arguments, counted
from benchmarks.peers import forecaster as peer
from benchmarks.tables import DATA, Table, read_table
from tunerd.core.study_file import parse_study
from tunerd.lab.evaluation.backtest import SplitScore, answer, ask, verdicts
from tunerd.lab.evaluation.forecast_scores import GroundTruth
from tunerd.lab.evaluation.splits import folds, parse_known, parse_split
from tunerd.lab.evaluation.tunerd_forecaster import forecaster

TABLES = ("vtrain_megatron", "trimtuner_ps")
KNOWN = {"a fifth held out": "80%", "5 % known": "5%"}
PEERS = ("lightgbm", "lightgbm_log")
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
    for name in counted("tables", options.tables):
        table = read_table(name, options.data)
        for situation, known in KNOWN.items():
            print(f"{name}, {situation}: {len(table.observations)} rows, {repeats} repeats")
            compare(bars, f"{name}, {situation}", table, known, repeats)
    return bars.end(options)


def compare(bars: Bars, title: str, table: Table, known: str, repeats: int) -> None:
    """One table in one situation."""
    study, jobs = parse_study(table.study), table.observations
    made = folds(study, parse_split("random", study), jobs, parse_known(known), repeats)
    questions = ask(made, [forecaster("boosted_trees"), *map(peer, PEERS)])
    answers = (answer(study, jobs, question) for question in questions)
    found = list(verdicts(GroundTruth.of(study, jobs), answers))
    ours = [verdict for verdict in found if verdict.who == "boosted_trees"]
    taus = {who: _taus(found, who) for who in ("boosted_trees", *PEERS)}
    for who in PEERS:
        bars.say(f"{title}: τ, {who}", shown(taus[who]))
    best = max(PEERS, key=lambda who: np.mean(taus[who]))
    ahead = np.array(taus["boosted_trees"]) - np.array(taus[best])
    noise = float(ahead.std(ddof=1) / np.sqrt(repeats))
    bars.say(f"{title}: τ, boosted_trees", shown(taus["boosted_trees"]))
    bars.hold(
        f"{title}: ahead by",
        float(ahead.mean()),
        ahead.mean() + 2 * noise >= 0,
        f"not below 0 by more than 2 · {noise:.3f}",
    )
    covered = [verdict.judged.overall.coverage for verdict in ours]
    inside = [share for share in covered if share is not None]
    bars.say(f"{title}: jobs inside the 80 % band", float(np.mean(inside)))
    bars.say(f"{title}: one fit", float(np.median([v.seconds for v in ours])), "s")


def _taus(found: Sequence[SplitScore], who: str) -> list[float]:
    taus = [verdict.judged.within.kendall_tau for verdict in found if verdict.who == who]
    return [float("nan") if tau is None else tau for tau in taus]


def shown(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


if __name__ == "__main__":
    sys.exit(main())
