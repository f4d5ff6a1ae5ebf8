"""Names of columns as words, and what the words say."""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tunerd.core.expressions import RESERVED
from tunerd.lab.tables import vocabulary
from tunerd.lab.tables.foreign_words import has_unknown_words, in_english
from tunerd.lab.tables.rates import DOUBTFUL, LIKELY, RateMeaning, plain_unit, rate_of, slashes_read
from tunerd.lab.tables.vocabulary import Class, Direction, MetricPhrase

__all__ = [
    "ColumnName",
    "identifier",
    "is_of_parameters",
    "read_name",
    "unit_of",
    "without_number",
    "words",
]

_Better = tuple[Direction | None, float, str]
"""Which way better is, how sure that is, and why."""
_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PLURAL_ACRONYM = re.compile(r"([A-Z]{2,})s(?![a-z])")
_BETTER = re.compile(
    r"(?P<max>↑|\b(?:higher|larger|bigger|more) is better\b)"
    r"|(?:↓|\b(?:lower|smaller|less|fewer) is better\b)",
    re.IGNORECASE,
)
_PERCENTILE = re.compile(
    r"(?<![A-Za-z0-9.])(?:p[ _]?\((\d\d(?:\.\d+)?)\)"
    r"|p?(\d{1,3}(?:\.\d+)?) ?%(?:'?ile\b| ?line\b)?"
    r"|(\d?[05]|[789][058]|99|\d\d\.\d+)th(?:[ _]?(?:percentile|pct|%))?(?![A-Za-z0-9]))",
    re.IGNORECASE,
)
"""Percentiles as load tests write them: ``95%``, ``90% Line``, ``99.900%``, ``99th``, ``p(95)``."""


def words(name: str) -> tuple[str, ...]:
    """The words of a name: lower case, singular, abbreviations spelt out, "number of" left out."""
    text = _PERCENTILE.sub(_percentile, slashes_read(plain_unit(in_english(name))))
    text = _BETTER.sub("", text).replace("$", " usd ").replace("€", " eur ")
    text = text.replace("µ", "u").replace("%", " pct ").replace("#", " n ")
    text = re.sub(r"([KMGT])iB", lambda unit: unit[0].lower(), text)
    text = re.sub(r"([GTMP])[Ff][Ll][Oo][Pp][Ss]?", lambda unit: f" {unit[1].lower()}flops ", text)
    text = _PLURAL_ACRONYM.sub(r"\1", text).replace("vCPU", "vcpu")
    parts = re.split(r"[^A-Za-z0-9]+", _CASE.sub(" ", text))
    words_read = [word for part in parts if part for word in _expanded(part.lower())]
    several = [part for word in words_read if word != "n" for part in _parted(word)]
    return tuple(several or words_read)


def _percentile(match: re.Match[str]) -> str:
    number = float(match[1] or match[2] or match[3])
    whole = f"p{number:.0f}"
    return (
        " max "
        if number == 100
        else f" {whole if whole in vocabulary.STATISTICS else 'percentile'} "
    )


def _parted(word: str) -> tuple[str, ...]:
    """A word that nobody knows as two that are known: ``blocksize``, ``elapsedtime``."""
    if word not in vocabulary.WORDS:
        for place in range(3, len(word) - 2):
            halves = tuple(_expanded(word[:place])) + tuple(_expanded(word[place:]))
            if all(half in vocabulary.WORDS and len(half) > 2 for half in halves):
                return halves
    return (word,)


def _expanded(word: str) -> list[str]:
    if word in vocabulary.EXPANDED:
        return vocabulary.EXPANDED[word].split()
    if word.endswith(("sses", "xes", "shes", "nches", "tches", "rches")):
        word = word[:-2]
    elif (
        len(word) > 3
        and word.endswith("s")
        and word not in vocabulary.ENDS_IN_S
        and word[-2] not in "su"
    ):
        word = word[:-3] + "y" if word.endswith("ies") and len(word) > 4 else word[:-1]
    for prefix in ("num", "n"):
        if word.startswith(prefix) and word[len(prefix) :] in vocabulary.COUNTED:
            word = word[len(prefix) :]
    return vocabulary.EXPANDED.get(word, word).split()


def without_number(name: str) -> str:
    """A name without the number that tells it from another column's: ``time`` of ``time (2)``."""
    return re.sub(r" \(\d{1,4}\)$", "", name)


