"""From raw values to the matrix that models see.

Derived from the study as it is today, so that a study can gain, lose or rename parameters without
losing history. What an event lacks, or has in an unusable form, is a missing value (NaN); values
outside the search space pass through, and a category's unknown value gets a code of its own.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tunerd.core.arrays import BoolArray, Codes, FloatArray, IntArray
from tunerd.core.expressions import ValueColumn as Values
from tunerd.core.features.columns import CategoryEncoder, ColumnSource, FeatureColumn
from tunerd.core.features.rows import FeatureRows
from tunerd.core.observation import (
    CorrectedObservation,
    FeasibilityLabel,
    Observation,
    ReleasedObservation,
)
from tunerd.core.space import SearchSpace
from tunerd.core.study import DerivedValue, Study
from tunerd.core.study.context_key import ValueType

__all__ = ["FeatureColumn", "FeatureMap", "FeatureRows"]

NAN = float("nan")
STEADY_S = 60.0
"""Seconds below which a measured speed counts for less: warm-up and few steps make it noisy."""
WEAK = 0.5
"""Weight of a failure of unknown cause before anything else is known;
:mod:`tunerd.core.feasibility` says more."""

_RAN = {
    FeasibilityLabel.YES: (1.0, 1.0),
    FeasibilityLabel.NO: (0.0, 1.0),
    FeasibilityLabel.WEAK_NO: (0.0, WEAK),
    FeasibilityLabel.UNKNOWN: (NAN, 0.0),
}
"""What a job teaches → (ran, weight)."""

HELD_BACK = ""
"""Name under which a dump has :attr:`FeatureMap.held_back`, and :attr:`FeatureMap.quarantined` as
negative numbers, with what took their places: no category is called so."""
DESCRIBED = 0.3
"""Standard deviation of the columns of a category's values where lookups describe them. As wide as
any other they would take more than half of what is due to the lookups, and a new kind of hardware
would lie half way between what its numbers say and the mean of those known."""


class FeatureMap:
    """A study's columns. Two studies of one content give the same columns.

    The codes of open categories are state: what was fitted with them is loaded beside their
    :meth:`dump`.
    """

    def __init__(self, study: Study, vocabulary: Mapping[str, Sequence[str]] | None = None) -> None:
        self.study = study
        known = dict(vocabulary or {})
        held = [name.partition(":") for name in known.pop(HELD_BACK, ())]
        places = [(-int(name), int(place or 0)) for name, _, place in held if name[0] == "-"]
        self.held_back = {int(name) for name, _, _ in held if name[0] != "-"}
        """Sequences of observations whose scores no model sees: they were corrected since."""
        self.quarantined = dict(places)
        """Sequences of observations of which no model sees anything
        (:mod:`tunerd.core.outliers`) → that of the first which took its place: its release or its
        end; 0 before that."""
        columns: list[FeatureColumn] = []
        self._sources: list[ColumnSource] = []
        for source in _sources(study):
            self._sources.append(source.starting(len(columns)))
            columns += source.described()
        self.columns = tuple(columns)
        """What the columns of :attr:`FeatureRows.X` are, in order."""
        categories = [source for source in self._sources if source.type == "category"]
        self._vocabulary = CategoryEncoder(
            {s.name: [str(choice) for choice in s.choices] for s in categories}, known
        )

    @property
    def sources(self) -> tuple[ColumnSource, ...]:
        """What the columns come from: context features, lookups, parameters, derived values."""
        return tuple(self._sources)

    @property
    def of_context(self) -> BoolArray:
        """(F,) which columns say something of the context and not of the configuration."""
        return np.array([column.group in ("context", "lookup") for column in self.columns], bool)

    @property
    def categories(self) -> FloatArray:
        """(F,) 0 for a number, 1 for a category, and :data:`DESCRIBED` for one that lookups
        describe: what they say of its values comes before what each has to itself."""
        described = {source.feature for source in self._sources if source.group == "lookup"}
        names = [column.name for column in self.columns]
        weight = np.array([column.categorical for column in self.columns], np.float64)
        weight[[name in described for name in names]] *= DESCRIBED
        return weight

    def dump(self) -> dict[str, list[str]]:
        """Vocabulary of the categories, and what is held back, as JSON values, for the
        constructor."""
        held = [
            f"-{sequence}:{place}" if place else f"-{sequence}"
            for sequence, place in sorted(self.quarantined.items())
        ]
        return self._vocabulary.dump() | {HELD_BACK: [*held, *map(str, sorted(self.held_back))]}

    def forget(self, sequences: Iterable[int]) -> None:
        """Jobs were pruned from history: nobody asks for their rows again, nor releases them."""
        for sequence in sequences:
            self.held_back.discard(sequence)
            self.quarantined.pop(sequence, None)

    def take_place(self, job: CorrectedObservation) -> None:
        """Remember what took the place of a job in quarantine first: a release and an end may both
        come, and the job is learned once."""
        if self.quarantined.get(job.earlier.sequence) == 0:
            self.quarantined[job.earlier.sequence] = job.sequence

    def learned_at(self, job: CorrectedObservation) -> int | None:
        """Sequence at which the earlier one, whose place a job takes, was learned; None where it
        was in quarantine until now."""
        earlier = job.earlier.sequence
        place = self.quarantined.get(earlier, earlier)
        return None if place in (0, job.sequence) else place

    def teaches(self, job: CorrectedObservation) -> bool:
        """Whether a job teaches what it did not as the earlier one whose place it takes."""
        if self.learned_at(job) is None:
            return True
        return not isinstance(job, ReleasedObservation) and self.study.teaches_anew(job)

    def rows(self, observations: Sequence[Observation]) -> FeatureRows:
        """Turn raw observations into rows, values outside the search space included.

        Values of open categories that were never seen get their codes here.
        """
        study, n = self.study, len(observations)
        columns = study.columns([o.context for o in observations], [o.config for o in observations])
        ran = np.array([_RAN[study.ran(o)] for o in observations]).reshape(n, 2)
        scores = [
            None if o.sequence in self.held_back else study.score(o.metrics) for o in observations
        ]
        margins = np.array([study.margin(o.metrics) for o in observations], np.float64)
        for i, job in enumerate(observations):
            if job.sequence in self.quarantined:
                scores[i], ran[i], margins[i] = None, _RAN[FeasibilityLabel.UNKNOWN], NAN
            elif isinstance(job, CorrectedObservation) and not self.teaches(job):
                scores[i], ran[i] = None, _RAN[FeasibilityLabel.UNKNOWN]
        seconds = [STEADY_S if o.measured_s is None else o.measured_s for o in observations]
        return FeatureRows(
            X=self._matrix(columns, n, learn=True),
            score=np.array([NAN if score is None else score for score in scores], np.float64),
            ran=ran[:, 0].copy(),
            ran_weight=ran[:, 1].copy(),
            context_key=tuple(study.context_key(o.context) for o in observations),
            weight=np.clip(np.array(seconds, np.float64) / STEADY_S, 0.1, 1.0),
            margin=margins,
        )

    def candidates(self, space: SearchSpace, codes: Codes) -> FeatureRows:
        """Turn (n, D) configurations of a space into rows.

        They have the ``X`` and ``context_key`` of jobs that ran them, and say nothing of how it
        went.
        """
        n = len(codes)
        nothing = np.full(n, NAN)
        return FeatureRows(
            X=self._matrix(space.typed_columns(codes), n, learn=False),
            score=nothing,
            ran=nothing,
            ran_weight=np.zeros(n),
            context_key=(self.study.context_key(space.context),) * n,
            weight=np.ones(n),
            margin=nothing,
        )

    def coordinates(self, X: FloatArray) -> FloatArray:
        """Place configurations so that their Euclidean distance says how much they differ.

        (n, F) → (n, C). Numbers count by their place among the choices, categories as equal or
        not; every parameter weighs the same however often it repeats, and two random
        configurations are √2 apart on average. The context takes no part.
        """
        parameters = [source for source in self._sources if source.group == "parameter"]
        parts = [_coordinates(source, X[:, source.columns]) for source in parameters]
        placed: FloatArray = np.concatenate(parts, axis=1) / np.sqrt(len(parameters))
        return placed

    @property
    def coordinate_groups(self) -> IntArray:
        """(C,) which coordinates mean the same: those of one parameter, or of one value of a
        category, whatever the position."""
        groups: list[int] = []
        first = 0
        for source in self._sources:
            k = len(source.choices)
            if source.group != "parameter" or k < 2:
                continue
            own = range(first, first + (k if source.type == "category" else 1))
            groups += list(own) * max(source.repeat, 1)
            first += len(own)
        return np.array(groups, np.int64)

    def _matrix(self, columns: Mapping[str, Values], n: int, *, learn: bool) -> FloatArray:
        X = np.full((n, len(self.columns)), NAN)
        for source in self._sources:
            values = columns[source.feature or source.name]
            if source.attribute is not None:
                values = (values.attributes or {})[source.attribute]
            X[:, source.columns] = self._numbers(source, values, learn)
            if source.repeat:
                _total(source, X)
        return X

    def _numbers(self, source: ColumnSource, values: Values, learn: bool) -> FloatArray:
        """A column's values as numbers, (1 or n, 1 or repeat); NaN where undefined."""
        numbers = values.values.astype(np.float64)
        if values.texts is not None and source.type != "category":
            numbers = np.full(numbers.shape, NAN)  # the empty text: its context lacks it
        elif values.texts is not None:
            numbers = self._codes(source, values, values.texts, learn)[values.values]
        if values.undefined is not None:
            numbers = np.where(values.undefined, NAN, numbers)
        return numbers if source.repeat else numbers.reshape(-1, 1)

    def _codes(
        self, source: ColumnSource, values: Values, texts: Sequence[str], learn: bool
    ) -> FloatArray:
        """Code of each text, and NaN for −1. Where nothing is learned only what occurs is looked
        up: a search asks about a handful of a category's ten thousand values at a time."""
        codes = np.full(len(texts) + 1, NAN)
        occurs = np.full(len(codes), learn)
        occurs[values.values] = True
        for place in np.flatnonzero(occurs[:-1]).tolist():
            codes[place] = self._vocabulary.code(source.name, texts[place], learn=learn)
        return codes


