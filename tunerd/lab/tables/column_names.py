"""Names of columns as words, and what the words say."""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tunerd.core.expressions import RESERVED
from tunerd.lab.tables.foreign_words import has_unknown_words, in_english
from tunerd.lab.tables.rates import DOUBTFUL, LIKELY, RateMeaning, plain_unit, rate_of, slashes_read
from tunerd.lab.tables.vocabulary import (
    CONTEXT,
    DEVICES,
    LABELS,
    MEASURES,
    MISHAPS,
    OUTCOMES,
    PARAMETER,
    QUALIFIERS,
    QUALITY,
    QUANTITIES,
    SENSORS,
    STATISTICS,
    STATUS,
    TAKEN,
    TIMES,
    WISHES,
    MetricPhrase,
    word_set,
)

__all__ = [
    "ColumnName",
    "identifier",
    "is_of_parameters",
    "read_name",
    "unit_of",
    "without_number",
    "words",
]

Class = Literal["context", "parameter", "measured", "status", "label"]
"""What a name can say that a column is."""

_Direction = tuple[Literal["maximize", "minimize"] | None, float, str]
"""Which way better is, how sure that is, and why."""
_EXPANDED = {
    **dict.fromkeys(("num", "number", "nr", "cnt", "count", "no"), "n"),
    **dict.fromkeys(("sec", "second"), "s"),
    **dict.fromkeys(("msec", "millis", "millisecond"), "ms"),
    **dict.fromkeys(("usec", "microsecond"), "us"),
    **dict.fromkeys(("nsec", "nanosecond"), "ns"),
    **dict.fromkeys(("hr", "hour"), "hour"),
    **dict.fromkeys(("length", "size of"), "len"),
    **dict.fromkeys(("std", "stdev", "stddev", "sd", "stdv"), "std"),
    **dict.fromkeys(("avg", "average"), "mean"),
    "med": "median",
    "negative": "neg",
    **dict.fromkeys(("minimum", "fastest"), "min"),
    **dict.fromkeys(("maximum", "slowest"), "max"),
    **dict.fromkeys(("bsz", "bs", "batchsize"), "batch size"),
    **dict.fromkeys(("gas", "gradaccum"), "gradient accumulation"),
    **dict.fromkeys(("proc", "pe"), "process"),
    **dict.fromkeys(("iter", "it"), "iteration"),
    "mbs": "micro batch size",
    "gbs": "global batch size",
    "microbatches": "micro batch",
    "seqlen": "seq len",
    "ctx": "context",
    "mem": "memory",
    "util": "utilization",
    "ckpt": "checkpoint",
    "ckpting": "checkpointing",
    "chkpt": "checkpoint",
    "act": "activation",
    "grad": "gradient",
    "accum": "accumulation",
    "acc": "accuracy",
    "prec": "precision",
    "rew": "reward",
    "ret": "return",
    "thruput": "throughput",
    "perf": "performance",
    "quant": "quantization",
    "freq": "frequency",
    "bw": "bandwidth",
    "lat": "latency",
    "exec": "execution",
    "attn": "attention",
    "percent": "pct",
    "ntasks": "process",
    "cpus": "cpu",
    "gpus": "gpu",
    "tpus": "tpu",
    "ngpus": "gpu",
    "ncpus": "cpu",
    "params": "param",
    "dl": "dataloader",
    "lyr": "layer",
    "hid": "hidden",
    "emb": "embedding",
    "ffw": "ffn",
    "tput": "throughput",
    **dict.fromkeys(("thpt", "thrpt", "thruput", "xput"), "throughput"),
    "zeit": "time",
    "toks": "token",
    "tok": "token",
    "imgs": "image",
    "img": "image",
}


