"""Rates and times in the names of columns: ``samples_sec``, ``tokens_per_gpu_s``, ``ms_per_step``.

Whether a name says how much was done in a second or how many seconds it took decides which way is
better. Where it can be read both ways the answer is a guess, and is never said to be sure.
"""

import re
from dataclasses import dataclass
from typing import Literal

from tunerd.lab.tables.foreign_words import in_english
from tunerd.lab.tables.vocabulary import word_set

__all__ = ["DOUBTFUL", "LIKELY", "RateMeaning", "plain_unit", "rate_of", "slashes_read"]

SURE, LIKELY, DOUBTFUL = 0.9, 0.6, 0.4


@dataclass(frozen=True, slots=True)
class RateMeaning:
    """What a name says of work and time."""

    goal: Literal["maximize", "minimize"]
    sure: float
    unit: str | None
    """``samples/s``, ``ms``; ``None`` where only the name as a whole says it."""
    why: str


def _table(text: str) -> dict[str, str]:
    """``shown: word word`` a line, by word."""
    units: dict[str, str] = {}
    for line in text.strip().splitlines():
        shown, _, words = line.partition(":")
        units |= dict.fromkeys(words.split(), shown.strip())
    return units


_TIMES = _table("""
s: s sec secs second seconds
ms: ms msec msecs milli millis millisecond milliseconds
µs: us usec usecs micros microsecond microseconds
ns: ns nsec nsecs nanosecond nanoseconds
min: min mins minute minutes
h: h hr hrs hour hours
day: day days
""")
_LONG = {"week", "weeks", "month", "months", "year", "years"}
_SHORT = {"ms", "µs", "ns"}
"""Units of times more than of rates."""
_BYTES = _table("""
B: byte bytes
kB: kb kbyte kbytes
MB: mb mbyte mbytes
GB: gb gbyte gbytes gigabyte gigabytes
TB: tb tbyte tbytes
KiB: kib
MiB: mib
GiB: gib
TiB: tib
bits: bit bits
kbit: kbit kbits
Mbit: mbit mbits
Gbit: gbit gbits
FLOP: flop
MFLOP: mflop mflops
GFLOP: gflop gflops
TFLOP: tflop tflops
PFLOP: pflop pflops
""")
"""Nobody has one of these that takes a second."""
_WORK = _table("""
samples: sample samples
tokens: token tokens
images: image images
requests: request requests
steps: step steps
iterations: iteration iterations iter iters
rows: row rows
records: record records rec recs
queries: query queries
operations: operation operations op
transactions: transaction transactions
frames: frame frames
edges: edge edges
vertices: vertex vertices
atoms: atom atoms
sentences: sentence sentences
words: word words
examples: example examples
sequences: sequence sequences seqs
batches: batch batches minibatch minibatches microbatch microbatches
epochs: epoch epochs
events: event events
messages: message messages
packets: packet packets
jobs: job jobs
tasks: task tasks
points: point points
cells: cell cells
items: item items
documents: document documents doc docs
pages: page pages
videos: video videos
clips: clip clips
episodes: episode episodes
games: game games
particles: particle particles
files: file files
writes: write writes
reads: read reads
inferences: inference inferences
predictions: prediction predictions
calls: call calls
runs: run runs
updates: update updates
lookups: lookup lookups
inserts: insert inserts
keys: key keys
objects: object objects
elements: element elements elem elems
molecules: molecule molecules
generations: generation generations
evaluations: evaluation evaluations evals eval
hashes: hash hashes
users: user users
""")
_SHORTENED = _table("""
tokens: tok toks tks tk
images: img imgs
requests: req reqs
operations: ops iops
transactions: tx txn txns trans
messages: msg msgs
packets: pkt pkts
samples: samp samps smp
examples: ex exs
sequences: seq
iterations: it its
queries: q qs
points: pts
""")
"""Work as people shorten it, who mean a rate with it."""
_HARDWARE = _table("""
GPU: gpu gpus
CPU: cpu cpus
TPU: tpu tpus
NPU: npu npus
device: device devices dev
node: node nodes host hosts server servers
core: core cores thread threads
chip: chip chips card cards accelerator accelerators die
rank: rank ranks worker workers process processes replica replicas replicas
user: user
""")
_TAKES = word_set("""
    time latency lat duration elapsed wall walltime runtime delay took spent wait compute comm
    communication forward backward fwd bwd optimizer io sync stall overhead compile load setup init
    total train training fit solve solver kernel exec execution response gc queue idle transfer cpu
    makespan ttft tpot itl e2e mean median avg min max p50 p90 p95 p99 std t dt
""")
"""What takes time."""
_COSTS = word_set("""
    energy joule joules j kj mj kwh wh cost costs usd dollar dollars eur price carbon co2 error
    errors miss misses failure failures fault faults retry retries drop drops dropped
    gc gcs switches allocs allocations pauses interrupts migrations failed missed lost
    eviction evictions stall stalls violation violations timeout timeouts loss rejected aborts abort
""")
_SPENT = word_set("joule joules j kj kwh wh watt watts w kw usd dollar dollars eur")
_MOVED = word_set("bw bandwidth read write copy transfer throughput rate io")
_PREFIXES = {"k": "k ", "kilo": "k ", "thousand": "k ", "m": "M ", "million": "M ", "mega": "M "}
_THINGS = frozenset({**_BYTES, **_WORK, **_SHORTENED, **_PREFIXES})
_COUNTED = _THINGS | frozenset(_TIMES)
_BRACKETED = re.compile(r"[\[(] ?(s|secs?|seconds?|ms|us|ns|min|h) ?[\])]$", re.IGNORECASE)
"""A unit of the whole: ``Temps (s)`` is no rate of temps."""
_UNIT_BEHIND = re.compile(r"(?<=\S)\s*[\[(]\s*([A-Za-z]+(?:/[A-Za-z]+){2,})\s*[\])]$")
"""A rate for each piece of hardware: what stands before it says the same in words."""
_MOST_BEHIND = 8
"""Words behind a slash that are looked at: a name may be as long as its writer likes."""
_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SLASHED = re.compile(
    r"(?P<head>.*[A-Za-z0-9)])\s*/\s*\(?(?P<unit>ms|msec|us|µs|μs|ns|s|sec|min|h|hours?|[KMGT]i?B|kB"
    r"|W|kW|J|kJ|MJ|Wh|kWh|%|°C)\)?"
)


