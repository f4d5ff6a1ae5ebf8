"""``evolution``: populations that cross and mutate, (μ + λ), one for each seed.

Parents pass on genes (:mod:`.genes`), so that what constraints tie together stays together; what
breaks a rule is repaired. A population in which nothing new is good any more starts
again from scratch, and the best of all are polished in the end (:mod:`.local_search`).
"""

from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import BoolArray, Codes, FloatArray
from tunerd.core.searchers.base import CachedScorer, Searcher
from tunerd.core.searchers.genes import distinct, genes_of
from tunerd.core.searchers.groups import first_draws
from tunerd.core.searchers.local_search import polish
from tunerd.core.space import SearchSpace

__all__ = ["EvolutionSearcher"]

PARENTS = 24
"""μ: the best of a population so far."""
CHILDREN = 24
"""λ: what is tried in a generation."""
CROSSED = 0.6
"""Share of children that have two parents."""
NEAR = 0.5
"""Share of mutations that move an ordered choice to one beside it."""
PATIENCE = 20
"""Generations without a better parent after which a population starts again."""
POLISH_SHARE = 0.25
"""Share of the budget that is kept for polishing."""


@dataclass(slots=True)
class _Population:
    lane: int
    codes: Codes
    scores: FloatArray
    idle: int = 0


class EvolutionSearcher(Searcher):
    """One population per seed of the study's ``[search]`` table."""

    def _explore(
        self, space: SearchSpace, scored: CachedScorer, begin: Codes, rng: np.random.Generator
    ) -> None:
        breeding = _OffspringGenerator(space)
        with scored.reserve(POLISH_SHARE):
            populations = [_started(space, scored, begin, rng) for _ in self.options.seeds]
            barren = 0
            while scored.left and barren < PATIENCE:
                before = len(scored)
                for place, population in enumerate(populations):
                    scored.lane = population.lane
                    children = breeding.children(population, rng)
                    _select(population, children, scored(children))
                    if population.idle > PATIENCE:
                        populations[place] = _started(space, scored, begin[:0], rng)
                barren = 0 if len(scored) > before else barren + 1
        polish(space, scored, [population.lane for population in populations], rng)


class _OffspringGenerator:
    """How children come about in one space."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._gene_of, count = genes_of(space)
        self._genes = [np.flatnonzero(self._gene_of == number) for number in range(count)]
        self._tables = self._listed(space)
        self._ordered = _ordered(space)

    def _listed(self, space: SearchSpace) -> list[Codes | None]:
        """For each gene: the tuples that it may hold, None where its block has no table."""
        listed: list[Codes | None] = [None] * len(self._genes)
        for block in space.blocks:
            for gene in np.unique(self._gene_of[block.dimensions]).tolist():
                if len(self._genes[gene]) == len(block.dimensions):
                    listed[gene] = block.table
        return listed

    def children(self, population: _Population, rng: np.random.Generator) -> Codes:
        """CHILDREN feasible configurations."""
        # Of two at random the better is a parent; the population is ordered, best first.
        picks = rng.integers(len(population.codes), size=(2, 2, CHILDREN)).min(axis=0)
        children = population.codes[picks[0]].copy()
        other = population.codes[picks[1]]
        crossed = rng.random(CHILDREN) < CROSSED
        taken = rng.random((CHILDREN, len(self._genes))) < 0.5
        children = np.where((taken & crossed[:, None])[:, self._gene_of], other, children)
        # Crossed children mutate too, if they have a gene of the same as both parents.
        changes = rng.geometric(0.5, size=CHILDREN) - crossed
        for row in np.flatnonzero(changes > 0).tolist():
            size = min(int(changes[row]), len(self._genes))
            for number in rng.choice(len(self._genes), size=size, replace=False).tolist():
                self._mutate(children[row], number, rng)
        return self._space.repair(children.astype(np.int32), rng)

    def _mutate(self, code: Codes, number: int, rng: np.random.Generator) -> None:
        """Change one gene in place."""
        gene, table = self._genes[number], self._tables[number]
        if len(gene) > 1 and table is not None:
            kept = (table != code[gene]).sum(axis=1)
            near = np.flatnonzero((kept > 0) & (kept <= 1 + (rng.random() < 0.3)))
            rows = near if len(near) else np.arange(len(table))
            code[gene] = table[rows[rng.integers(len(rows))]]
            return
        dimension = int(gene[0])
        at = int(code[dimension])
        choices = np.arange(self._space.sizes[dimension]) if table is None else table[:, 0]
        if self._ordered[dimension] and rng.random() < NEAR:
            reach = 1 + len(choices) // 16
            choices = choices[np.abs(choices - at) <= reach]
        others = choices[choices != at]
        if len(others):
            code[dimension] = others[rng.integers(len(others))]


def _started(
    space: SearchSpace, scored: CachedScorer, begin: Codes, rng: np.random.Generator
) -> _Population:
    scored.lane = scored.new_lane()
    drawn = first_draws(space, 2 * PARENTS, rng)
    population = _Population(scored.lane, np.empty((0, len(space.sizes)), np.int32), np.empty(0))
    codes = np.concatenate([begin[: PARENTS // 2], drawn])
    _select(population, codes, scored(codes))
    population.idle = 0
    return population


def _select(population: _Population, codes: Codes, scores: FloatArray) -> None:
    """Keep the best PARENTS of old and new, each once; what cannot be scored is the worst."""
    scores = np.where(np.isnan(scores), -np.inf, scores)
    joined = np.concatenate([population.codes, codes])
    values = np.concatenate([population.scores, scores])
    places = distinct(joined)
    order = places[np.argsort(-values[places], kind="stable")][:PARENTS]
    population.idle = 0 if (order >= len(population.codes)).any() else population.idle + 1
    population.codes, population.scores = joined[order], values[order]


def _ordered(space: SearchSpace) -> BoolArray:
    """Which dimensions have choices in an order that means something."""
    types = {p.name: p.type for p in space.study.parameters}
    return np.array([types[d.parameter] in ("int", "float") for d in space.dimensions])
