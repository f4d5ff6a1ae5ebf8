"""Cells that a spreadsheet merged over several rows: saved, all but the first of them are empty."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tunerd.core.observation import Value
from tunerd.lab.tables.rows import TableRow

__all__ = ["MergedCells", "merged_columns"]

FEWEST_BLOCKS = 2


class MergedCells:
    """Fills what is empty with what stands above it."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._above: dict[str, Value] = {}

    def begin(self) -> None:
        """The table begins anew."""
        self._above.clear()

    def told(self) -> list[str]:
        """A sentence for people, where there are any."""
        shown = ", ".join(self.columns)
        return (
            [f"empty cells of {shown} say what stands above them, as merged ones do"]
            if shown
            else []
        )

    def filled(self, row: TableRow) -> TableRow:
        """A row with all cells; to be asked of each row in the order of the table."""
        if not self.columns:
            return row
        values: Mapping[str, Value] = row.values
        for column in self.columns:
            if values.get(column) is not None:
                self._above[column] = values[column]
        return TableRow(row.number, {**values, **self._above})


def merged_columns(head: Sequence[TableRow]) -> list[str]:
    """The first columns of a table whose cells were merged: each is empty but in the first row of
    blocks of one length, those of the column before it included, and the next column is full."""
    merged: list[str] = []
    outer = {0}
    for column in head[0].values if head else ():
        starts = [n for n, row in enumerate(head) if row.values.get(column) is not None]
        if len(starts) == len(head):
            return merged
        sizes = [after - before for before, after in pairwise([*starts, len(head)])]
        texts = [head[n].values.get(column) for n in starts]
        again = not merged and any(before == after for before, after in pairwise(texts))
        if len(starts) < FEWEST_BLOCKS or not outer <= set(starts) or again:
            return []
        if len(set(sizes[:-1])) > 1 or sizes[-1] > sizes[0] or sizes[0] < 2:
            return []
        merged.append(column)
        outer = set(starts)
    return []