def plain_unit(name: str) -> str:
    """``latency/ms`` as ``latency (ms)``, as physicists write units; what is a rate as it is."""
    match = _SLASHED.fullmatch(name.strip())
    if match is None:
        return name
    head = _tokens(match["head"])
    last = head[-1] if head else ""
    if head == ["t"] or not last or last in _THINGS:
        return name
    if match["unit"] in ("s", "sec", "min", "h", "hour", "hours") and last not in _TAKES:
        return name
    return f"{match['head']} ({match['unit']})"


def slashes_read(name: str) -> str:
    """A name with "per" for each slash that means it. Others divide a path: ``train/loss``,
    ``perf/tokens_per_s``."""
    parts = name.split("/")
    tokens: list[str] = []
    begins = []
    for part in parts:
        begins.append(len(tokens))
        tokens += _tokens(part)
    text = parts[:1]
    for begin, part in zip(begins[1:], parts[1:], strict=True):
        head, tail = tokens[max(begin - 1, 0) : begin], tokens[begin : begin + _MOST_BEHIND]
        text.append(("per " if _is_ratio(head, tail) else "") + part)
    return " ".join(text)


def _is_ratio(head: list[str], tail: list[str]) -> bool:
    """Whether a slash divides: what stands behind it is counted, and no quantity of its own, such
    as ``samples_per_s`` behind ``eval``."""
    if not head or not tail:
        return True
    if tail[0] not in _COUNTED and tail[0] not in _HARDWARE and tail[0] not in _SPENT:
        return False
    if len(tail) == 1 or tail[0] in _TIMES:
        return True
    counted = head[0] in _COUNTED or head[0] in _COSTS
    own = tail[0] not in _HARDWARE and not {*_TIMES, "per", "ratio"}.isdisjoint(tail[1:])
    return counted and not own


