"""What choices have in common, so that a search learns of many from a few.

The layers of a model mostly want the same, early ones perhaps something else than late ones, and
neighbouring numbers do nearly the same. Drawing each position by itself hardly ever comes near
"all layers alike" (one in 3^47 with 48 of them), and learning each by itself takes as long as there
are positions.
"""

import numpy as np

from tunerd.core.arrays import Codes, FloatArray, IntArray
from tunerd.core.space import SearchSpace

__all__ = ["common", "first_draws", "repeated", "runs", "trades"]

TRADES = 256
"""Pairs of positions that are looked at, drawn at random where there are more."""
PARTS = (1, 2, 4)
"""A repeat parameter is looked at whole, by halves and by quarters."""
KNOTS = 5
"""Hats that are laid over the choices of a number with more choices than that."""


def common(space: SearchSpace) -> FloatArray:
    """Return what each choice belongs to, (choices of all dimensions, groups), entries 0 to 1."""
    start = np.concatenate([[0], np.cumsum(space.sizes)[:-1]])
    width = int(space.sizes.sum())
    ordered = {p.name: p.type in ("int", "float") for p in space.study.parameters}
    columns: list[FloatArray] = []
    for name, positions in repeated(space, least=1).items():
        size = int(space.sizes[positions[0]])
        if ordered[name] and size > KNOTS:
            at = np.linspace(0, KNOTS - 1, size)
            shapes = np.maximum(0.0, 1.0 - np.abs(at[:, None] - np.arange(KNOTS)))
        elif len(positions) == 1:
            continue
        else:
            shapes = np.eye(size)
        for part in _parts(positions):
            for shape in shapes.T:
                column = np.zeros(width)
                for dimension in part.tolist():
                    column[start[dimension] : start[dimension] + size] = shape
                columns.append(column)
    return np.array(columns).reshape(len(columns), width).T


def first_draws(space: SearchSpace, n: int, rng: np.random.Generator) -> Codes:
    """Draw n feasible configurations: half of them evenly, in the others the positions of a repeat
    parameter mostly agree, each part of them on something else."""
    codes = space.sample(n, rng)
    tied = list(repeated(space, least=2).values())
    if not tied:
        return codes
    for row in range(0, n, 2):
        for positions in tied:
            size = int(space.sizes[positions[0]])
            parts = int(rng.choice(PARTS))
            for part in np.array_split(positions, min(parts, len(positions))):
                agreed = rng.random(len(part)) < rng.choice([1.0, 0.9, 0.7])
                codes[row, part[agreed]] = rng.integers(size)
    return space.repair(codes, rng)


def runs(space: SearchSpace, code: Codes) -> Codes:
    """Return feasible configurations that differ from ``code`` (D,) in part of a repeat parameter,
    whose positions agree on one value: (n, D)."""
    candidates = []
    for positions in repeated(space, least=2).values():
        for part in _parts(positions):
            for choice in range(min(int(space.sizes[positions[0]]), KNOTS)):
                row = code.copy()
                row[part] = choice
                candidates.append(row)
    rows = np.array(candidates, np.int32).reshape(len(candidates), len(code))
    return rows[space.feasible(rows)] if len(rows) else rows


def trades(space: SearchSpace, code: Codes, rng: np.random.Generator) -> Codes:
    """Return feasible configurations in which two positions of a repeat parameter have traded their
    values, in random order: (n, D). What a rule or memory limits is then spent elsewhere."""
    pairs = [
        (first, two)
        for positions in repeated(space, least=2).values()
        for at, first in enumerate(positions.tolist())
        for two in positions[at + 1 :].tolist()
        if code[first] != code[two]
    ]
    if not pairs:
        return np.empty((0, len(code)), np.int32)
    chosen = np.array(pairs)[rng.permutation(len(pairs))[:TRADES]]
    rows = np.repeat(code[None], len(chosen), axis=0)
    places = np.arange(len(chosen))[:, None]
    rows[places, chosen] = rows[places, chosen[:, ::-1]]
    return rows[space.feasible(rows)]


def repeated(space: SearchSpace, least: int) -> dict[str, IntArray]:
    """Dimensions of the parameters that have at least so many positions."""
    by_name: dict[str, list[int]] = {}
    for number, dimension in enumerate(space.dimensions):
        by_name.setdefault(dimension.parameter, []).append(number)
    return {name: np.array(of) for name, of in by_name.items() if len(of) >= least}


def _parts(positions: IntArray) -> list[IntArray]:
    wanted = [parts for parts in PARTS if parts == 1 or len(positions) >= 2 * parts]
    return [part for parts in wanted for part in np.array_split(positions, parts)]
