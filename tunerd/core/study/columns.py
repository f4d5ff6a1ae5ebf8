"""Raw contexts and configurations of many jobs as the columns that expressions read."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tunerd.core.expressions import ValueColumn, looked_up
from tunerd.core.observation import Scalar
from tunerd.core.study.context_key import ValueType, clean_value
from tunerd.core.study.parts import ContextFeature, Parameter

__all__ = ["context_columns", "parameter_columns"]

_DTYPES: dict[ValueType, Any] = {"int": np.int64, "float": np.float64, "bool": np.bool_}


def context_columns(
    features: Sequence[ContextFeature],
    lookups: Mapping[str, Mapping[str, Mapping[str, float]]],
    contexts: Sequence[Mapping[str, object]],
) -> dict[str, ValueColumn]:
    """Return one column of n rows per feature."""
    columns = {}
    for feature in features:
        clean = _remembered(partial(clean_value, kind=feature.type))
        column = _column([clean(feature.of(c)) for c in contexts], feature.type, ())
        columns[feature.name] = looked_up(column, lookups.get(feature.name))
    return columns


def parameter_columns(
    parameters: Sequence[Parameter], configs: Sequence[Mapping[str, object]]
) -> dict[str, ValueColumn]:
    """Return one column per parameter: n rows, or n × repeat."""
    columns = {}
    for parameter in parameters:
        clean = _remembered(parameter.clean_one)
        flat: list[Scalar] = []
        for config in configs:
            flat += map(clean, parameter.spread(parameter.of(config)))
        texts = parameter.choices if parameter.type == "category" else ()
        column = _column(flat, parameter.type, tuple(map(str, texts)))
        if parameter.repeated:
            column = _reshaped(column, (len(configs), parameter.repeat))
        columns[parameter.name] = column
    return columns


def _remembered(clean: Callable[[object], Scalar]) -> Callable[[object], Scalar]:
    """Clean each distinct value once: history repeats itself."""
    known: dict[tuple[type, object], Scalar] = {}

    def remembered(value: object) -> Scalar:
        if isinstance(value, list | dict):
            return None
        key = (value.__class__, value)  # 1, 1.0 and True are equal, but not to every type
        if key not in known:
            known[key] = clean(value)
        return known[key]

    return remembered


def _column(values: Sequence[Scalar], kind: ValueType, texts: tuple[str, ...]) -> ValueColumn:
    missing = np.array([value is None for value in values], dtype=bool)
    undefined = missing if missing.any() else None
    if kind != "category":
        filled = [0 if value is None else value for value in values]
        return ValueColumn(np.array(filled, dtype=_DTYPES[kind]), undefined)
    places = {text: place for place, text in enumerate(texts)}
    codes = [0 if value is None else places.setdefault(str(value), len(places)) for value in values]
    return ValueColumn(np.array(codes, dtype=np.int64), undefined, tuple(places) or ("",))


def _reshaped(column: ValueColumn, shape: tuple[int, int]) -> ValueColumn:
    undefined = None if column.undefined is None else column.undefined.reshape(shape)
    return column.take(column.values.reshape(shape), undefined)
