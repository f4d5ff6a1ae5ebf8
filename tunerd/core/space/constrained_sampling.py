"""Sampling under rules that are too wide to list: rejection, else repair and careful moves.

Where a fair part of all combinations is feasible, those are drawn and the rest thrown away, which
is exact. Otherwise rows are repaired, guided by how far each rule is from being kept, and then
moved about by random changes that keep them feasible, which forgets where the repair came from.
Where parameters have many choices, an equality over them is next to never met by values drawn anew:
there choices are moved by powers of two as well, one alone or two together. All effort is bounded.
"""

from collections.abc import Sequence

import numpy as np

from tunerd.core.arrays import BoolArray, Codes, FloatArray, IntArray
from tunerd.core.space.feasible_tables import FeasibleTable
from tunerd.core.space.rules import ConstraintRule

__all__ = ["ConstrainedSampler"]

THROWN_AWAY = 32
"""Combinations drawn for each that is wanted, before repair is the better way."""
PROPOSALS = 16
"""Changes drawn anew that a repair looks at in one step, of which it takes the best; cells with
more choices are moved by strides as well."""
PATIENCE = 400
"""Steps of a repair; each mends about one dimension of every row."""
MENDING = 1 << 19
"""Configurations that one repair may look at."""
ASTRAY = 0.02
"""Share of steps in which a repair takes any change, to leave a dead end."""
KEYS = 1 << 32
"""More than a cell has codes."""
MOVES = (32, 256)
"""Bounds on the random changes that follow a repair; between them, two for each cell."""