def _named(table: Mapping[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """A vocabulary in the words that names are read as."""
    weights: dict[tuple[str, ...], float] = {}
    for phrase, weight in table.items():
        key = words(" ".join(phrase))
        weights[key] = max(weight, weights.get(key, 0.0))
    return weights


_MEASURES = {words(" ".join(phrase)): measure for phrase, measure in vocabulary.MEASURES.items()}
_TABLES: dict[Class, Mapping[tuple[str, ...], float]] = {
    "context": _named(vocabulary.CONTEXT),
    "parameter": _named(vocabulary.PARAMETER),
    "measured": {phrase: measure.weight for phrase, measure in _MEASURES.items()},
    "status": _named(vocabulary.STATUS),
    "label": _named(vocabulary.LABELS),
}
_KNOWN = frozenset[tuple[str, ...]]().union(*_TABLES.values())
_LONGEST = max(map(len, _KNOWN))


@dataclass(frozen=True, slots=True)
class ColumnName:
    """What the name of a column says."""

    words: tuple[str, ...]
    leaf: str
    """Without the section of a record: ``lr`` of ``params.lr``."""
    weights: Mapping[Class, float]
    """How much it says for each class; what is not there is 0."""
    said: tuple[str, ...]
    """The phrases that it was recognised by."""
    rank: float
    """As an objective."""
    goal: Direction | None
    guard: bool
    measure: str
    """The phrase that says what was measured; "" when none does."""
    measure_rank: float = 0.0
    """Rank of that phrase alone."""
    goal_sure: float = 0.9
    """How sure the goal is; below 0.5 the name can be read both ways."""
    goal_why: str = ""
    certainly_measured: bool = False
    """Whether nobody can have chosen it: a spread, a percentile, a mean power."""
    is_time: bool = False
    """Whether it is how long something took."""

    def weight(self, one: Class) -> float:
        """How much the name says for a class."""
        return self.weights.get(one, 0.0)


def read_name(name: str) -> ColumnName:
    """What a name says: its phrases, longest first; the last words say most."""
    given, name = name, without_number(name)
    section, leaf = _section(name)
    rate = rate_of(leaf)
    timed = rate is None and name.lower().startswith(("timing", "timings")) and section is not None
    leaf_words = (*words(leaf), "time") if timed else words(leaf)
    weights: dict[Class, float] = {}
    measures_named: list[str] = []
    measures: dict[str, MetricPhrase] = {}
    if section is not None:
        # Trackers of experiments put everything that went into a run under "params".
        deep = section == "parameter" and re.search(r"[./]", leaf) is not None
        tracked = name.lower().startswith(("param", "hparam", "arg")) or deep
        weights[section] = 1.5 if tracked else 5.0
        measures_named.append(name[: len(name) - len(leaf) - 1])
    for phrase, last in _phrases(leaf_words):
        measures_named.append(" ".join(phrase))
        for kind, table in _TABLES.items():
            if phrase in table:
                share = 1.0 if last else 0.2 if kind in ("status", "label") else 0.6
                weights[kind] = weights.get(kind, 0.0) + table[phrase] * share
        if phrase in _MEASURES:
            measures[" ".join(phrase)] = _MEASURES[phrase]
    if rate is not None and "per" in leaf_words:  # hours per simulated year
        weights["label"] = 0.25 * weights.get("label", 0.0)
    if rate is not None and rate.goal == "maximize":
        measures = {rate.unit or "rate": MetricPhrase(4.0, 9.0, "maximize")}
        weights["measured"] = max(weights.get("measured", 0.0), 4.0)
        for kind in ("context", "parameter"):  # what is counted: images, steps
            weights[kind] = 0.25 * weights.get(kind, 0.0)
    elif rate is not None and not (measures := _without_rates(measures, leaf_words)):
        measures[leaf_words[-1]] = MetricPhrase(1.5, _time_rank(leaf_words), "minimize")
        weights["measured"] = weights.get("measured", 0.0) + 1.5
    measure = max(measures, key=lambda other: measures[other].rank, default="")
    best = measures.get(measure, MetricPhrase(0.0, 0.0, None))
    rank = best.rank + _qualified(leaf_words, measure, rate) if measures else 0.0
    guard = best.guard or any(vocabulary.QUALIFIERS.get(word) == _TAIL for word in leaf_words)
    if measures and any(vocabulary.QUALIFIERS.get(word, 0.0) <= _TAIL for word in leaf_words):
        weights["measured"] = weights.get("measured", 0.0) + 1.5  # the spread or tail of something
    goal, sure, why = _said_better(leaf, _goal(leaf_words, measures, measure, rate))
    if sure > DOUBTFUL and has_unknown_words(leaf):
        sure, why = DOUBTFUL, "not all of its words are known"
    taken = _certainly_measured(leaf_words) or _BETTER.search(leaf) is not None
    return ColumnName(
        leaf_words,
        leaf + given[len(name) :],
        weights,
        tuple(measures_named),
        rank,
        goal,
        guard,
        measure,
        best.rank,
        sure,
        why,
        taken,
        (rate is not None and rate.goal == "minimize")
        or not vocabulary.TIME_WORDS.isdisjoint(leaf_words),
    )


def _time_rank(found: Sequence[str]) -> float:
    """How likely a time is what people want better: the whole before a part of it."""
    if not vocabulary.TIME_PARTS.isdisjoint(found):
        return 3.0
    return 6.0 if vocabulary.WHOLE_TIMES.isdisjoint(found) else 6.5


def _qualified(found: Sequence[str], measure: str, rate: RateMeaning | None) -> float:
    """What the words beside a measure do to its rank."""
    minutes = rate is not None and rate.unit == "min" and found[-1] == "min"
    beside = found[:-1] if minutes else found
    if "score" in found:  # of a cross-validation, and no coefficient of variation
        beside = tuple(word for word in beside if word != "cv")
    trained = not {"train", "training"}.isdisjoint(found) and not vocabulary.QUALITY.isdisjoint(
        measure.split()
    )  # what counts is how good it is on data that it has not seen
    return sum(vocabulary.QUALIFIERS.get(word, 0.0) for word in beside) - (0.5 if trained else 0.0)


def _without_rates(
    measures: Mapping[str, MetricPhrase], found: Sequence[str]
) -> dict[str, MetricPhrase]:
    """Without "per s", where it is errors that are counted; money an hour can be read both ways."""
    money = not vocabulary.MONEY.isdisjoint(found)
    return {
        name: phrase for name, phrase in measures.items() if money or not name.startswith("per ")
    }


def _certainly_measured(found: Sequence[str]) -> bool:
    among = frozenset(found)
    if among & vocabulary.WISHES:
        return False
    if (
        among & vocabulary.STATISTICS
        or among & vocabulary.OUTCOMES
        or (among & vocabulary.MISHAPS and "max" not in found)
    ):
        return True
    sensed = vocabulary.SENSORS | {"pct"}  # %cpu, and the percent of CPU that a job got
    if among & vocabulary.DEVICES and among & sensed and "memory" not in among:
        return True
    # "max memory" alone may be asked for; a maximum of what is never asked for is taken.
    taken = among & vocabulary.TAKEN - ({"max"} if "memory" in among else set())
    return bool(taken and among & vocabulary.QUANTITIES)


def _goal(
    found: Sequence[str], measures: Mapping[str, MetricPhrase], told: str, rate: RateMeaning | None
) -> _Better:
    """Which way better is by a name, how sure that is, and why."""
    best = measures[told].goal if told else None
    if (otherwise := _otherwise(found, best if rate is None else rate.goal)) is not None:
        return otherwise
    if "neg" in found and best is not None and rate is None:
        turned: Direction = "maximize" if best == "minimize" else "minimize"
        return turned, 0.9, f'by its name (the negative of "{told}")'
    if rate is not None and (rate.sure < 0.5 or best in (None, rate.goal)):
        return rate.goal, rate.sure, f"by its name: {rate.why}"
    if rate is not None:
        return rate.goal, DOUBTFUL, f"{told} and {rate.why} say opposite things"
    goals = {measure.goal for measure in measures.values()} - {None}
    if best is None and len(goals) == 1:  # "F1 score": the other word says it
        return next(iter(goals)), LIKELY, f'by its name ("{" ".join(measures)}")'
    if len(goals) > 1:
        last = max(measures, key=lambda name: _last_place(found, name))
        return measures[last].goal or best, DOUBTFUL, f"{' and '.join(measures)} pull apart"
    return best, 0.9, f'by its name ("{told}")'


def _said_better(leaf: str, named: _Better) -> _Better:
    """Which way better is where a name says just that: ``Score ↓``, ``time (lower is better)``.

    An arrow beside a speed is often where data went: ``Mbit/s ↓``.
    """
    match = _BETTER.search(leaf)
    if match is None:
        return named
    goal: Direction = "maximize" if match["max"] else "minimize"
    if match[0] in "↑↓" and (named[0] not in (None, goal) or _TRANSFER.search(leaf)):
        return named[0] or goal, DOUBTFUL, f'"{match[0]}" may say where data went'
    return goal, 0.95, f'its name says "{match[0]}"'


_TRANSFER = re.compile(r"download|upload|\b(?:down|up|[rt]x|data|traffic|net(?:work)?)\b", re.I)


def _otherwise(found: Sequence[str], best: Direction | None) -> _Better | None:
    """Which way better is where other words than the quantity's own say it; else ``None``."""
    until = "failure" in found and not {"to", "between", "until", "before"}.isdisjoint(found)
    if (until or not vocabulary.LASTS.isdisjoint(found)) and best != "maximize":
        return "maximize", LIKELY, "by its name: it lasts, and longer is better"
    if not {"sla", "slo"}.isdisjoint(found) and not vocabulary.KEPT.isdisjoint(found):
        sure = LIKELY if best != "minimize" else DOUBTFUL
        return "maximize", sure, "by its name: it says how much kept within a bound"
    if "to" in found[1:-1] and found[found.index("to", 1) - 1] in vocabulary.SPENT:
        sure = DOUBTFUL if "live" in found else 0.9 if best == "minimize" else LIKELY
        return "minimize", sure, "by its name: it says how much it takes"
    if "flops" in found[:1] and "per" in found and best == "maximize":
        return "minimize", DOUBTFUL, "it may be how much there is to do"
    if found[:1] == ("1",) and len(found) > 1:
        found = ("inverse", *found)
    for words_of, turned, why in vocabulary.TWISTS:
        if best is not None and best in turned and not words_of.isdisjoint(found):
            return turned[best], DOUBTFUL, why
    return None


def _last_place(found: Sequence[str], phrase: str) -> int:
    last = phrase.split()[-1]
    return max((place for place, word in enumerate(found) if word == last), default=-1)


_TAIL = vocabulary.QUALIFIERS["p99"]


def _section(name: str) -> tuple[Class | None, str]:
    separator = "/" if "/" in name else "."
    *sections, last = name.split(separator)
    for place in range(len(sections), 0, -1):
        section = vocabulary.SECTIONS.get(sections[place - 1].lower())
        if section is not None and last:
            if sections[place - 2 : place] in _GIVEN:
                section = "measured"  # what a step of a workflow gives
            return section, separator.join([*sections[place:], last])
    return None, name


_GIVEN = (["outputs", "parameters"], ["output", "parameters"])


def is_of_parameters(name: str) -> bool:
    """Whether a column stands in the section of a record that has what was set: ``params.y``."""
    return _section(name)[0] == "parameter"


def _phrases(found: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Known phrases that do not overlap, and whether each holds the last word that counts."""
    taken = [False] * len(found)
    for place, word in enumerate(found[:-1]):  # "per GPU" says per what, not what
        after = found[place : place + 2] in _KNOWN or found[place - 1 : place + 2] in _KNOWN
        before = (
            found[place - 1 : place + 1] in _KNOWN and "per" not in found[place - 2 : place - 1]
        )
        if word == "per" and place and not (after or before):
            taken[place] = taken[place + 1] = True
    end = max((place for place, done in enumerate(taken) if not done), default=-1)
    while (
        end > 0
        and found[end] in vocabulary.UNITS.keys() | vocabulary.VAGUE
        and found[end - 1] != "per"
    ):
        end -= 1
    for size in range(min(_LONGEST, len(found)), 0, -1):
        for start in range(len(found) - size + 1):
            phrase = found[start : start + size]
            if not any(taken[start : start + size]) and phrase in _KNOWN:
                taken[start : start + size] = [True] * size
                yield phrase, start + size > end


def unit_of(name: str) -> str:
    """The unit that a name ends in: ``tokens/s/GPU`` of ``tokens_per_s_per_gpu``; "" for none."""
    leaf = _section(without_number(name))[1]
    rate = rate_of(leaf)
    if rate is not None and rate.unit is not None:
        return rate.unit
    leaf_words = words(leaf)
    if "per" in leaf_words[1:]:
        start = leaf_words.index("per", 1)
        head, tail = leaf_words[start - 1], [word for word in leaf_words[start:] if word != "per"]
        shown = vocabulary.UNITS.get(head, vocabulary.SHOWN.get(head, f"{head}s"))
        if start > 1:
            shown = vocabulary.THOUSANDS.get(leaf_words[start - 2], "") + shown
        return "/".join(
            [
                shown,
                *(vocabulary.UNITS.get(word, vocabulary.SHOWN.get(word, word)) for word in tail),
            ]
        )
    for word in reversed(leaf_words):
        if word in vocabulary.UNITS and (len(leaf_words) > 1 or len(word) > 2):
            return vocabulary.UNITS[word]
    return ""


def identifier(name: str, taken: Collection[str]) -> str:
    """A name as one that can stand in an expression, unlike all that are taken."""
    read = in_english(name, latin=False).replace("µ", "u").replace("ß", "ss")
    plain = unicodedata.normalize("NFKD", read.replace("%", "_pct"))
    text = re.sub(r"[^A-Za-z0-9_]+", "_", plain.encode("ascii", "ignore").decode()).strip("_")
    text = (text or "column")[:56]
    if text[0].isdigit():
        text = f"c{text}"
    if text in RESERVED:
        text = f"{text}_"
    unique, count = text, 1
    while unique in taken:
        count += 1
        unique = f"{text}_{count}"
    return unique
