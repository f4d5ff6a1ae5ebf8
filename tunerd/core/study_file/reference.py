"""The page that explains study files, its tables made from the model so that it cannot drift."""

from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tunerd.core.expressions import FUNCTIONS
from tunerd.core.study.mapping import ColumnTable, MappingTable, StatusTable, TimeTable
from tunerd.core.study_file.keys import (
    BaselineTable,
    DriftTable,
    FeatureTable,
    ForecastTable,
    GuardTable,
    HistoryTable,
    LimitsTable,
    ObjectiveTable,
    ParameterTable,
    PlausibilityTable,
    PredictorTable,
    RunningTable,
    SearchTable,
    StudyFile,
)
from tunerd.core.study_file.plugins import options_by_plugin

__all__ = ["study_page"]

_INTRODUCTION = """\
# Study files

<!-- Made by `tunerd schema study --markdown`; a test compares the two. -->

A study is one tuning problem: what to make better, what a job brings, what may be tuned, and the
rules between them. One TOML file each, in the folder of studies; `tunerd/lab/simulation/studies`
has two to start from. `tunerd check` says everything that is wrong with a file at once, by key and,
in expressions, by column.

Names of context features, parameters, derived values and constraints are made of ASCII letters,
digits and underscores; the first three share one set of names, because expressions use them.
"""

_EXPRESSIONS = f"""
## Expressions

`derived`, `constraints` and the `when` of baselines are written in a small language. It is
Python's where it has the same thing:

- numbers, `'texts'`, `true` and `false`; names of parameters, derived values and context features
  (`when` sees the context only); `gpu.hbm_gib` for a number of `[lookup.gpu]`;
- `+ - * / // % **`; comparisons, chained too; `in [...]` and `not in [...]`; `and`, `or`, `not`;
  `a if c else b`; parentheses;
- functions: {", ".join(f"`{name}`" for name in FUNCTIONS)}.

A `repeat` parameter stands for all of its positions at once: `sharding == 'NO_SHARD'` is one truth
value for each, and `count`, `sum`, `any`, `all`, `min` and `max` make one value of them;
`sharding[0]` is the first and `sharding[-1]` the last. Several values given to `min` and `max` are
compared with each other instead.

**Undefined.** A missing value of the context, a lookup that does not have the category, `x / 0`,
`x // 0`, `x % 0`, the logarithm of what is not positive, a position that is not there, an integer
beyond 64 bits or a number that is not finite have no value. What is computed from them has none
either, except that `false and …` is false and `true or …` is true. A constraint that is undefined
rules the configuration out; a condition that is undefined does not hold.

Integers stay integers, but for `/`. An integer to a negative power is undefined: write the base as
a float. Numbers of both kinds are compared and combined as floats. `round` rounds halves to even.

## How the space is searched

Constraints split a configuration into blocks that do not depend on each other. A block with few
enough combinations (two million, looked at rule by rule) is listed, so that an equality such as
`tp * pp * cp * dp == n_gpus` costs nothing to satisfy; in larger ones configurations are drawn,
and repaired where too few of them would do. A context in which nothing is feasible is reported
with the constraints that clash.
"""

_SECTIONS: dict[str, tuple[type[BaseModel], str]] = {
    "[objective]": (ObjectiveTable, ""),
    "[guards]": (GuardTable, "`metric = { … }` for each."),
    "[context]": (FeatureTable, "`name = { … }` for each."),
    "[parameters]": (ParameterTable, "`name = { … }` for each."),
    "[[baseline]]": (BaselineTable, "Any number of them."),
    "[search]": (SearchTable, "All optional; what only one searcher has stands below."),
    "[predictor]": (PredictorTable, "All optional."),
    "[history]": (HistoryTable, "All optional."),
    "[plausibility]": (
        PlausibilityTable,
        "All optional; [Quarantine](quarantine.md) has what follows from it.",
    ),
    "[limits]": (LimitsTable, "All optional; [Limits](introduction.md#limits) has an example."),
    "[drift]": (DriftTable, "All optional; [Drift](drift.md) says what it is about."),
    "[running]": (
        RunningTable,
        "All optional; [Halves of a job](events.md#half-of-a-job) says what it is about.",
    ),
    "[forecast]": (ForecastTable, "All optional; [Forecasts](forecasts.md) says what it is about."),
    "[mapping]": (MappingTable, "All optional; [Importing old jobs](import.md) has examples."),
    "mapping.columns.NAME, mapping.measured_s and mapping.gpus as a table": (ColumnTable, ""),
    "mapping.finished_at as a table": (TimeTable, ""),
    "mapping.status as a table": (StatusTable, ""),
}


def study_page() -> str:
    """``docs/studies.md``."""
    parts = [_INTRODUCTION, _table("At the top", StudyFile, "")]
    for title, (model, note) in _SECTIONS.items():
        parts.append(_table(title, model, note))
        section = title.strip("[]")
        if section in ("search", "predictor"):
            parts += [
                _table(f"{title}: {name}", options, "")
                for name, options in options_by_plugin(section).items()
            ]
    return "".join([*parts, _EXPRESSIONS])


def _table(title: str, model: type[BaseModel], note: str) -> str:
    about = " ".join(f"{model.__doc__} {note}".split())
    rows = "".join(
        f"| `{info.alias or name}` | {_default(info)} | {_meaning(info)} |\n"
        for name, info in model.model_fields.items()
    )
    return f"\n## {title}\n\n{about}\n\n| key | default | meaning |\n|---|---|---|\n{rows}"


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "needed"
    default = info.default
    if info.default_factory is not None or default in (None, ""):
        return ""
    return f'`"{default}"`' if isinstance(default, str) else f"`{default}`"


def _meaning(info: FieldInfo) -> str:
    meaning = info.description or ""
    choices = _choices(info.annotation)
    if len(choices) < 2 or all(f'"{choice}"' in meaning for choice in choices):
        return meaning
    return f"{meaning} One of {', '.join(f'`{choice}`' for choice in choices)}."


def _choices(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) is Literal else ()
