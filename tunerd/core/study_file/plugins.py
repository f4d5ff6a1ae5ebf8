"""Options of single searchers and predictors in a study file. Each plug-in declares its own.

They are keys of ``[search]`` and ``[predictor]`` beside the shared ones, as everybody's files have
them. Keys of plug-ins that are not named there are accepted too. So whoever tries another searcher
changes one line, and a committee can ask a predictor that has options. A table for each plug-in
would need no care for names, but give ``sampler`` or ``steps`` a second place.

Options stand in the plug-in's file, which this one imports only where it must: none for a file with
shared keys alone, the named one where all other keys are its own, and else all.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from pydantic import Field, create_model

from tunerd.core.predictors import PREDICTORS, predictor_class
from tunerd.core.searchers import SEARCHERS, searcher_class
from tunerd.core.study.shapes import PluginOptions, StudyFileTable
from tunerd.core.study_file.keys import PredictorTable, SearchTable, StudyFile

__all__ = ["options_by_plugin", "own_options", "study_file_model", "study_schema"]

_OptionTypes = tuple[type[PluginOptions], ...]
_PLUGINS: Mapping[
    str, tuple[Mapping[str, str], Callable[[str], Any], str, type[StudyFileTable]]
] = {
    "search": (SEARCHERS, searcher_class, "searcher", SearchTable),
    "predictor": (PREDICTORS, predictor_class, "name", PredictorTable),
}
"""By section: registry, how a plug-in is imported, the key that names one, the shared keys."""


def study_file_model(data: Mapping[str, Any] | None = None) -> type[StudyFile]:
    """Return what a file with this content is checked against: a :class:`StudyFile` with the
    options of the plug-ins that it needs, or of all plug-ins without ``data``."""
    return _model(*(_option_types(section, data) for section in _PLUGINS))


def study_schema() -> dict[str, Any]:
    """Return the JSON Schema of a study file."""
    return study_file_model().model_json_schema()


def options_by_plugin(section: str) -> dict[str, type[PluginOptions]]:
    """Return the options of all plug-ins of ``search`` or ``predictor`` that have any, by name."""
    registry, load, _, _ = _PLUGINS[section]
    types = {name: load(name).options_type for name in registry}
    return {name: options for name, options in types.items() if options.model_fields}


def own_options(table: StudyFileTable) -> tuple[PluginOptions, ...]:
    """Return the options of single plug-ins that a section of a file was checked against."""
    types = [base for base in type(table).__bases__ if issubclass(base, PluginOptions)]
    return tuple(kind(**table.model_dump(include={*kind.model_fields})) for kind in types)


def _option_types(section: str, data: Mapping[str, Any] | None) -> _OptionTypes:
    registry, load, key, table = _PLUGINS[section]
    if data is not None:
        given = data.get(section)
        if not isinstance(given, dict) or not (own := given.keys() - table.model_fields.keys()):
            return ()
        named = given.get(key, table.model_fields[key].default)
        if isinstance(named, str) and named in registry:
            options: type[PluginOptions] = load(named).options_type
            if own <= options.model_fields.keys():
                return (options,)
    return tuple(dict.fromkeys(options_by_plugin(section).values()))


@cache
def _model(*types: _OptionTypes) -> type[StudyFile]:
    fields: dict[str, Any] = {}
    for (section, (_, _, _, table)), bases in zip(_PLUGINS.items(), types, strict=True):
        if bases:
            both = create_model(table.__name__, __doc__=table.__doc__, __base__=(*bases, table))
            meaning = StudyFile.model_fields[section].description
            fields[section] = (both, Field(default_factory=both, description=meaning))
    if not fields:
        return StudyFile
    return create_model("StudyFile", __doc__=StudyFile.__doc__, __base__=StudyFile, **fields)