def _tokens(name: str) -> list[str]:
    """Words in lower case, as they are spelled, plurals kept; "/" is "per" where it is no path."""
    text = name.replace("$", " usd ").replace("€", " eur ").replace("FLOPS", "FLOPs")
    text = text.replace("µ", "u").replace("μ", "u")
    text = slashes_read(text) if "/" in text else text
    text = re.sub(r"([KMGT])iB", lambda unit: unit[0].lower(), text)
    text = re.sub(r"([KMGTP])([Bb]yte|[Bb]it|B|FLOP|[Ff]lop)", r" \1\2", text)
    text = re.sub(r"\b([KMGTP])(B|FLOP|Flop)", lambda unit: unit[0].lower(), text)
    return [token for token in re.split(r"[^a-z0-9]+", _CASE.sub(" ", text).lower()) if token]


def rate_of(name: str) -> RateMeaning | None:
    """What a name says of work and time; ``None`` where it says nothing of both."""
    name = in_english(name)
    of_whole = _UNIT_BEHIND.search(name)
    if of_whole is not None and _COSTS.isdisjoint(_tokens(name[: of_whole.start()])):
        return rate_of(of_whole[1])
    tokens = _tokens(plain_unit(name))
    bracketed = _BRACKETED.search(name)
    if len(tokens) == 1 and tokens[0] in _TIMES:
        unit = _TIMES[tokens[0]]
        alone = len(tokens[0]) > 2 and tokens[0] != "min" and unit != "day"
        # Behind a name in another script the unit is all that can be read.
        named = bracketed is not None and bracketed.start() > 0
        return (
            RateMeaning("minimize", LIKELY, unit, f"a time in {unit}") if alone or named else None
        )
    if "per" in tokens[1:]:
        return _with_per(tokens)
    meaning = _side_by_side(tokens) if "per" not in tokens else None
    if meaning is not None and meaning.goal == "maximize" and bracketed is not None:
        second = _TIMES[bracketed[1].lower()]
        return RateMeaning("minimize", LIKELY, second, f"a time in {second}")
    return meaning


# ── "per" between them ───────────────────────────────────────────────────────────────────────


def _with_per(tokens: list[str]) -> RateMeaning | None:
    place = tokens.index("per", 1)
    head, tail = tokens[:place], [word for word in tokens[place:] if word != "per"]
    if not tail:
        return None
    takes = head[-1] in _TIMES or bool(_TAKES & set(head))
    seconds = [word for word in tail if word in _TIMES]
    if not _COSTS.isdisjoint(head):
        return RateMeaning("minimize", SURE, None, f"{head[-1]} for each {tail[0]}")
    spent = head[-1] in _TIMES and (seconds or tail[-1] in _LONG)
    if spent and head[-2:-1] and head[-2] in _HARDWARE:
        return RateMeaning("minimize", SURE, None, f"{head[-2]} time that is spent")
    if head[-1] in _TIMES and seconds:
        return _simulated(head, tail, seconds[-1])
    if head == ["t"] and tail == ["s"]:  # as llama.cpp writes tokens
        return _speed(["tok"], "s", [], LIKELY)
    if takes and not (seconds and head[-1] not in _TIMES and tail[0] in _TIMES):
        unit = None if head[-1] in _TIMES else _TIMES.get(tail[-1], "")
        return RateMeaning("minimize", SURE, unit, "a time for each piece of work")
    if tail[-1] in _SPENT:
        return RateMeaning("maximize", SURE, None, f"how much is done with each {tail[-1]}")
    if not seconds:
        return None
    if tail[0] in _TIMES or tail[0] in _HARDWARE:
        per = [*(_HARDWARE[word] for word in tail if word in _HARDWARE)]
        return _speed(head, _TIMES[seconds[-1]], per, SURE)
    if tail[-1] in _TIMES:  # X per step in ms: X takes so long
        unit = _TIMES[tail[-1]]
        counted = head[-1] in _BYTES or head[-1] in _WORK or head[-1] in _SHORTENED
        sure = SURE if unit in _SHORT and not counted else DOUBTFUL
        return RateMeaning("minimize", sure, unit, f"a time for each {tail[0]}")
    return None