def _sources(study: Study) -> list[ColumnSource]:
    """Everything that gets columns, in their order; where they begin is not known yet."""
    return [
        *(ColumnSource(f.name, "context", f.type, log=f.scale == "log") for f in study.context),
        *(
            ColumnSource(
                f"{feature}.{attribute}", "lookup", "float", feature=feature, attribute=attribute
            )
            for feature, table in study.lookups.items()
            for attribute in dict.fromkeys(a for numbers in table.values() for a in numbers)
        ),
        *(
            ColumnSource(
                p.name,
                "parameter",
                p.type,
                repeat=p.repeat if p.repeated else 0,
                choices=p.choices,
                log=p.scale == "log",
            )
            for p in study.parameters
        ),
        *(_derived(d) for d in study.derived),
    ]


def _derived(derived: DerivedValue) -> ColumnSource:
    kind = derived.expression.kind
    types: dict[str, ValueType] = {"int": "int", "float": "float", "bool": "bool"}
    return ColumnSource(
        derived.name,
        "derived",
        types.get(kind.type, "category"),
        repeat=kind.repeat,
        choices=kind.texts or (),
    )


def _total(source: ColumnSource, X: FloatArray) -> None:
    positions = X[:, source.columns]
    if source.type != "category":
        X[:, source.totals] = positions.mean(axis=1, keepdims=True)
        return
    missing = np.isnan(positions).any(axis=1)
    for code, column in enumerate(range(source.totals.start, source.totals.stop)):
        X[:, column] = np.where(missing, NAN, (positions == code).sum(axis=1))


def _coordinates(source: ColumnSource, values: FloatArray) -> FloatArray:
    """Coordinates of one parameter, (n, repeat) → (n, c), in which two random values are √2
    apart on average."""
    k = len(source.choices)
    if k < 2:
        return np.zeros((len(values), 0))
    placed: FloatArray
    if source.type == "category":
        same = (values[:, :, None] == np.arange(k)).astype(np.float64)
        placed = same.reshape(len(values), values.shape[1] * k) / np.sqrt(1.0 - 1.0 / k)
    else:
        choices = np.sort(np.array(source.choices, np.float64))
        places = np.interp(values, choices, np.arange(k)) - (k - 1) / 2
        placed = np.nan_to_num(places, nan=0.0) / np.sqrt((k * k - 1) / 12)
    placed /= np.sqrt(values.shape[1])
    return placed
