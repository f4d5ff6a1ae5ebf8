"""Raw contexts and configurations of many jobs as the columns that expressions read."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tunerd.core.context import ValueType, clean_value
from tunerd.core.expressions import Column, looked_up
from tunerd.core.observation import Scalar
from tunerd.core.study.parts import ContextFeature, Parameter

__all__ = ["context_columns", "parameter_columns"]

_DTYPES: dict[ValueType, Any] = {"int": np.int64, "float": np.float64, "bool": np.bool_}


def context_columns(
    features: Sequence[ContextFeature],
    lookups: Mapping[str, Mapping[str, Mapping[str, float]]],
    contexts: Sequence[Mapping[str, object]],
) -> dict[str, Column]:
    """Return one column of n rows per feature."""
    found = {}
    for feature in features:
        raw = [clean_value(context.get(feature.name), feature.type) for context in contexts]
        column = _column(raw, feature.type, ())
        found[feature.name] = looked_up(column, lookups.get(feature.name))
    return found


def parameter_columns(
    parameters: Sequence[Parameter], configs: Sequence[Mapping[str, object]]
) -> dict[str, Column]:
    """Return one column per parameter: n rows, or n × repeat."""
    found = {}
    for parameter in parameters:
        clean = [parameter.clean(config.get(parameter.name)) for config in configs]
        missing: list[Scalar] = [None] * parameter.repeat
        flat: list[Scalar] = []
        for value in clean:
            flat += value if isinstance(value, list) else missing if parameter.repeated else [value]
        texts = parameter.choices if parameter.type == "category" else ()
        column = _column(flat, parameter.type, tuple(map(str, texts)))
        if parameter.repeated:
            column = _reshaped(column, (len(configs), parameter.repeat))
        found[parameter.name] = column
    return found


def _column(values: Sequence[Scalar], kind: ValueType, texts: tuple[str, ...]) -> Column:
    missing = np.array([value is None for value in values], dtype=bool)
    undefined = missing if missing.any() else None
    if kind != "category":
        filled = [0 if value is None else value for value in values]
        return Column(np.array(filled, dtype=_DTYPES[kind]), undefined)
    places = {text: place for place, text in enumerate(texts)}
    codes = [0 if value is None else places.setdefault(str(value), len(places)) for value in values]
    return Column(np.array(codes, dtype=np.int64), undefined, tuple(places) or ("",))


def _reshaped(column: Column, shape: tuple[int, int]) -> Column:
    undefined = None if column.undefined is None else column.undefined.reshape(shape)
    return column.take(column.values.reshape(shape), undefined)
