"""How far a candidate may be from what runs, and how much one user or node may count.

*Steps* (study file: ``[limits]``): a candidate differs from what serves, the incumbent or else the
baseline, in at most so many values, and on a parameter's grid by at most so many places. What lies
beyond is no part of the space while that serves; a better one nearer by is promoted first, and the
next step goes from there. *Influence*: of a configuration's evidence in one context, no user, no
node and no value of a label counts for more than a stated share, or than their share of all jobs
there where that is larger: whoever runs everything by himself counts in full. A user may be above
his share by less than a job, nodes by a few, where jobs of several nodes take turns.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import field

from tunerd.core.arrays import BoolArray, Codes, IntArray
from tunerd.core.observation import Observation, Value
from tunerd.core.saved_state import SavedState
from tunerd.core.space import SearchSpace
from tunerd.core.study.parts import LimitOptions

__all__ = ["ContributionCaps", "near", "reachable"]

LISTED = 20_000
"""Configurations of a space that are looked at one by one; of larger ones a sample is."""
REACHED = 4_096
"""Configurations that a limited context has at most."""
WHO = 64
"""Users and nodes that a context counts."""
CONFIGS = 128
"""Configurations of which it is counted who ran them."""
ORDERED = ("int", "float")
"""Types whose values are farther apart or nearer."""
MOST_NODES = 16
"""Nodes of a job that are looked at."""


def near(space: SearchSpace, limits: LimitOptions, origin: Codes, codes: Codes) -> BoolArray:
    """(n,) whether configurations (n, D) are within the limits around ``origin`` (D,)."""
    away = np.abs(_ranks(space, codes) - _ranks(space, origin))
    inside = np.ones(len(codes), dtype=bool)
    if limits.max_changes is not None:
        inside &= (away > 0).sum(axis=1) <= limits.max_changes
    close: BoolArray = (away <= _most(space, limits)).all(axis=1)
    return inside & close


def reachable(
    space: SearchSpace,
    limits: LimitOptions,
    serves: Mapping[str, Value],
    known: Iterable[Mapping[str, Value]],
    rng: np.random.Generator,
) -> list[dict[str, Value]] | None:
    """The configurations within the limits around the one that ``serves``, itself among them; of
    ``known`` ones all that are. Where orders or constraints rule it out, around what is nearest to
    it of the rest. None where its values are none of the space's: nothing to step from."""
    origin = space.nearest(serves, rng)
    if origin is None:
        return None
    origin = space.repair(space.on_choices(origin[None]), rng)[0]
    table = space.table(LISTED)
    if table is not None:
        codes = table[near(space, limits, origin, table)]
        if len(codes) > REACHED:
            codes = codes[np.sort(rng.permutation(len(codes))[:REACHED])]
    else:
        drawn = _around(space, limits, origin, rng)
        drawn = drawn[space.feasible(drawn)]
        _, first = np.unique(drawn, axis=0, return_index=True)
        codes = drawn[np.sort(first)[:REACHED]]  # single changes come first
    tried = [code for config in known if (code := space.encode(config)) is not None]
    kept = np.stack([origin, *tried])
    kept = kept[near(space, limits, origin, kept)]
    return [space.decode(code) for code in np.unique(np.concatenate([kept, codes]), axis=0)]


def _around(
    space: SearchSpace, limits: LimitOptions, origin: Codes, rng: np.random.Generator
) -> Codes:
    """Every single change, and random ones of several values."""
    at = _ranks(space, origin)
    most = np.minimum(_most(space, limits), space.sizes - 1)
    low, high = np.maximum(at - most, 0), np.minimum(at + most, space.sizes - 1)
    free = _unordered(space) & (most > 0)
    low, high = np.where(free, 0, low), np.where(free, space.sizes - 1, high)
    ones = []
    for column in range(len(at)):
        choices = np.arange(low[column], high[column] + 1)
        changed = np.repeat(at[None], len(choices), axis=0)
        changed[:, column] = choices
        ones.append(changed)
    deepest = min(limits.max_changes or len(at), len(at))
    count = 4 * REACHED
    depth = rng.integers(1, deepest + 1, count)
    order = rng.random((count, len(at))).argsort(axis=1).argsort(axis=1)
    drawn = rng.integers(low, high + 1, (count, len(origin)))
    many = np.where(order < depth[:, None], drawn, at)
    ranks = np.concatenate([*ones, many])
    for column, rank in _shuffled(space):
        ranks[:, column] = np.argsort(rank)[ranks[:, column]]
    return ranks.astype(np.int32)


def _ranks(space: SearchSpace, codes: Codes) -> IntArray:
    """(…, D) codes, numbers by their place in ascending order, however they are listed: from 4 of
    ``values = [4, 1, 2, 8]`` it is one step to 2. A number between choices has the place of the
    nearest."""
    ranks = space.on_choices(np.atleast_2d(codes)).reshape(codes.shape).astype(np.int64)
    for column, rank in _shuffled(space):
        ranks[..., column] = rank[ranks[..., column]]
    return ranks


