"""Genes: what is taken from one configuration or another as a whole.

What constraints tie together closely, a block with a table of few rows, stays together; of a
larger block the dimensions are taken one by one, and what breaks a rule is repaired.
"""

import numpy as np

from tunerd.core.arrays import Codes, IntArray, names_of
from tunerd.core.space import SearchSpace

__all__ = ["distinct", "genes_of"]

TABLE_ROWS = 512
"""Rows of a block up to which it is a gene."""


def genes_of(space: SearchSpace) -> tuple[IntArray, int]:
    """Return the gene that each dimension belongs to, (D,), and their number."""
    gene_of = np.zeros(len(space.sizes), np.int64)
    count = 0
    for block in space.blocks:
        whole = block.table is not None and len(block.table) <= TABLE_ROWS
        numbers = np.zeros(len(block.dimensions)) if whole else np.arange(len(block.dimensions))
        gene_of[block.dimensions] = count + numbers
        count += 1 if whole else len(numbers)
    return gene_of, count


def distinct(codes: Codes) -> IntArray:
    """Return the first place of each distinct row of (n, D), ascending."""
    places: dict[bytes, int] = {}
    for i, name in enumerate(names_of(codes)):
        places.setdefault(name, i)
    return np.fromiter(places.values(), np.int64, len(places))
