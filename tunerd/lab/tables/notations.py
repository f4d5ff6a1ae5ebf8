"""How the columns of a table write their numbers, found out from each column as a whole.

``1,234`` alone may be 1234 or 1.234. The other values of the column decide; then those of the
other columns, since one program writes them all. What is left open is said to be a guess.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tunerd.events.quantities import (
    PLAIN,
    SPREAD,
    NumberNotation,
    read_count,
    read_duration,
    read_quantity,
    read_size,
)
from tunerd.lab.tables.column_names import read_name, words
from tunerd.lab.tables.values import is_nothing
from tunerd.lab.tables.vocabulary import word_set

__all__ = ["AS_IT_STANDS", "ColumnNotation", "notations"]


@dataclass(frozen=True, slots=True)
class ColumnNotation:
    """How a column writes its numbers."""

    notation: NumberNotation = PLAIN
    doubt: str = ""
    """What else it could mean; "" where nothing else."""


AS_IT_STANDS = ColumnNotation()
RARE_WORDS = 8
"""Different words that may stand among numbers: OOM, UNLIMITED."""
LOOKED_AT = 2_000
"""Values of a column by which its notation is found."""

_NUMBER = re.compile(
    r"(?P<before>[$€£¥]?)\s*"
    r"(?P<number>[+-]?(?:[0-9][0-9.,'’_\u00a0\u2009\u202f]*(?: [0-9]{3}[.,0-9]*)*|\.[0-9]+)"
    r"(?:[eE][+-]?[0-9]{1,4}(?![0-9A-Za-z]))?)"
    r"(?P<gap>\s*)(?P<unit>[^\d\s].{0,24})?"
)
_UNITS = word_set("""
    % ‰ $ € £ ¥ ms us µs μs ns s sec secs second seconds min mins minute minutes h hr hrs hour hours
    d day days B kB KB MB GB TB PB KiB MiB GiB TiB PiB Ki Mi Gi Ti byte bytes W kW mW MW J kJ MJ
    mJ Wh kWh MWh °C °F V A Hz kHz MHz GHz THz x fps qps tps rps iops FPS QPS TPS RPS IOPS FLOPS
    GFLOPS TFLOPS PFLOPS MFLOPS flops gflops tflops GFlops TFlops GFlop/s TFlop/s Gbps Mbps kbps bps
    second(s) minute(s) hour(s) bit bits Gbit Mbit Gbit/s Mbit/s nodes GPUs tok tokens USD EUR px
""")
_PER = re.compile(r"[A-Za-zµ°%]{1,12}( per |/)[A-Za-z0-9/ ]{1,20}|p\.?m\.?")


def notations(
    columns: Sequence[tuple[str, Collection[object]]], delimiter: str
) -> list[ColumnNotation]:
    """The notation of each column, by its name and its values.

    Args:
        columns: what is no text is left alone.
        delimiter: of a CSV; "" for other tables.
    """
    texts = [_texts(values) for _, values in columns]
    notations = [_found(name, of) for (name, _), of in zip(columns, texts, strict=True)]
    marks = [_marks(notation.notation, of) for notation, of in zip(notations, texts, strict=True)]
    comma = any(mark == "comma" for mark in marks)
    point = any(mark == "point" for mark in marks)
    return [
        notation if mark is None else _decided(notation, mark, of, delimiter, comma, point)
        for notation, mark, of in zip(notations, marks, texts, strict=True)
    ]


def _texts(values: Collection[object]) -> list[str]:
    """The values that may be numbers in another notation; none where most are plain ones."""
    texts: list[str] = []
    for value in values:
        if isinstance(value, str) and not is_nothing(value):
            texts.append(value.strip())
            if len(texts) >= LOOKED_AT:
                break
    return texts


def _most(fitting: Collection[str], texts: Sequence[str]) -> bool:
    """Whether all of a column but a few rare words fit."""
    others = len(texts) - len(fitting)
    return bool(fitting) and (not others or (others <= RARE_WORDS and len(fitting) >= 5 * others))


# ── units, durations, sizes ──────────────────────────────────────────────────────────────────


def _found(name: str, texts: Sequence[str]) -> ColumnNotation:
    if not texts or all(_is_plain(text) for text in texts):
        return AS_IT_STANDS
    for look in (_with_spread, _with_unit, _durations, _counts, _sizes):
        if (written := look(name, texts)) is not None:
            return written
    return AS_IT_STANDS


def _is_plain(text: str) -> bool:
    try:
        read_quantity(text, PLAIN)
    except ValueError:
        return False
    return True


_PLUS_MINUS = re.compile(r"[+-]?[\d.,]+(?:[eE][+-]?\d+)?\s*\(?(?:±|\+/-|\+-)\s*[\d.,]+%?\)?")


def _with_spread(_: str, texts: Sequence[str]) -> ColumnNotation | None:
    """A column whose numbers have their spread behind them: 14.9 ± 0.4."""
    fitting = [text for text in texts if _PLUS_MINUS.fullmatch(text)]
    bare = [text for text in texts if _is_plain(text)]
    if not fitting or len(bare) > len(fitting) or not _most([*fitting, *bare], texts):
        return None
    return ColumnNotation(NumberNotation("number", SPREAD))


def _with_unit(_: str, texts: Sequence[str]) -> ColumnNotation | None:
    """A column whose numbers all have the same unit: 12.5 ms, 45 %, 80GB."""
    split = {text: match for text in texts if (match := _NUMBER.fullmatch(text))}
    if not _most(split, texts):
        return None
    units: dict[str, int] = {}
    for match in split.values():
        unit = match["before"] or (match["unit"] or "").rstrip()
        units[unit] = units.get(unit, 0) + 1
    bare = units.pop("", 0)
    if len(units) != 1 or bare > sum(units.values()):
        return None
    (unit,) = units
    spaced = any(match["gap"] for match in split.values())
    known = unit in _UNITS or bool(_PER.fullmatch(unit))
    if not known and not (spaced and unit.isalpha() and len(unit) > 2):
        return None
    if unit in ("B", "d", "s", "h", "x", "A", "V") and not spaced and len(texts) < 3:
        return None  # 7B and 70B are names of models
    return None if unit == "B" and not spaced else ColumnNotation(NumberNotation("number", unit))


_SPANS = word_set("""
    time elapsed duration wall walltime limit timelimit timeout interval period latency lat delay
    age uptime ttl runtime span cpu totalcpu cputime avecpu mincpu usercpu systemcpu makespan wait
    queue s ms took spent dauer zeit