_WHOLE = word_set("""
    ops fps qps tps rps iops ips pps flops gflops tflops mflops pflops ms us ns bs gbs mbs os
    gas bus axis loss status class address radius bias process access success less always mlups
    gups gbps mbps kbps bps wps sps tgs mpps kpps mips gops tops
    glups gteps teps gcups sms rss maxrss fs ps h2d alias basis analysis https dss ssds
""")
"""Words that end in s in the singular."""
_NOUNS = word_set("""
    gpu node proc rank thread core worker layer head task cpu process expert socket replica
    param executor device host channel row col block tile warp stage iteration request
""")
_TAILS = word_set("size type name value kind mode degree factor strategy setting level used")
"""Last words that say less than the one before."""
_SINGLE = (
    frozenset(
        word
        for table in (CONTEXT, PARAMETER, MEASURES, STATUS, LABELS)
        for phrase in table
        for word in phrase
    )
    | frozenset(TIMES)
    | word_set("time size count rate type name mode limit number use enable max min mpi omp")
)
"""Words of which names are made."""
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
    return " max " if number == 100 else f" {whole if whole in STATISTICS else 'percentile'} "


def _parted(word: str) -> tuple[str, ...]:
    """A word that nobody knows as two that are known: ``blocksize``, ``elapsedtime``."""
    if word not in _SINGLE:
        for place in range(3, len(word) - 2):
            halves = tuple(_expanded(word[:place])) + tuple(_expanded(word[place:]))
            if all(half in _SINGLE and len(half) > 2 for half in halves):
                return halves
    return (word,)


