"""The search space of a study in one context: what may be tried there.

A configuration is a row of codes, one for each dimension (a ``repeat`` parameter has one per
position): the place of a choice, or what stands for a number between the choices of a continuous
range. What is drawn or searched lies on the choices; a job or a person may use any number between
them, and that is a configuration of the space like any other.

The constraints split the dimensions into independent blocks; a block is listed in a table where
that can be afforded (:mod:`tunerd.core.space.feasible_tables`), and sampled under its wide rules
where not (:mod:`tunerd.core.space.constrained_sampling`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from tunerd.core.arrays import Array, BoolArray, Codes, FloatArray, IntArray, names_of
from tunerd.core.expressions import ValueColumn
from tunerd.core.observation import Scalar, Value
from tunerd.core.space.constrained_sampling import ConstrainedSampler
from tunerd.core.space.feasible_tables import FeasibleTable, JoinedTables, join
from tunerd.core.space.infeasible import explain_empty, explain_not_found, explain_outright
from tunerd.core.space.listed import ListedConfigTable
from tunerd.core.space.rules import CodeLayout, ConstraintRule, rules_of
from tunerd.core.study import Parameter, Study
from tunerd.core.study.continuous_range import BETWEEN
from tunerd.errors import NothingFeasibleError

__all__ = ["Codes", "Dimension", "IndependentBlock", "SearchSpace"]

DOUBLINGS = 5
"""Times the points of continuous ranges are doubled where no point keeps the constraints: from 33
to 1,025, two of which still fit into a table."""
SEEDS = 32
"""Feasible rows of a wide block that are kept for rows that no repair can mend."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One column of a configuration's codes."""

    name: str
    """``tp``, or ``sharding[3]`` for a position of a repeat parameter."""
    parameter: str
    position: int
    size: int
    """Number of choices."""


@dataclass(frozen=True, slots=True, eq=False)
class IndependentBlock:
    """Dimensions that no constraint ties to others."""

    dimensions: IntArray
    """(k,) ascending."""
    table: Codes | None
    """(rows, k) feasible tuples in lexicographic order; ``None`` where they are too many."""


