"""How much of everything a run takes. Results of one size are never mixed with another's."""

from dataclasses import dataclass

__all__ = ["FULL", "QUICK", "TINY", "Sizes"]


@dataclass(frozen=True)
class Sizes:
    """Numbers of jobs, seeds and repeats."""

    name: str
    campaigns: int
    """Seeds of Figure 2a."""
    random_jobs: int
    round_size: int
    evaluations: int
    """Predictions of one search in a campaign."""
    truth_calls: int
    """Looks at the cost model itself for the best there is."""
    seeds: int
    """Training sets of Figures 2b and 4 in the ads space, and of the losses."""
    amounts: tuple[int, ...]
    """Jobs known in Figure 4."""
    held_out: int
    """Ads jobs that are asked about."""
    searches: int
    """Predictors that are searched by everybody."""
    calls: tuple[int, ...]
    """Predictions of each of these searches, ascending."""
    peers: bool
    """Whether Optuna's samplers search too."""
    few_seeds: int
    few_jobs: int
    """Jobs of a campaign that begins with few random jobs."""
    hardware_seeds: int
    folds: int
    """Of a random split: how many of its fifths are asked about."""
    draws: int
    """Of the few known jobs of a target."""
    rows: int
    """Jobs of a table, at most; 0 for all."""
    predictors: tuple[str, ...]
    """tunerd's own, on the tables."""
    bootstrap: int


OWN = ("boosted_trees", "committee")
FULL = Sizes(
    name="full",
    campaigns=6,
    random_jobs=150,
    round_size=30,
    evaluations=6_000,
    truth_calls=20_000,
    seeds=10,
    amounts=(25, 50, 75, 100, 150, 200, 300),
    held_out=300,
    searches=6,
    calls=(100, 300, 1_000),
    peers=True,
    few_seeds=4,
    few_jobs=120,
    hardware_seeds=4,
    folds=5,
    draws=3,
    rows=0,
    predictors=OWN,
    bootstrap=1_000,
)
QUICK = Sizes(
    name="quick",
    campaigns=2,
    random_jobs=60,
    round_size=10,
    evaluations=1_500,
    truth_calls=20_000,
    seeds=4,
    amounts=(25, 75, 150),
    held_out=150,
    searches=2,
    calls=(100, 300),
    peers=True,
    few_seeds=2,
    few_jobs=40,
    hardware_seeds=2,
    folds=2,
    draws=2,
    rows=500,
    predictors=OWN[:1],
    bootstrap=200,
)
TINY = Sizes(
    name="tiny",
    campaigns=1,
    random_jobs=20,
    round_size=4,
    evaluations=100,
    truth_calls=500,
    seeds=1,
    amounts=(25, 50),
    held_out=40,
    searches=1,
    calls=(60,),
    peers=False,
    few_seeds=1,
    few_jobs=24,
    hardware_seeds=1,
    folds=1,
    draws=1,
    rows=150,
    predictors=OWN[:1],
    bootstrap=50,
)
