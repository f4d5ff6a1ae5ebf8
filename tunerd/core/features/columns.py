"""The columns that a study's values take in a model's matrix, and the codes of its categories."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tunerd.core.observation import Scalar
from tunerd.core.study.context_key import ValueType

__all__ = ["CategoryEncoder", "ColumnSource", "FeatureColumn", "Group"]

MAX_VALUES = 1_000
"""Values of one category that get a code; later ones are missing values, so that a feature fed
with job names cannot grow without bound."""

Group = Literal["context", "lookup", "parameter", "derived"]


@dataclass(frozen=True, slots=True)
class FeatureColumn:
    """One column of the matrix."""

    name: str
    group: Group
    categorical: bool = False
    """Holds codes 0, 1, …, whose order means nothing."""
    log: bool = False
    """The study says that ratios matter."""


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """A context feature, parameter or derived value, and where its columns begin."""

    name: str
    group: Group
    type: ValueType
    repeat: int = 0
    """Values per configuration; 0 for a plain one."""
    choices: tuple[Scalar, ...] = ()
    log: bool = False
    feature: str | None = None
    attribute: str | None = None
    """For a lookup: the category, and which of its numbers."""
    start: int = 0
    """First column. A repeated source has one per position, then its totals."""

    def starting(self, column: int) -> "ColumnSource":
        """Return the same source with its columns beginning there."""
        return replace(self, start=column)

    @property
    def columns(self) -> slice:
        """Where the values themselves stand."""
        return slice(self.start, self.start + max(self.repeat, 1))

    @property
    def totals(self) -> slice:
        """Where the sums over the positions stand: for layers it mostly matters how many have a
        value, which trees would have to piece together position by position."""
        width = 0
        if self.repeat:
            width = len(self.choices) if self.type == "category" else 1
        return slice(self.columns.stop, self.columns.stop + width)

    def described(self) -> list[FeatureColumn]:
        """All its columns, in order."""
        categorical = self.type in ("category", "bool")
        if not self.repeat:
            return [FeatureColumn(self.name, self.group, categorical, self.log)]
        names = [f"{self.name}[{place}]" for place in range(self.repeat)]
        totals = [f"mean({self.name})"]
        if self.type == "category":
            totals = [f"count({self.name} == {choice!r})" for choice in self.choices]
        return [FeatureColumn(name, self.group, categorical, self.log) for name in names] + [
            FeatureColumn(name, self.group) for name in totals
        ]


class CategoryEncoder:
    """Codes of categories: a parameter's choices first, then values as they are first seen."""

    def __init__(
        self, fixed: Mapping[str, Sequence[str]], seen: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._codes = {
            name: {text: code for code, text in enumerate(texts)} for name, texts in fixed.items()
        }
        for name, texts in (seen or {}).items():
            for text in texts:
                if name in self._codes:
                    self.code(name, text, learn=True)

    def code(self, name: str, text: str, *, learn: bool) -> float:
        """Code of a value; NaN when it has none and gets none."""
        codes = self._codes[name]
        code = codes.get(text)
        if code is None:
            if not learn or len(codes) >= MAX_VALUES:
                return float("nan")
            code = codes[text] = len(codes)
        return float(code)

    def texts(self, name: str) -> tuple[str, ...]:
        """Values in the order of their codes."""
        return tuple(self._codes[name])

    def dump(self) -> dict[str, list[str]]:
        """State as JSON values: the constructor's ``seen``."""
        return {name: list(codes) for name, codes in self._codes.items()}