class SearchSpace:
    """What a study's constraints allow in one context."""

    def __init__(
        self,
        study: Study,
        context: Mapping[str, object],
        only: Sequence[Mapping[str, object]] | None = None,
    ) -> None:
        """Split the space into blocks and list those that can be listed.

        Where no choice of a continuous range keeps the constraints, more of it are looked at.
        With ``only``, nothing but those of these configurations that keep the constraints may be
        tried; values may be missing in them, and nowhere else.

        Raises:
            NothingFeasibleError: naming the constraints and the context.
        """
        self.context: dict[str, Scalar] = study.clean_context(context)
        try:
            self._build(study, only)
        except NothingFeasibleError as error:
            finer = study.finer(DOUBLINGS)
            if finer is study or only is not None:
                raise
            try:
                self._build(finer, only)
            except NothingFeasibleError:
                raise error from None

    def _build(self, study: Study, only: Sequence[Mapping[str, object]] | None) -> None:
        self.study = study
        missing = frozenset(p.name for p in study.parameters if _lacks(p, only or ()))
        self.dimensions = tuple(
            Dimension(
                f"{parameter.name}[{position}]" if parameter.repeated else parameter.name,
                parameter.name,
                position,
                len(parameter.choices) + (parameter.name in missing),
            )
            for parameter in study.parameters
            for position in range(parameter.repeat)
        )
        self.sizes: IntArray = np.array([d.size for d in self.dimensions], dtype=np.int64)
        self._layout = CodeLayout(study, self.context, missing)
        rules = rules_of(self._layout)
        explain_outright(study, self.context, rules)
        rules = tuple(rule for rule in rules if len(rule.dimensions))
        self._rules = rules
        self._only: frozenset[bytes] | None = None
        cells = self._listed(only, rules) if only is not None else join(self.sizes, rules)
        if cells.empty is not None:
            explain_empty(study, self.context, self.sizes, rules, cells.empty)
        self._cells = cells.cells
        self._wide = _components(cells.cells, cells.wide)
        self._seeds = [self._found(wide) for wide in self._wide]
        self.blocks = self._blocks()

    @property
    def nbytes(self) -> int:
        """Memory of what is listed, in bytes."""
        listed = [cell.table for cell in self._cells] + self._seeds
        listed += [block.table for block in self.blocks if block.table is not None]
        return sum(table.nbytes for table in listed)

    def _listed(
        self, only: Sequence[Mapping[str, object]], rules: Sequence[ConstraintRule]
    ) -> JoinedTables:
        """All dimensions in one cell, whose rows are the configurations that keep the rules."""
        known = [code for code in map(self._codes, only) if code is not None]
        codes = np.array(known, np.int32).reshape(len(known), len(self.sizes))
        for rule in rules:
            codes = codes[rule.satisfied(codes)]
        between = (codes >= BETWEEN).any(axis=1)
        self._only = frozenset(names_of(codes[between]))
        codes = codes[~between]
        if not len(codes):
            raise NothingFeasibleError(
                f"none of the {len(only)} configurations that may be tried keeps the study's space "
                f"and constraints in the context {self.study.context_key(self.context)}"
            )
        return JoinedTables((ListedConfigTable.of(codes, self.sizes),), ())

    def _found(self, wide: ConstrainedSampler) -> Codes:
        codes = np.zeros((SEEDS, len(self.sizes)), np.int32)
        if not wide.sample(codes, np.random.default_rng(0)).all():
            explain_not_found(self.study, self.context, wide)
        return codes

    def _blocks(self) -> tuple[IndependentBlock, ...]:
        tied = {id(cell) for wide in self._wide for cell in wide.cells}
        self._free = [cell for cell in self._cells if id(cell) not in tied]
        blocks = [IndependentBlock(cell.dimensions, cell.table) for cell in self._free]
        blocks += [IndependentBlock(wide.dimensions, None) for wide in self._wide]
        return tuple(sorted(blocks, key=lambda block: int(block.dimensions[0])))

    @property
    def size(self) -> int | None:
        """Number of feasible configurations; ``None`` when there are too many to list a block."""
        return None if self._wide else prod(len(cell.table) for cell in self._free)

    # ── feasible configurations ──────────────────────────────────────────────────────────────

    def sample(self, n: int, rng: np.random.Generator) -> Codes:
        """Return (n, D) feasible configurations, evenly spread over all that are feasible.

        Exactly uniform where blocks are listed or a fair share of combinations is feasible,
        approximately where they must be repaired.
        """
        codes = np.zeros((n, len(self.sizes)), np.int32)
        if not n:
            return codes
        for cell in self._free:
            codes[:, cell.dimensions] = cell.sample(n, rng)
        for wide, seeds in zip(self._wide, self._seeds, strict=True):
            good = wide.sample(codes, rng)
            rows = np.flatnonzero(~good)
            places = wide.dimensions
            codes[rows[:, None], places] = seeds[rng.integers(len(seeds), size=len(rows))][
                :, places
            ]
        return codes

    def spread(self, n: int, rng: np.random.Generator) -> Codes:
        """Return (n, D) feasible configurations that fill the space evenly.

        Points of a scrambled Sobol sequence are mapped onto the tables of the blocks, and
        repaired where wide rules ask for it. Distinct while there are enough.
        """
        codes = np.zeros((n, len(self.sizes)), np.int32)
        if not n:
            return codes
        points = _sobol(n, len(self.sizes), rng)
        for cell in self._cells:
            codes[:, cell.dimensions] = cell.spread(points[:, cell.dimensions])
        return self._distinct(self._mended(codes, rng), rng)

    def _distinct(self, codes: Codes, rng: np.random.Generator) -> Codes:
        """Replace repeated rows by others while there are others."""
        names_seen: set[bytes] = set()
        again = [i for i, row in enumerate(codes) if _is_old(row, names_seen)]
        if again and (size := self.size) is not None and size <= 4 * len(codes):
            fresh: Codes = rng.permutation(self._product())
        else:
            fresh = self.sample(4 * len(again), rng)
        for row in fresh:
            if not again:
                break
            if not _is_old(row, names_seen):
                codes[again.pop(0)] = row
        return codes

    def feasible(self, codes: Codes) -> BoolArray:
        """Return which of (n, D) configurations are feasible, (n,)."""
        inside: BoolArray = np.all((codes >= 0) & (codes < self.sizes), axis=1)
        if not inside.all():
            given, codes = codes, np.where(inside[:, None], codes, 0)
            between = np.flatnonzero((given >= BETWEEN).any(axis=1))
            if len(between):
                kept = self.feasible(codes) if inside.any() else inside
                kept[between] = self._between(given[between])
                return kept & (inside | (given >= BETWEEN).any(axis=1))
        for cell in self._cells:
            if not cell.whole:
                inside &= cell.holds(codes[:, cell.dimensions])
        for wide in self._wide:
            inside &= wide.feasible(codes)
        return inside

    def _between(self, codes: Codes) -> BoolArray:
        """Return which of (n, D) configurations with numbers between choices are feasible."""
        if self._only is not None:
            return np.array([name in self._only for name in names_of(codes)], np.bool_)
        known = (codes < self.sizes) | ((codes >= BETWEEN) & self._continuous)
        kept: BoolArray = np.all((codes >= 0) & known, axis=1)
        rows = np.flatnonzero(kept)
        for rule in self._rules:
            rows = rows[rule.satisfied(codes[rows])]
        kept[:] = False
        kept[rows] = True
        return kept

    @cached_property
    def _continuous(self) -> BoolArray:
        between = {parameter.name for parameter in self.study.parameters if parameter.continuous}
        return np.array([dimension.parameter in between for dimension in self.dimensions], np.bool_)

    def on_choices(self, codes: Codes) -> Codes:
        """Return (n, D) configurations with the nearest choice for every number between choices,
        whatever the constraints say."""
        moved = codes.copy()
        parameters = {parameter.name: parameter for parameter in self.study.parameters}
        for row, column in np.argwhere(codes >= BETWEEN).tolist():
            parameter = parameters[self.dimensions[column].parameter]
            moved[row, column] = parameter.nearest_place(int(codes[row, column]))
        return moved

    def table(self, limit: int) -> Codes | None:
        """Return all feasible configurations, (n, D), if there are at most ``limit``, else
        ``None``; ``None`` too when a block cannot be listed."""
        size = self.size
        return None if size is None or size > limit else self._product()

    def _product(self) -> Codes:
        number = np.arange(self.size or 0)
        codes = np.zeros((len(number), len(self.sizes)), np.int32)
        for cell in reversed(self._free):
            number, row = np.divmod(number, len(cell.table))
            codes[:, cell.dimensions] = cell.table[row]
        return codes

    def repair(self, codes: Codes, rng: np.random.Generator) -> Codes:
        """Return (n, D) feasible configurations near the given ones; feasible ones unchanged.

        In a listed block the row that changes fewest dimensions is taken, elsewhere a guided
        search that changes one after the other.
        """
        between = (codes >= BETWEEN).any(axis=1)
        if not between.any():
            return self._repaired(codes, rng)
        wrong = ~(between & self.feasible(codes))
        repaired: Codes = codes.astype(np.int32)
        repaired[wrong] = self._repaired(self.on_choices(codes[wrong]), rng)
        return repaired

    def _repaired(self, codes: Codes, rng: np.random.Generator) -> Codes:
        """The same of configurations on choices."""
        inside = np.clip(codes, 0, self.sizes - 1).astype(np.int32)
        for cell in self._cells:
            if not cell.whole:
                rows = np.flatnonzero(~cell.holds(inside[:, cell.dimensions]))
                if len(rows):
                    near = cell.nearest.find(inside[rows[:, None], cell.dimensions], rng)
                    inside[rows[:, None], cell.dimensions] = near
        return self._mended(inside, rng)

    def _mended(self, codes: Codes, rng: np.random.Generator) -> Codes:
        """Repair wide blocks in place; what cannot be mended takes the nearest row known."""
        for wide, seeds in zip(self._wide, self._seeds, strict=True):
            before = codes.copy()
            good = wide.mend(codes, rng)
            for row in np.flatnonzero(~good):
                known = np.concatenate([seeds, codes[good]])[:, wide.dimensions]
                far = (known != before[row, wide.dimensions]).sum(axis=1)
                codes[row, wide.dimensions] = known[far.argmin()]
        return codes

    # ── configurations as people write them ──────────────────────────────────────────────────

    def encode(self, config: Mapping[str, object]) -> Codes | None:
        """Return a configuration's codes, (D,); ``None`` when a value is missing or outside the
        space, or the constraints rule the configuration out here.

        Other entries are ignored. A single value for a repeat parameter stands for all positions.
        """
        row = self._codes(config)
        return None if row is None or not bool(self.feasible(row[None, :])[0]) else row

    def nearest(self, config: Mapping[str, object], rng: np.random.Generator) -> Codes | None:
        """Return the codes, (D,), of a configuration, or where the constraints rule it out of one
        near it; ``None`` when a value is missing or outside the space."""
        row = self._codes(config)
        return None if row is None else self.repair(row[None, :], rng)[0]

    def _codes(self, config: Mapping[str, object]) -> Codes | None:
        """Return a configuration's codes whatever the constraints say."""
        codes: list[int] = []
        for parameter in self.study.parameters:
            for value in parameter.spread(config.get(parameter.name)):
                place = parameter.index(value)
                if place is None and value is None and parameter.name in self._layout.missing:
                    place = len(parameter.choices)
                if place is None:
                    return None
                codes.append(place)
        return np.array(codes, dtype=np.int32)

    def decode(self, code: Codes) -> dict[str, Value]:
        """Return a configuration, (D,), with values as printed and lists for repeat parameters."""
        config: dict[str, Value] = {}
        for parameter in self.study.parameters:
            places = self._layout.places[parameter.name]
            values = [_choice(parameter, int(code[place])) for place in places]
            config[parameter.name] = values if parameter.repeated else values[0]
        return config

    def columns(self, codes: Codes) -> dict[str, Array]:
        """Return parameters and derived values of (n, D) configurations by name.

        Arrays are (n,), or (n, repeat) for repeat parameters; categories are arrays of text.
        A derived number that is undefined somewhere is a float column with NaN there.
        """
        columns = self.typed_columns(codes)
        names = [*self._layout.places, *(derived.name for derived in self.study.derived)]
        return {name: columns[name].plain(len(codes)) for name in names}

    def typed_columns(self, codes: Codes) -> dict[str, ValueColumn]:
        """Return context, parameters and derived values of (n, D) configurations by name, as
        expressions read them; a constant is a column of shape ()."""
        columns = dict(self._layout.constants)
        for parameter in self.study.parameters:
            places = self._layout.places[parameter.name]
            columns[parameter.name] = self._layout.column(parameter, codes[:, places])
        return columns | self.study.derive(columns)