def _simulated(head: list[str], tail: list[str], second: str) -> RateMeaning:
    """ns/day, as molecular dynamics counts its speed; hours per ns or per simulated day the other
    way round. Nobody simulates seconds and minutes a day, so these are real ones."""
    first, second = _TIMES[head[-1]], _TIMES[second]
    tiny = {"ns", "µs"}
    faster = first in {*tiny, "ms"} and second not in {*tiny, "ms"}
    sure = LIKELY if second == "day" and first not in ("ms", "day") else DOUBTFUL
    if (first in tiny and second in ("h", "day")) or (
        second in tiny and first in ("s", "h", "day")
    ):
        sure = SURE
    if not _SIMULATED.isdisjoint(head) or not _SIMULATED.isdisjoint(tail):
        faster, sure = not _SIMULATED.isdisjoint(head), SURE
    goal: Literal["maximize", "minimize"] = "maximize" if faster else "minimize"
    return RateMeaning(goal, sure, f"{first}/{second}", "simulated time and real time")


_SIMULATED = {"sim", "simulated", "simulation", "model", "modelled"}


def _speed(head: list[str], second: str, per: list[str], sure: float, why: str = "") -> RateMeaning:
    noun = head[-1]
    shown = _BYTES.get(noun, _WORK.get(noun, _SHORTENED.get(noun, noun)))
    if len(head) > 1:
        shown = _PREFIXES.get(head[-2], "") + shown
    return RateMeaning(
        "maximize", sure, "/".join([shown, second, *per]), why or f"{shown} in each {second}"
    )


# ── side by side: samples_sec ────────────────────────────────────────────────────────────────


def _side_by_side(tokens: list[str]) -> RateMeaning | None:
    after = len(tokens)
    while after and tokens[after - 1] in _HARDWARE and tokens[after - 1] not in _WORK:
        after -= 1
    if after < 2 or tokens[after - 1] not in _TIMES:
        return None
    second, before = _TIMES[tokens[after - 1]], tokens[: after - 1]
    per = [_HARDWARE[token] for token in tokens[after:]]
    while len(before) > 1 and before[-1] in _HARDWARE and before[-1] not in _WORK:
        per.insert(0, _HARDWARE[before.pop()])
    noun = before[-1]
    both = f"it may be {noun} in each {second}, or a time in {second}"
    if noun in _BYTES:
        stored = {"mem", "memory", "storage"} & set(before) and not _MOVED & set(before)
        sure = DOUBTFUL if stored or second in _SHORT else SURE
        return _speed(before, second, per, sure, both if sure == DOUBTFUL else "")
    if noun in _SHORTENED or (noun in _WORK and noun.endswith("s") and noun != "s"):
        sure = DOUBTFUL if noun in ("it", "its", "seq", "ex") or second != "s" else SURE
        return _speed(before, second, per, sure, both if sure == DOUBTFUL else "")
    if noun in _WORK:
        if second in _SHORT:
            return RateMeaning("minimize", SURE, second, f"how long one {noun} takes")
        often = {"sample", "token", "image", "row", "record", "word", "example", "edge", "atom"}
        if noun in often:
            return _speed(before, second, per, DOUBTFUL, both)
        return RateMeaning("minimize", DOUBTFUL, second, both)
    if second in _SHORT or not _TAKES.isdisjoint(before):
        return RateMeaning("minimize", SURE, second, f"a time in {second}")
    if per or (noun.endswith("s") and len(noun) > 3 and not noun.endswith("ss")):
        return _speed(before, second, per, DOUBTFUL, both)
    return RateMeaning("minimize", LIKELY, second, f"a time in {second}")