def _shuffled(space: SearchSpace) -> Iterator[tuple[int, IntArray]]:
    """Dimensions of numbers that are listed in another order than ascending, and the rank of each
    choice; of one that is missing the last."""
    choices = {
        parameter.name: parameter.choices
        for parameter in space.study.parameters
        if parameter.type in ORDERED
    }
    shuffled = {name: own for name, own in choices.items() if list(own) != sorted(own)}
    for column, dimension in enumerate(space.dimensions):
        if dimension.parameter in shuffled:
            rank = np.argsort(np.argsort(shuffled[dimension.parameter]))
            yield column, np.append(rank, len(rank))[: dimension.size]


def _most(space: SearchSpace, limits: LimitOptions) -> Codes:
    """(D,) places by which each value may be away; any other category is one place away."""
    steps = [
        limits.max_steps.get(dimension.parameter, int(size))
        for dimension, size in zip(space.dimensions, space.sizes.tolist(), strict=True)
    ]
    most = np.array(steps)
    return np.where(_unordered(space) & (most > 0), space.sizes, most)


def _unordered(space: SearchSpace) -> BoolArray:
    kinds = {parameter.name: parameter.type for parameter in space.study.parameters}
    return np.array([kinds[dimension.parameter] not in ORDERED for dimension in space.dimensions])


class ContributionCaps(SavedState):
    """Who ran what in one context, in jobs that say something of their configuration: what was
    cancelled takes nobody's share, and adds to no one's."""

    jobs: int = 0
    who: dict[str, int] = field(default_factory=dict)
    """User, node or label → jobs in this context."""
    configs: dict[str, dict[str, int]] = field(default_factory=dict)
    """Candidate id → user, node or label → jobs that counted; all under the empty name."""

    def counts(self, candidate_id: str, job: Observation, limits: LimitOptions) -> bool:
        """Enter a job that says something of its configuration; says whether it counts as evidence
        for it.

        A name whose next job would pass its share may still pass it by less than that job: two who
        share everything evenly would else each wait for ever for the other.
        """
        named = dict.fromkeys(_users(job), limits.max_user_share)
        named |= dict.fromkeys(_nodes(job), limits.max_node_share)
        named |= _labels(job, limits.max_label_share)
        self.jobs += 1
        for name in named:
            self.who[name] = self.who.get(name, 0) + 1
        _bound(self.who, set(named))
        ran = self.configs.pop(candidate_id, {})
        self.configs[candidate_id] = ran
        while len(self.configs) > CONFIGS:
            del self.configs[next(iter(self.configs))]
        over = self._over(ran, limits)
        above = [name for name in named if name in over]
        if any(not name.startswith("n:") for name in above) or self._moves_away(above, over):
            return False
        for name in ["", *named]:
            ran[name] = ran.get(name, 0) + 1
        _bound(ran, {"", *named})  # else who is new among many is forgotten each time
        return True

    def _over(self, ran: Mapping[str, int], limits: LimitOptions) -> dict[str, tuple[float, float]]:
        """Whoever has all that is his share of a configuration's evidence: the share, and by how
        many jobs he is above it."""
        over, total = {}, ran.get("", 0)
        for name, jobs in ran.items():
            share = max(_least(name, limits), self.who.get(name, 0) / self.jobs)
            if name and jobs >= max(1.0, share * (total + 1) - 1e-9):
                over[name] = share, jobs - share * total
        return over

    @staticmethod
    def _moves_away(above: Sequence[str], over: Mapping[str, tuple[float, float]]) -> bool:
        """Whether one more job with the nodes ``above`` takes more away from their shares than it
        takes others back to theirs: the slope of the sum of squares of what is ``over``.

        Where jobs have several nodes of few, as 8 of 12, soon every job has one that is over. Were
        it refused for that, nothing would count any more. Over all jobs that come this slope is
        never above 0 while nodes come as often as everywhere in the context: some of them count.
        """
        up = sum(over[name][1] for name in above)
        return up > sum(share * jobs for share, jobs in over.values()) + 1e-9


def _users(job: Observation) -> list[str]:
    return [] if job.user is None else [f"u:{job.user}"]


def _nodes(job: Observation) -> list[str]:
    nodes = job.extra.get("nodes")
    if not isinstance(nodes, Sequence) or isinstance(nodes, str):
        return []
    return [f"n:{node}" for node in dict.fromkeys(nodes[:MOST_NODES]) if isinstance(node, str)]


def _labels(job: Observation, shares: Mapping[str, float]) -> dict[str, float]:
    """The job's values of the labels that have a limit, and their shares."""
    labels = job.extra.get("labels")
    if not shares or not isinstance(labels, Mapping):
        return {}
    return {
        f"l:{label}={labels[label]}": share for label, share in shares.items() if label in labels
    }


def _least(name: str, limits: LimitOptions) -> float:
    """The share that a user, node or label may have whatever his share of the context's jobs is."""
    if name.startswith("l:"):
        of_label = (
            share
            for label, share in limits.max_label_share.items()
            if name.startswith(f"l:{label}=")
        )
        return max(of_label, default=1.0)
    return limits.max_user_share if name.startswith("u:") else limits.max_node_share


def _bound(counts: dict[str, int], kept: set[str]) -> None:
    while len(counts) > WHO:
        fewest = min(
            (number for number in counts if number not in kept),
            key=lambda number: (counts[number], number),
        )
        del counts[fewest]