def _choice(parameter: Parameter, code: int) -> Scalar:
    missing = len(parameter.choices) <= code < BETWEEN
    return None if missing else parameter.value(code)


def _lacks(parameter: Parameter, configs: Sequence[Mapping[str, object]]) -> bool:
    """Whether a value of the parameter is missing in one of the configurations."""
    return any(
        value is None
        for config in configs
        for value in parameter.spread(config.get(parameter.name))
    )


def _components(
    cells: Sequence[FeasibleTable], rules: Sequence[ConstraintRule]
) -> list[ConstrainedSampler]:
    """Group the cells that wide rules tie together."""
    groups: list[tuple[set[int], list[ConstraintRule]]] = []
    owner = {int(d): number for number, cell in enumerate(cells) for d in cell.dimensions}
    for rule in rules:
        tied = {owner[int(d)] for d in rule.dimensions}
        joined = [rule]
        for group in [group for group in groups if group[0] & tied]:
            groups.remove(group)
            tied |= group[0]
            joined = [*group[1], *joined]
        groups.append((tied, joined))
    return [
        ConstrainedSampler([cells[number] for number in sorted(tied)], joined)
        for tied, joined in groups
    ]


def _sobol(n: int, width: int, rng: np.random.Generator) -> FloatArray:
    from scipy.stats import qmc  # half a second to import, for those who need it

    power = max(n - 1, 1).bit_length()
    points: FloatArray = qmc.Sobol(width, scramble=True, rng=rng).random_base2(power)[:n]
    return points


def _is_old(row: Codes, seen: set[bytes]) -> bool:
    key = row.tobytes()
    old = key in seen
    seen.add(key)
    return old
