"""Of the columns that went into a job: which may be tuned, and which the job brings."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tunerd.core.arrays import IntArray
from tunerd.lab.tables.column_names import ColumnName, words
from tunerd.lab.tables.derived_columns import Multiples, following, rounded_of, rule_of, total_of
from tunerd.lab.tables.own_values import DRAWN, is_drawn, is_own_valued
from tunerd.lab.tables.profile import ColumnProfile, TableProfile
from tunerd.lab.tables.relations import counts_up_within, explained, grouped, varies_within
from tunerd.lab.tables.roles import SAID, ColumnGuess, Role, sureness

__all__ = [
    "MOST_CHOICES",
    "SAME",
    "can_be_tuned",
    "could_be_tried",
    "find_inputs",
    "followers",
    "totals",
]

SAME = "has the same value in every row"
MOST_EXPLAINED = 0.1
"""Share of the objective's variance that the number of a repeat explains: first runs are cold."""
DOUBTED = 0.4
"""How sure an input is at most that may have been measured."""
FEWEST_OWN = 8
"""Rows of which each has a text of its own."""
MOST_CHOICES = 200
"""Categories of a parameter; more are names of things."""

_ALLOCATED = {"replica", "vm", "instance", "machine"}
_RESOURCES = {"node", "gpu", "core", "cpu", "vcpu", "process", "rank", "machine", "server", "host"}
_RANKS, _BESIDE_RANKS = {"rank", "process", "task"}, {"node", "thread"}
_COUNTED = {"partition", "node", "worker", "thread", "replica", "executor", "rank", "core", "gpu"}
_COUNTERS = {
    *("iter", "iteration", "sample", "round", "loop"),
    *("index", "idx", "no", "nr", "number", "num", "i", "#", "try", "tries"),
    *("execution", "measurement", "invocation", "launch", "repeat", "run"),
}
"""What people call the number of a repeat."""
_PARTS = {"layer", "hidden", "unit", "head", "width", "embedding", "embed", "filter", "channel"}
"""What a model is made of: a search for its hyper-parameters, in which others were drawn at random,
tunes these too."""
_PLAIN = {"schema", "version", "type", "kind", "format", "release"}
"""Words that are worth nothing with a single value: they may say anything about the table."""
_SETTINGS = re.compile(
    r"(none|off|on|auto|default|full|partial|enabled?|disabled?|yes|no|true|false|low|medium|high"
    r"|fast|slow|small|large|dynamic|static|guided|sync|async|always|never|selective|[a-z]{0,3}fp?\d{1,2}"
    r"|int[48]|o[0-3s]|-o\w+|lz4|zstd|snappy|gzip|adam\w*|sgd|kryo|java)",
    re.IGNORECASE,
)
_THINGS = re.compile(
    r".*(\b|_)([avhlpbt]\d{1,3}[a-z]?|rtx|gtx|mi\d{3}\w?|tpu|xeon|epyc|gpt|llama|bert|resnet\w*|vgg\w*"
    r"|mixtral|mistral|qwen\w*|t5|vit|cifar\w*|imagenet|mnist|tpch|tpcds|ycsb|wiki\w*)(\b|_|-|\d).*"
    r"|\d+(\.\d+)?[mbt]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class TunableEvidence:
    """For a parameter where positive, for context where negative."""

    margin: float
    why: str


def can_be_tuned(column: ColumnProfile) -> bool:
    """Whether a column has several values of which a study could offer each."""
    if column.kind == "category":
        return 2 <= column.distinct <= MOST_CHOICES
    if column.kind == "list":
        lists = [value for value in column.counts if isinstance(value, tuple)]
        return repeat_of(column) is not None and len(lists) > 1
    return column.kind in ("int", "float", "bool") and column.distinct >= 2


def could_be_tried(one: ColumnGuess) -> bool:
    """Whether a column with one value is called like what people tune."""
    return one.why.startswith(SAME) and one.name.weight("parameter") >= 3


def repeat_of(column: ColumnProfile) -> int | None:
    """How many values each list of a column has; ``None`` when they differ or are no choices."""
    lists = [value for value in column.counts if isinstance(value, tuple)]
    sizes = {len(value) for value in lists}
    kinds = {type(entry) for value in lists for entry in value}
    if len(sizes) != 1 or not 2 <= min(sizes) <= 4_096 or len(kinds) != 1:
        return None
    return min(sizes) if kinds <= {str, int, bool} else None


def find_inputs(
    profile: TableProfile, names: Mapping[str, ColumnName], known: Mapping[str, ColumnGuess]
) -> dict[str, ColumnGuess]:
    """What is tuned, what is context, and what follows from other inputs."""
    inputs = [column for column in profile.columns if column.name not in known]
    guesses = _repeats(inputs, names, known, profile)
    inputs = [column for column in inputs if column.name not in guesses]
    varying = []
    for column in inputs:
        if (fixed := _fixed(column, names[column.name])) is not None:
            guesses[column.name] = fixed
        else:
            varying.append(column)
    clear = {c.name: _clear(names[c.name]) for c in inputs}
    groups = grouped([c for c in varying if clear[c.name] < 0], profile.sampled)
    grouping = groups if any(clear[c.name] < 0 for c in varying) else None
    given = [guess.column for guess in known.values() if guess.role in ("context", "parameter")]
    allocated = any(set(names[c.name].words) & _ALLOCATED and clear[c.name] > 0 for c in varying)
    laid_out = any(set(names[c.name].words) & _BESIDE_RANKS and c.numeric for c in varying)
    evidence = {
        c.name: _evidence(c, names[c.name], clear, profile, grouping, (allocated, laid_out))
        for c in varying
    }
    chosen = {c.name for c in varying if evidence[c.name].margin > 0 and can_be_tuned(c)}
    all_tuned = chosen | {
        guess.column.name for guess in known.values() if guess.role == "parameter"
    }
    follow = following([*given, *varying], names, all_tuned)
    everything = [*varying, *given]
    multiples, leading = Multiples(everything), chosen - follow.keys()
    for column in varying:
        guess = evidence[column.name]
        rule = rounded_of(column, names[column.name], everything)
        rule = rule or rule_of(column, names[column.name], everything, leading, multiples)
        rule = rule or follow.get(column.name)
        if rule is not None:
            guesses[column.name] = ColumnGuess(
                column, names[column.name], "derived", 0.7, rule.why, rule
            )
            continue
        tuned = guess.margin > 0 and can_be_tuned(column)
        role: Role = "parameter" if tuned else "context"
        if role == "context" and column.kind in ("text", "list"):
            role = "label"
        sure, why = sureness(guess.margin), guess.why
        hinted = profile.export is not None and column.name in profile.export.hints
        if (
            (is_own_valued(column) or _is_own_text(column))
            and not hinted
            and not is_drawn(column, names[column.name])
        ):
            sure, why = min(sure, DOUBTED), f"{why}; nearly every row has its own"
        guesses[column.name] = ColumnGuess(column, names[column.name], role, sure, why)
    return guesses


def _is_own_text(column: ColumnProfile) -> bool:
    """Whether each of several rows has a text of its own: nothing can be learned of it."""
    return column.kind == "category" and column.distinct == column.rows >= FEWEST_OWN


def _repeats(
    inputs: Sequence[ColumnProfile],
    names: Mapping[str, ColumnName],
    known: Mapping[str, ColumnGuess],
    profile: TableProfile,
) -> dict[str, ColumnGuess]:
    """Columns that number the repeats of a configuration. A full grid looks like that too, so the
    name must be a counter's, and the objective hardly follow it."""
    guesses: dict[str, ColumnGuess] = {}
    objective = next(guess.column for guess in known.values() if guess.role == "objective")
    settled = [g.column for g in known.values() if g.role in ("context", "parameter")]
    for column in inputs:
        others = [*settled, *(other for other in inputs if other is not column)]
        if (
            set(names[column.name].words) <= _COUNTERS
            and counts_up_within(grouped(others, profile.sampled), column)
            and explained(objective, [column]) < MOST_EXPLAINED
        ):
            guesses[column.name] = ColumnGuess(
                column, names[column.name], "ignored", 0.8, "numbers the repeats of a configuration"
            )
    return guesses


def followers(
    found: Mapping[str, ColumnGuess], names: Mapping[str, ColumnName]
) -> dict[str, ColumnGuess]:
    """Context that follows from what is tuned, where that was settled last."""
    inputs = [guess for guess in found.values() if guess.role in ("context", "parameter")]
    tuned = {guess.column.name for guess in inputs if guess.role == "parameter"}
    rules = following([guess.column for guess in inputs], names, tuned)
    return {
        name: ColumnGuess(found[name].column, names[name], "derived", 0.7, rule.why, rule)
        for name, rule in rules.items()
        if found[name].role == "context" and found[name].sure < 1
    }


def totals(found: Mapping[str, ColumnGuess]) -> dict[str, ColumnGuess]:
    """Parameters that are made of others, and context made of one parameter and other context: else
    that parameter could not change. Not what a person said."""
    made: dict[str, ColumnGuess] = {}
    inputs = {
        name: guess.column
        for name, guess in found.items()
        if guess.role in ("context", "parameter")
    }
    numbers = [
        found[name]
        for name, column in inputs.items()
        if found[name].why != SAID and column.kind == "int"
    ]
    multiples = Multiples(list(inputs.values()))
    for guess in sorted(numbers, key=lambda guess: -float(np.nanmean(guess.column.numbers))):
        name = guess.column.name
        rule = total_of(guess.column, inputs, multiples)
        if rule is None:
            continue
        tuned = sum(found[factor].role == "parameter" for factor in rule.numbers)
        if guess.role == "parameter" or (tuned == 1 and len(rule.numbers) > 1):
            made[name] = replace(guess, role="derived", sure=0.7, why=rule.why, rule=rule)
            del inputs[name]
    return made


def _clear(name: ColumnName) -> int:
    """1 when a name is a parameter's, -1 when it is of the context, 0 when it does not say."""
    margin = name.weight("parameter") - name.weight("context")
    return 1 if margin >= 2 else -1 if margin <= -2 else 0


def _fixed(column: ColumnProfile, name: ColumnName) -> ColumnGuess | None:
    """What a column with one value is: never a parameter, as nobody knows what else would do."""
    if column.distinct != 1:
        return None
    tuned, brought = name.weight("parameter"), name.weight("context")
    if (
        brought >= 1
        and brought > tuned
        and not set(name.words) & _PLAIN
        and column.kind not in ("list", "text")
    ):
        return ColumnGuess(column, name, "context", 0.6, f"{_said(name)}; one value so far")
    shown = str(column.values[0]).lower() if column.kind == "bool" else column.values[0]
    return ColumnGuess(column, name, "ignored", 0.8, f"{SAME} ({str(shown)[:40]})")


def _said(name: ColumnName) -> str:
    return 'its name says so ("{}")'.format('", "'.join(name.said[:2]))


def _evidence(
    column: ColumnProfile,
    name: ColumnName,
    clear: Mapping[str, int],
    profile: TableProfile,
    groups: IntArray | None,
    chosen: tuple[bool, bool],
) -> TunableEvidence:
    """Add up what speaks for a parameter and for context."""
    tuned, brought = name.weight("parameter"), name.weight("context")
    if column.kind in ("category", "text") and set(name.words[-1:]) & _COUNTED:
        tuned, brought = 0.0, max(3.0, brought)  # not how many workers, but which one
    margin = 0.5 + tuned - brought  # most of what is written down about a job was chosen
    why = [_said(name)] if max(tuned, brought) >= 1 else []
    looks, reason = _looks(column)
    margin += looks
    if reason:
        why.append(reason)
    allocated, laid_out = chosen
    if laid_out and set(name.words[-1:]) & _RANKS and column.numeric and tuned < 3:
        margin += 1.5
        why.append("how many fit a node is chosen")
    if allocated and set(name.words) & _RESOURCES and column.numeric and tuned < 3:
        margin += 4.0
        why.append("resources are chosen in this table")
    if name.words == ("m",) and any(words(c.name)[:1] == ("ef",) for c in profile.columns):
        margin += 4.0
        why.append("of the graph that ef searches")
    if groups is not None and clear[column.name] == 0:
        share = varies_within(groups, column)
        if share is not None and share < 0.02:
            margin -= 1.5
            why.append("never varies within a context")
        elif share is not None and share > 0.5:
            margin += 0.5
            why.append("varies within a context")
    if max(tuned, brought) < 1 and column.kind in ("category", "text"):
        leading, part = _silent(column, name, clear, profile)
        margin += leading
        why += part
    if set(name.words) & _PARTS and column.numeric and _is_search(clear, profile):
        margin += 4.0
        why.append("what a model is made of is searched for here")
    margin += 0.5 * _neighbours(column, clear, profile)
    if not why:
        why.append("its name says nothing, and most of what is written down was chosen")
    return TunableEvidence(margin, "; ".join(why))


def _is_search(clear: Mapping[str, int], profile: TableProfile) -> bool:
    """Whether a table is of a search for hyper-parameters: some of them were drawn at random."""
    return any(
        column.kind == "float"
        and clear.get(column.name, 0) > 0
        and 2 * column.distinct > column.present
        and not DRAWN.isdisjoint(words(column.name))
        for column in profile.columns
    )


def _silent(
    column: ColumnProfile, name: ColumnName, clear: Mapping[str, int], profile: TableProfile
) -> tuple[float, list[str]]:
    """What is left to go by for a text whose name nobody knows."""
    last = name.words[-1] if name.words else ""
    if last.endswith(("er", "or")) and len(last) > 5:
        return 1.5, ["a part that can be exchanged, by its name"]
    first = min((c.place for c in profile.columns if clear.get(c.name, 0) > 0), default=-1)
    if column.place < first:
        return -1.0, ["stands before everything that is tuned"]
    return 0.0, []


def _looks(column: ColumnProfile) -> tuple[float, str]:
    """What the values alone say."""
    if column.kind == "bool":
        return 1.0, "a switch"
    if column.kind == "list":
        return 2.0, "one value for each of several places"
    if column.kind in ("category", "text"):
        texts = [str(value) for value in list(column.counts)[:100]]
        things = sum(1 for text in texts if _THINGS.fullmatch(text)) / len(texts)
        if things >= 0.5:
            return -2.0, f"its values are names of things ({texts[0]})"
        settings = sum(1 for text in texts if _SETTINGS.fullmatch(text)) / len(texts)
        if settings >= 0.3:
            return 1.0, "its values are settings"
        return (
            (-1.0, f"has {column.distinct} different names") if column.distinct > 20 else (0.0, "")
        )
    values = [float(value) for value in column.counts if isinstance(value, int | float)]
    if min(abs(value) for value in values) >= 1e6:
        return -1.0, "its numbers are large"
    if column.kind == "int" and all(
        value > 0 and value == 2 ** round_log(value) for value in values
    ):
        return 0.5, "powers of two"
    if column.kind == "float" and min(values) >= 0 and max(values) <= 1:
        return 0.5, "a fraction"
    return 0.0, ""


def round_log(value: float) -> int:
    """The power of two below a whole number."""
    return int(value).bit_length() - 1


def _neighbours(column: ColumnProfile, clear: Mapping[str, int], profile: TableProfile) -> int:
    """Which kind the nearest clear columns on both sides are: people write like beside like."""
    sides = (profile.columns[: column.place][::-1], profile.columns[column.place + 1 :])
    near = (next((clear[c.name] for c in side if clear.get(c.name)), 0) for side in sides)
    return sum(near)