def _expanded(word: str) -> list[str]:
    if word in _EXPANDED:
        return _EXPANDED[word].split()
    if word.endswith(("sses", "xes", "shes", "nches", "tches", "rches")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and word not in _WHOLE and word[-2] not in "su":
        word = word[:-3] + "y" if word.endswith("ies") and len(word) > 4 else word[:-1]
    for prefix in ("num", "n"):
        if word.startswith(prefix) and word[len(prefix) :] in _NOUNS:
            word = word[len(prefix) :]
    return _EXPANDED.get(word, word).split()


_SECTIONS: dict[str, Class] = {
    **dict.fromkeys(("config", "cfg", "conf", "configuration", "args", "arg"), "parameter"),
    **dict.fromkeys(("param", "params", "parameters", "hparams", "knobs", "flags"), "parameter"),
    **dict.fromkeys(("hyperparameters", "tunable", "tunables", "knob"), "parameter"),
    "tunedhyperparameters": "parameter",
    **dict.fromkeys(("context", "ctx", "workload"), "context"),
    **dict.fromkeys(("metric", "metrics", "result", "results", "summary"), "measured"),
    **dict.fromkeys(("output", "outputs", "measurement", "measurements"), "measured"),
    **dict.fromkeys(("monitoring", "system", "timing", "timings"), "measured"),
    **dict.fromkeys(("parameterassignments", "assignments"), "parameter"),
    "sys": "label",
    **dict.fromkeys(("label", "labels", "tag", "tags", "meta", "metadata", "info"), "label"),
}
"""What records of other tools call the parts of a run: ``params.lr``, ``metrics/loss``."""


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


_MEASURES = {words(" ".join(phrase)): measure for phrase, measure in MEASURES.items()}
_TABLES: dict[Class, Mapping[tuple[str, ...], float]] = {
    "context": _named(CONTEXT),
    "parameter": _named(PARAMETER),
    "measured": {phrase: measure.weight for phrase, measure in _MEASURES.items()},
    "status": _named(STATUS),
    "label": _named(LABELS),
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
    goal: Literal["maximize", "minimize"] | None
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
    guard = best.guard or any(QUALIFIERS.get(word) == _TAIL for word in leaf_words)
    if measures and any(QUALIFIERS.get(word, 0.0) <= _TAIL for word in leaf_words):
        weights["measured"] = weights.get("measured", 0.0) + 1.5  # the spread or tail of something
    goal, sure, why = _said_better(leaf, _goal(leaf_words, measures, measure, rate))
    if sure > DOUBTFUL and has_unknown_words(leaf):
        sure, why = DOUBTFUL, "not all of its words are known"
    taken = _certainly_measured(leaf_words)
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
        (rate is not None and rate.goal == "minimize") or not _TIME_WORDS.isdisjoint(leaf_words),
    )


def _time_rank(found: Sequence[str]) -> float:
    """How likely a time is what people want better: the whole before a part of it."""
    if not _PARTS.isdisjoint(found):
        return 3.0
    return 6.0 if _WHOLE_TIMES.isdisjoint(found) else 6.5


def _qualified(found: Sequence[str], measure: str, rate: RateMeaning | None) -> float:
    """What the words beside a measure do to its rank."""
    minutes = rate is not None and rate.unit == "min" and found[-1] == "min"
    beside = found[:-1] if minutes else found
    if "score" in found:  # of a cross-validation, and no coefficient of variation
        beside = tuple(word for word in beside if word != "cv")
    trained = not {"train", "training"}.isdisjoint(found) and not QUALITY.isdisjoint(
        measure.split()
    )  # what counts is how good it is on data that it has not seen
    return sum(QUALIFIERS.get(word, 0.0) for word in beside) - (0.5 if trained else 0.0)


_WHOLE_TIMES = word_set("total epoch step iteration wall elapsed run e2e makespan")
_PARTS = word_set("""
    setup init startup data dataloader load loading forward backward fwd bwd optimizer comm
    communication sync io gc h2d d2h warmup wait queue compile save checkpoint checkpointing
    preprocess validation val eval allreduce stall idle overhead
""")
_TIME_WORDS = {"time", "duration", "latency", "delay", "elapsed", "slack"}


def _without_rates(
    measures: Mapping[str, MetricPhrase], found: Sequence[str]
) -> dict[str, MetricPhrase]:
    """Without "per s", where it is errors that are counted; money an hour can be read both ways."""
    money = not _MONEY.isdisjoint(found)
    return {
        name: phrase for name, phrase in measures.items() if money or not name.startswith("per ")
    }


_MONEY = {"usd", "dollar", "eur", "cost", "price"}


def _certainly_measured(found: Sequence[str]) -> bool:
    word_set = frozenset(found)
    if word_set & WISHES:
        return False
    if word_set & STATISTICS or word_set & OUTCOMES or (word_set & MISHAPS and "max" not in found):
        return True
    sensed = SENSORS | {"pct"}  # %cpu, and the percent of CPU that a job got
    if word_set & DEVICES and word_set & sensed and "memory" not in word_set:
        return True
    # "max memory" alone may be asked for; a maximum of what is never asked for is taken.
    taken = word_set & TAKEN - ({"max"} if "memory" in word_set else set())
    return bool(taken and word_set & QUANTITIES)


def _goal(
    found: Sequence[str], measures: Mapping[str, MetricPhrase], told: str, rate: RateMeaning | None
) -> _Direction:
    """Which way better is by a name, how sure that is, and why."""
    best = measures[told].goal if told else None
    if (otherwise := _otherwise(found, best if rate is None else rate.goal)) is not None:
        return otherwise
    if "neg" in found and best is not None and rate is None:
        turned: Literal["maximize", "minimize"]
        turned = "maximize" if best == "minimize" else "minimize"
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


def _said_better(leaf: str, named: _Direction) -> _Direction:
    """Which way better is where a name says just that: ``Score ↓``, ``time (lower is better)``.

    An arrow beside a speed is often where data went: ``Mbit/s ↓``.
    """
    match = _BETTER.search(leaf)
    if match is None:
        return named
    goal: Literal["maximize", "minimize"] = "maximize" if match["max"] else "minimize"
    if match[0] in "↑↓" and (named[0] not in (None, goal) or _TRANSFER.search(leaf)):
        return named[0] or goal, DOUBTFUL, f'"{match[0]}" may say where data went'
    return goal, 0.95, f'its name says "{match[0]}"'


_TRANSFER = re.compile(r"download|upload|\b(?:down|up|[rt]x|data|traffic|net(?:work)?)\b", re.I)


_MIN: Literal["minimize"] = "minimize"
_MAX: Literal["maximize"] = "maximize"
_TWISTS: tuple[tuple[frozenset[str], Mapping[str, Literal["maximize", "minimize"]], str], ...] = (
    (word_set("improvement gain saving saved reduction"), {_MIN: _MAX, _MAX: _MAX},
     "it says how much better something became"),
    (word_set("increase regression"), {_MIN: _MIN, _MAX: _MAX}, "it says how something changed"),
    (word_set("drop lost unused wasted waste missed failed deficit gap shortfall penalty decline"
              " decrease degradation"), {_MAX: _MIN}, "it says what was lost"),
    (word_set("free available remaining headroom spare"), {_MIN: _MAX}, "it says what was left"),
    (word_set("inverse reciprocal inv"), {_MIN: _MAX, _MAX: _MIN}, "it says one divided by it"),
)  # fmt: skip
"""Words that turn round what is better of a quantity, by which way it was."""
_LASTS = word_set("uptime mtbf mttf lifetime life survival endurance autonomy")
_COUNTED_UP = word_set(
    "epoch step iteration hour minute second day time sample token round trial evaluation"
)
_KEPT = word_set("under within in meeting met attainment")


def _otherwise(
    found: Sequence[str], best: Literal["maximize", "minimize"] | None
) -> _Direction | None:
    """Which way better is where other words than the quantity's own say it; else ``None``."""
    until = "failure" in found and not {"to", "between", "until", "before"}.isdisjoint(found)
    if (until or not _LASTS.isdisjoint(found)) and best != "maximize":
        return "maximize", LIKELY, "by its name: it lasts, and longer is better"
    if not {"sla", "slo"}.isdisjoint(found) and not _KEPT.isdisjoint(found):
        sure = LIKELY if best != "minimize" else DOUBTFUL
        return "maximize", sure, "by its name: it says how much kept within a bound"
    if "to" in found[1:-1] and found[found.index("to", 1) - 1] in _COUNTED_UP:
        sure = DOUBTFUL if "live" in found else 0.9 if best == "minimize" else LIKELY
        return "minimize", sure, "by its name: it says how much it takes"
    if "flops" in found[:1] and "per" in found and best == "maximize":
        return "minimize", DOUBTFUL, "it may be how much there is to do"
    if found[:1] == ("1",) and len(found) > 1:
        found = ("inverse", *found)
    for words_of, turned, why in _TWISTS:
        if best is not None and best in turned and not words_of.isdisjoint(found):
            return turned[best], DOUBTFUL, why
    return None


def _last_place(found: Sequence[str], phrase: str) -> int:
    last = phrase.split()[-1]
    return max((place for place, word in enumerate(found) if word == last), default=-1)


_TAIL = QUALIFIERS["p99"]


def _section(name: str) -> tuple[Class | None, str]:
    separator = "/" if "/" in name else "."
    *sections, last = name.split(separator)
    for place in range(len(sections), 0, -1):
        section = _SECTIONS.get(sections[place - 1].lower())
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
    while end > 0 and found[end] in _UNITS.keys() | _TAILS and found[end - 1] != "per":
        end -= 1
    for size in range(min(_LONGEST, len(found)), 0, -1):
        for start in range(len(found) - size + 1):
            phrase = found[start : start + size]
            if not any(taken[start : start + size]) and phrase in _KNOWN:
                taken[start : start + size] = [True] * size
                yield phrase, start + size > end


_UNITS = {
    "ms": "ms", "us": "µs", "ns": "ns", "s": "s", "min": "min", "minute": "min", "hour": "h",
    "gib": "GiB", "mib": "MiB", "kib": "KiB", "gb": "GB", "mb": "MB", "kb": "kB", "tb": "TB",
    "byte": "B", "pct": "%", "watt": "W", "w": "W", "kwh": "kWh", "joule": "J", "j": "J",
    "usd": "USD", "dollar": "USD", "eur": "EUR", "gflops": "GFLOP/s", "tflops": "TFLOP/s",
    "pflops": "PFLOP/s", "mflops": "MFLOP/s", "qps": "queries/s", "tps": "transactions/s",
    "rps": "requests/s", "iops": "operations/s", "fps": "frames/s", "gbps": "Gbit/s",
    "mbps": "Mbit/s", "tgs": "tokens/s/GPU", "wps": "words/s",
    "cycle": "cycles", "ghz": "GHz", "mhz": "MHz",
}  # fmt: skip
_THOUSANDS = {"k": "k ", "kilo": "k ", "thousand": "k ", "million": "M "}
_SHOWN = {"gpu": "GPU", "cpu": "CPU", "tpu": "TPU", "tok": "token"}


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
        shown = _UNITS.get(head, _SHOWN.get(head, f"{head}s"))
        if start > 1:
            shown = _THOUSANDS.get(leaf_words[start - 2], "") + shown
        return "/".join([shown, *(_UNITS.get(word, _SHOWN.get(word, word)) for word in tail)])
    for word in reversed(leaf_words):
        if word in _UNITS and (len(leaf_words) > 1 or len(word) > 2):
            return _UNITS[word]
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