""")
_MOMENTS = word_set(
    "start started end ended finish finished submit submitted at date datetime timestamp begin "
    "eligible created when clock"
)


def _durations(name: str, texts: Sequence[str]) -> ColumnNotation | None:
    fitting = [text for text in texts if _reads(read_duration, text)]
    written = [text for text in fitting if not _is_plain(text)]
    if not _most(fitting, texts) or 2 * len(written) < len(fitting):
        return None
    word_set = set(words(name)) | set(re.findall(r"[a-z]+", name.lower()))
    named = not _SPANS.isdisjoint(word_set)
    clocks = [text for text in written if ":" in text]
    if clocks and not named and not _MOMENTS.isdisjoint(word_set):
        return None  # 14:05:33 is when it started
    if not clocks and not named and all(re.fullmatch(r"[0-9]+ ?[a-zA-Z]", t) for t in written):
        return None  # 10m and 50m: millions, metres
    if not clocks and not named and all(re.fullmatch(r"[0-9]+-[0-9]+", t) for t in written):
        return None
    doubt = ""
    if clocks and all(re.fullmatch(r"[0-9]+:[0-9]{2}", text) for text in written):
        doubt = f"{clocks[0]} is read as minutes and seconds; it may be hours and minutes"
    return ColumnNotation(NumberNotation("duration"), doubt)


_BIG = re.compile(
    r".*(mem|rss|vms|byte|disk|read|write|cache|buf|heap|swap|vram|hbm|ram|page|alloc|space|storage"
    r"|file|size|limit).*",
    re.IGNORECASE,
)
_COUNTED = re.compile(
    r".*(model|param|weight|token|vocab|batch|seq|grid|problem|window|row|sample|record).*",
    re.IGNORECASE,
)
"""What people count in thousands and millions: 350M parameters."""


def _sizes(name: str, texts: Sequence[str]) -> ColumnNotation | None:
    fitting = [text for text in texts if _reads(read_size, text)]
    written = [text for text in fitting if not _is_plain(text)]
    if not _most(fitting, texts) or 2 * len(written) < len(fitting) - 1:
        return None
    if any(re.fullmatch(r"[0-9.,]+B", text) for text in written):
        return None  # 7B and 350M: sizes of models
    binary = any(
        re.search(r"[KMGTP]i|[kKMGTP][Bb]|[mg]b|byte|[KMGT][nc]$", text) for text in written
    )
    named = bool(_BIG.fullmatch(name)) and not _COUNTED.fullmatch(name)
    return ColumnNotation(NumberNotation("size")) if binary or named else None


def _counts(name: str, texts: Sequence[str]) -> ColumnNotation | None:
    """A column of something measured, with prefixes that count by 1,000: joules of 880.0K."""
    if not texts or not _PREFIXED.search(" ".join(texts)) or _BIG.fullmatch(name):
        return None
    fitting = [text for text in texts if _reads(read_count, text)]
    written = [text for text in fitting if not _is_plain(text)]
    meaning = read_name(name)
    taken = meaning.weight("measured") > max(meaning.weight("parameter"), meaning.weight("context"))
    if not taken or not _most(fitting, texts) or 2 * len(written) < len(fitting) - 1:
        return None
    return ColumnNotation(NumberNotation("count"))


_PREFIXED = re.compile(r"[0-9]\s?[kKMGTP](?:\s|$)")


def _reads(read: object, text: str) -> bool:
    try:
        read(text)  # type: ignore[operator]
    except ValueError:
        return False
    return True


# ── commas and points ────────────────────────────────────────────────────────────────────────


def _marks(notation: NumberNotation, texts: Sequence[str]) -> str | None:
    """What a column says about commas: "comma" and "point" are decimal signs for certain,
    "either" could be both, "groups" could be points between thousands; None says nothing."""
    if notation.format != "number" or not texts:
        return None
    if not notation.unit and (mark := _of_plain(texts)) is not None:
        return mark or None
    comma, point = replace(notation, format="1.234,5"), replace(notation, format="1,234.5")
    as_comma = [text for text in texts if _reads(lambda t: read_quantity(t, comma), text)]
    as_point = [text for text in texts if _reads(lambda t: read_quantity(t, point), text)]
    by_comma, by_point = _most(as_comma, texts), _most(as_point, texts)
    if by_comma and len(as_comma) > len(as_point):
        return "comma"
    plain = replace(notation, format="number")
    if by_point and len(as_point) > len(as_comma):
        return "point"
    if not (by_comma and by_point):
        return None
    differing = [t for t in as_point if read_quantity(t, comma) != read_quantity(t, point)]
    if not differing:
        spaced = any(not _reads(lambda t: read_quantity(t, plain), t) for t in as_point)
        return "spaced" if spaced else None
    if any("," in text for text in differing):
        return "either"
    return "groups"


_DIGITS = re.compile(r"[+-]?[0-9]{1,15}(?:\.[0-9]{1,40})?", re.ASCII)
_IN_GROUPS = re.compile(r"[+-]?(?:[0-9]+|[1-9][0-9]{0,2}\.[0-9]{3})", re.ASCII)


def _of_plain(texts: Sequence[str]) -> str | None:
    """The same for numbers as programs write them, with a look at each: "" for nothing, ``None``
    where only a closer look tells."""
    if not all(map(_DIGITS.fullmatch, texts)):
        return None
    if not any("." in text for text in texts):
        return ""
    return None if all(map(_IN_GROUPS.fullmatch, texts)) else "point"


def _decided(
    one: ColumnNotation, mark: str, texts: Sequence[str], delimiter: str, comma: bool, point: bool
) -> ColumnNotation:
    """The notation of a column, given what some columns of the table say for certain."""
    unit = one.notation.unit
    by_comma, by_point = NumberNotation("1.234,5", unit), NumberNotation("1,234.5", unit)
    if mark == "comma":
        alone = delimiter not in (";", "\t") and not _convincing(texts)
        example = next((text for text in texts if "," in text), "")
        return ColumnNotation(by_comma, f"{example} is read as a decimal comma" if alone else "")
    if mark == "groups":  # 1.234, where other columns have decimal commas, or 512 stands beside
        shown = next(text for text in texts if "." in text)
        if comma or (not point and _grouping(texts) and not any(map(_ZERO.match, texts))):
            return ColumnNotation(by_comma, f"{shown} is read with a point between thousands")
        doubt = f"{shown} is read with a decimal point; it may stand between thousands"
        return replace(one, doubt=doubt) if delimiter == ";" and not point else one
    if mark in ("point", "spaced"):
        numbers = [text for text in texts if _reads(lambda t: read_quantity(t, by_point), text)]
        plain = all(_reads(lambda t: read_quantity(t, one.notation), text) for text in numbers)
        return one if plain else ColumnNotation(by_point)
    shown = next(text for text in texts if "," in text)
    decimal = comma or not (point or delimiter == ",")
    if comma == point:  # nothing else decides: what stands beside it does
        decimal = decimal and not _grouping(texts)
        reason = "a decimal comma" if decimal else "a comma between thousands"
        doubt = f"{shown} is read with {reason}; it could be the other"
        return ColumnNotation(by_comma if decimal else by_point, doubt)
    return ColumnNotation(by_comma if decimal else by_point)


_ZERO = re.compile(r"[+-]?0")


def _convincing(texts: Sequence[str]) -> bool:
    """Whether so many different numbers have decimal commas that these are no pairs (2,4)."""
    with_comma = [text for text in texts if "," in text]
    return len(with_comma) >= 5 and sum(len(t.partition(",")[2]) > 1 for t in with_comma) >= 3


def _grouping(texts: Sequence[str]) -> bool:
    """Whether whole numbers below 1,000 stand beside, and none above without a comma."""
    bare = [int(text) for text in texts if text.isdigit()]
    return bool(bare) and max(bare) < 1_000
