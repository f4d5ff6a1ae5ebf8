"""What the first jobs of a new context add to what all other contexts say of it.

Of each measured table every context is left out, eight at most, and the predictor fitted on the
rest. Then jobs of the context are learned as the service learns them, drawn at random: 5, 10 and
20. The figures are Kendall's τ over its other configurations, and regret: by how much the best of
the five predicted best, and of those that were run, is worse than the best there is. A few jobs can
tell little where other contexts tell nearly all, but they must not spoil it.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.kit import Bars, arguments, counted
from benchmarks.tables import DATA, read_table
from benchmarks.yardsticks.plan import table_names
from tunerd.core.arrays import FloatArray, places_of
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.model.model import StudyModel
from tunerd.core.scores import kendall_large
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.lab.evaluation.scores import regret

KNOWN = (0, 5, 10, 20)
CONTEXTS, REPEATS = 8, 6
MOST_ROWS = 6_000
"""Jobs of other contexts that are learned, at most, so that a fit takes seconds: the latest."""
LEAST = 40
"""Measured jobs below which a context is not asked."""
TOP = 5
SPOILED = 0.01
"""By how much τ may fall at most."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    parser.add_argument("--tables", nargs="+", help="which ones; all of the folder otherwise")
    options = parser.parse_args(argv)
    bars = Bars("own_jobs")
    contexts, repeats = (2, 2) if options.quick else (CONTEXTS, REPEATS)
    for name in counted("tables", options.tables or table_names(options.data)):
        table = read_table(name, options.data)
        study = parse_study(table.study)
        features = FeatureMap(study)
        rows = features.rows(table.observations)
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        found = list(asked(study, features, rows, contexts, repeats))
        if not found:
            print(f"{name}: no context has {LEAST} measured jobs")
            continue
        tau, lost = np.mean(found, axis=0).T
        print(f"{name}, {len(found) // repeats} contexts")
        for known, *figures in zip(KNOWN, tau.tolist(), lost.tolist(), strict=True):
            print(f"  {known:2d} jobs known: τ {figures[0]:.3f}, regret {100 * figures[1]:.2f} %")
        worst = float(tau[1:].min() - tau[0])
        bars.hold(
            f"{name}: τ with own jobs, less τ without", worst, worst >= -SPOILED, f"≥ {-SPOILED}"
        )
    return bars.end(options)


def asked(
    study: Study, features: FeatureMap, rows: FeatureRows, contexts: int, repeats: int
) -> Iterator[FloatArray]:
    """For each context and draw (len(KNOWN), 2): τ and regret."""
    places = [at for at in places_of(rows.context_key).values() if len(at) >= LEAST]
    some = np.linspace(0, len(places) - 1, min(contexts, len(places))).astype(int)
    for there in (places[i] for i in some.tolist()):
        others = np.setdiff1d(np.arange(len(rows)), there)[-MOST_ROWS:]
        parts = StudyModel.fit(study, features, rows.take(others), at=1).dump()
        target = rows.take(there)
        for repeat in range(repeats):
            model = StudyModel.load(study, features, parts)
            order = np.random.default_rng(repeat).permutation(len(there))
            found, seen = np.zeros((len(KNOWN), 2)), 0
            for i, known in enumerate(KNOWN):
                if known:
                    news = target.take(order[seen:known])
                    model.update(news, news, at=1)
                own, rest = target.score[order[:known]], target.take(order[known:])
                said = model.outlook(rest, sure=True).mean
                best = float(np.append(own, rest.score[np.argsort(-said)[:TOP]]).max())
                lost = regret(study, best, float(target.score.max()))
                found[i], seen = (kendall_large(said, rest.score), lost), known
            yield found


if __name__ == "__main__":
    sys.exit(main())