class ConstrainedSampler:
    """Cells tied together by wide rules.

    Codes here are whole configurations, (n, D); only the dimensions of the cells are read and
    written.
    """

    def __init__(self, cells: Sequence[FeasibleTable], rules: Sequence[ConstraintRule]) -> None:
        self.cells, self.rules = tuple(cells), tuple(rules)
        self.dimensions = np.sort(np.concatenate([cell.dimensions for cell in cells]))
        self.single = sorted(
            (cell for cell in cells if len(cell.dimensions) == 1), key=lambda c: c.dimensions[0]
        )
        self.tables = [cell for cell in cells if len(cell.dimensions) > 1]
        # All single cells in one array, so that each row can change another cell at once.
        self._place = np.array([cell.dimensions[0] for cell in self.single], dtype=np.int64)
        self._count = np.array([len(cell.table) for cell in self.single], dtype=np.int64)
        self._start = np.cumsum(self._count) - self._count
        self._codes = np.concatenate(
            [np.zeros(0, np.int32), *(cell.table[:, 0] for cell in self.single)]
        )
        self._swap_start, self._swap_count = self._swaps()
        self._long = np.flatnonzero(self._count > PROPOSALS)
        longest = int(self._count.max()) if len(self._long) else 0
        powers = 1 << np.arange(max(longest - 1, 0).bit_length())
        self._strides = np.concatenate([-powers, powers])
        cell = np.repeat(np.arange(len(self.single)), self._count)
        self._keys = cell * KEYS + self._codes  # ascending

    def _swaps(self) -> tuple[IntArray, IntArray]:
        """For each single cell: the run of cells of its parameter, which may trade values."""
        owner = {
            int(d): name
            for rule in self.rules
            for name, places in rule.layout.places.items()
            for d in places
        }
        runs: dict[str, list[int]] = {}
        for number, cell in enumerate(self.single):
            if cell.whole:
                runs.setdefault(owner[int(cell.dimensions[0])], []).append(number)
        start, count = np.arange(len(self.single)), np.ones(len(self.single), np.int64)
        for run in runs.values():
            if run[-1] - run[0] == len(run) - 1:
                start[run], count[run] = run[0], len(run)
        return start, count

    def feasible(self, codes: Codes) -> BoolArray:
        """Return which configurations keep the wide rules."""
        kept = np.ones(len(codes), bool)
        for rule in self.rules:
            kept &= rule.satisfied(codes)
        return kept

    def distance(self, codes: Codes) -> FloatArray:
        """Return how far configurations are from keeping all wide rules."""
        far = np.zeros(len(codes))
        for rule in self.rules:
            far += rule.distance(codes)
        return far

    # ── sampling ─────────────────────────────────────────────────────────────────────────────

    def sample(self, codes: Codes, rng: np.random.Generator) -> BoolArray:
        """Overwrite with feasible rows, spread evenly; returns which rows are.

        Where not all of them are, none may be.
        """
        n, done, drawn = len(codes), 0, 0
        draw = np.repeat(codes[:1], max(n, 256), axis=0)
        while done < n:
            self._draw(draw, rng)
            kept = draw[self.feasible(draw)][: n - done]
            codes[done : done + len(kept)] = kept
            done += len(kept)
            drawn += len(draw)
            if (n - done) * drawn > THROWN_AWAY * len(draw) * max(done, 1):
                break
        if done == n:
            return np.ones(n, bool)
        self._draw_into(codes, np.arange(done, n), rng)
        good = self.mend(codes, rng, at_once=max(len(self.cells) // 8, 1))
        if good.any():
            # A row that could not be mended starts from one that was, and moves away from it.
            codes[~good] = codes[rng.choice(np.flatnonzero(good), size=int((~good).sum()))]
            self._move(codes, rng)
            good[:] = True
        return good

    def _draw(self, codes: Codes, rng: np.random.Generator) -> None:
        """Overwrite with rows of the cells, whatever the wide rules say."""
        if self.single:
            shape = (len(codes), len(self.single))
            picked = (rng.random(shape) * self._count).astype(np.int64)
            codes[:, self._place] = self._codes[self._start + picked]
        for cell in self.tables:
            codes[:, cell.dimensions] = cell.sample(len(codes), rng)

    def _draw_into(self, codes: Codes, rows: IntArray, rng: np.random.Generator) -> None:
        part = codes[rows]
        self._draw(part, rng)
        codes[rows] = part

    # ── repair ───────────────────────────────────────────────────────────────────────────────

    def mend(self, codes: Codes, rng: np.random.Generator, at_once: int = 1) -> BoolArray:
        """Change dimensions of rows that break a wide rule; returns which rows are feasible.

        In each step a row takes the best of several random changes, unless that leads away.
        With one cell changed at once, few are changed in all; with more, far rows come near
        sooner, and the changes become smaller as they no longer help.
        """
        far = self.distance(codes)
        good: BoolArray = np.equal(far, 0.0)
        rows, far = np.flatnonzero(~good), far[~good]
        if not len(rows):
            return good
        looked_at = 0
        for step in range(PATIENCE):
            proposals = np.repeat(codes[rows], PROPOSALS, axis=0)
            # Some rules can only be kept by changing two cells at once.
            for _ in range(2 if at_once == 1 and step % 4 == 3 else at_once):
                self._change(proposals, rng)
            if len(self._long):
                proposals = self._with_strides(proposals, codes[rows], rng, two=step % 2 == 1)
            looked_at += len(proposals)
            gaps = self.distance(proposals).reshape(len(rows), -1)
            best = gaps.argmin(axis=1)
            gap = gaps[np.arange(len(rows)), best]
            luck = rng.random(len(rows))
            taken = (gap < far) | ((gap == far) & (luck < 0.5)) | (luck < ASTRAY)
            if (gap < far).mean() < 0.5:
                at_once = max(at_once // 2, 1)
            codes[rows[taken]] = proposals[np.arange(len(rows)) * gaps.shape[1] + best][taken]
            far = np.where(taken, gap, far)
            good[rows] = far == 0.0
            rows, far = rows[far > 0.0], far[far > 0.0]
            if not len(rows) or looked_at > MENDING:
                break
        return good

    def _change(self, codes: Codes, rng: np.random.Generator) -> None:
        """Draw one cell anew in every row."""
        which = rng.integers(len(self.cells), size=len(codes))
        rows = np.flatnonzero(which < len(self.single))
        number = which[rows]
        picked = (rng.random(len(rows)) * self._count[number]).astype(np.int64)
        codes[rows, self._place[number]] = self._codes[self._start[number] + picked]
        for place, cell in enumerate(self.tables, len(self.single)):
            rows = np.flatnonzero(which == place)
            codes[rows[:, None], cell.dimensions] = cell.sample(len(rows), rng)

    def _with_strides(
        self, proposals: Codes, codes: Codes, rng: np.random.Generator, *, two: bool
    ) -> Codes:
        """Add to the proposals for each row of ``codes`` a long cell moved by every stride, or
        two of them by the same, the one up and the other up or down."""
        rows, count = np.repeat(codes, len(self._strides), axis=0), len(self._strides)
        strides = np.tile(self._strides, len(codes))
        for _ in range(1 + two):
            number = np.repeat(self._long[rng.integers(len(self._long), size=len(codes))], count)
            self._stride(rows, number, strides)
            strides = strides * np.repeat(rng.choice([-1, 1], size=len(codes)), count)
        shape = (len(codes), -1, codes.shape[1])
        joined = np.concatenate([proposals.reshape(shape), rows.reshape(shape)], axis=1)
        return joined.reshape(-1, codes.shape[1])

    def _stride(self, codes: Codes, number: IntArray, strides: IntArray) -> BoolArray:
        """Move one single cell of every row by so many choices, to the last one at most; returns
        which moved all the way."""
        rows, place = np.arange(len(codes)), self._place[number]
        at = np.searchsorted(self._keys, number * KEYS + codes[rows, place])
        first = self._start[number]
        to = np.clip(at + strides, first, first + self._count[number] - 1)
        codes[rows, place] = self._codes[to]
        whole: BoolArray = to == at + strides
        return whole

    # ── moves ────────────────────────────────────────────────────────────────────────────────

    def _move(self, codes: Codes, rng: np.random.Generator) -> None:
        """Random changes that keep rows feasible: they forget where the rows came from.

        Every kind of change is as likely as its reverse, so that what they tend to is uniform
        over all feasible rows that they can reach.
        """
        steps = min(max(2 * len(self.cells), MOVES[0]), MOVES[1])
        for step in range(steps):
            proposal = codes.copy()
            if step % 4 == 3:
                self._trade(proposal, rng)
            elif step % 4 == 1 and len(self._long):
                self._shift(proposal, rng)
            else:
                self._change(proposal, rng)
                if step % 4 == 2:
                    self._change(proposal, rng)
            kept = self.feasible(proposal)
            codes[kept] = proposal[kept]

    def _shift(self, codes: Codes, rng: np.random.Generator) -> None:
        """Let two long cells of every row move by the same stride, apart: what is given to
        the one is taken from the other."""
        proposal = codes.copy()
        strides = rng.choice(self._strides, size=len(codes))
        whole = np.ones(len(codes), bool)
        for _ in range(2):
            number = self._long[rng.integers(len(self._long), size=len(codes))]
            whole &= self._stride(proposal, number, strides)
            strides = -strides
        codes[whole] = proposal[whole]

    def _trade(self, codes: Codes, rng: np.random.Generator) -> None:
        """Let two positions of one repeat parameter trade values in every row."""
        if not self.single:
            return
        rows = np.arange(len(codes))
        position = rng.integers(len(self.single), size=len(codes))
        picked = (rng.random(len(codes)) * self._swap_count[position]).astype(np.int64)
        first, second = self._place[position], self._place[self._swap_start[position] + picked]
        codes[rows, first], codes[rows, second] = codes[rows, second], codes[rows, first]
