"""What load generators and small benchmarks print at the end of a run: wrk, hey, ab, k6, YCSB,
redis-benchmark, iperf3, STREAM, cassandra-stress, HammerDB, perf stat, dd, stress-ng, h2load,
db_bench of RocksDB, IOR, memtier_benchmark, kafka-producer-perf-test, LAMMPS, IOzone, netperf,
vegeta, GROMACS, clickhouse-benchmark.

A program is a table of patterns. A group of a pattern is a column. Its name says how the text is
read: what ends in ``_s`` is a duration in seconds, what has ``bytes`` a size, anything else a
number. ``X`` in a name is what the group ``X`` has: ``latency_pX_s``. ``command`` is taken apart.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from tunerd.events.quantities import read_count, read_duration, read_size
from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    Goal,
    TableHead,
    names,
)
from tunerd.lab.tables.exports.command_lines import (
    MAX_LINE,
    arguments_of,
    ended,
    is_trouble,
    number_or_text,
    options_of,
    without_secrets,
)

__all__ = ["EXPORTERS"]

_OPTION = "option."
MAX_RESULT = 400
"""Characters of a line in which results are looked for."""
MOST_KNOWN = 1_000
"""Lines of which it is kept what was found in them."""
_N = r"(?<![\d.,])\d(?:[\d.,]{0,30}\d)?(?:[eE][+-]?\d{1,3})?(?!\d|[eE][+-]?\d)"


@dataclass(frozen=True)
class SummaryFormat:
    """What a program prints."""

    program: str
    mark: str
    """What tells its output from others', somewhere in the first lines."""
    begins: str
    """Lines with which the output of a run begins."""
    lines: tuple[str, ...]
    objective: str
    """The column, or what its name ends in."""
    settings: str = ""
    """Columns of the output that say how the run was configured."""
    work: str = ""
    """Those that say what was done."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """What one-letter options with a value are called. Without any, each may have a value."""
    sums: str = ""
    """Columns that several lines of a run have a part of."""
    goal: Goal = "maximize"


_FORMATS = (
    SummaryFormat(
        "wrk", r"^Running .{1,40} test @ ", r"Running .{1,40} test @ ",
        (r"Running .{1,40} test @ (?P<url>\S+)",
         r"(?P<threads>\d+) threads? and (?P<connections>\d+) connections?",
         rf"Latency\s+(?P<latency_mean_s>{_N}[a-z]+)\s+(?P<latency_std_s>{_N}[a-z]+)"
         rf"\s+(?P<latency_max_s>{_N}[a-z]+)\s",
         rf"(?P<X>\d+(?:\.\d+)?)%\s+(?P<latency_pX_s>{_N}[a-z]+)$",
         rf"(?P<requests>\d+) requests in \S+, (?P<read_bytes>{_N}\w+) read",
         r"Non-2xx or 3xx responses: (?P<errors>\d+)",
         rf"Requests/sec:\s+(?P<requests_per_s>{_N})",
         rf"Transfer/sec:\s+(?P<read_bytes_per_s>{_N}\w+)"),
        "requests_per_s", "threads connections", "url",
        {"t": "threads", "c": "connections", "d": "duration", "R": "rate", "s": "script"}),
    SummaryFormat(
        "hey", r"^Summary:[ \t]*\r?\n[ \t]+Total:[ \t]+[\d.]{1,20} secs", r"Summary:",
        (rf"Slowest:\s+(?P<latency_max_s>{_N}) secs",
         rf"Fastest:\s+(?P<latency_min_s>{_N}) secs",
         rf"Average:\s+(?P<latency_mean_s>{_N}) secs",
         rf"Requests/sec:\s+(?P<requests_per_s>{_N})",
         rf"(?P<X>\d+)%+ in (?P<latency_pX_s>{_N}) secs",
         r"^\[\d{3}\]\s+(?P<requests>\d{1,15}) responses",
         r"^\[[^2]\d\d\]\s+(?P<errors>\d{1,15}) responses",
         r"^\[(?P<requests>(?P<errors>\d{1,15}))\]\s+[^\s\d|]"),
        "requests_per_s", sums="requests errors",
        flags={"c": "concurrency", "n": "requests", "z": "duration", "q": "rate", "m": "method"}),
    SummaryFormat(
        "ab", r"^This is ApacheBench|^Concurrency Level:[ \t]+\d",
        r"This is Apache|Server Software:",
        (r"Document Path:\s+(?P<path>\S+)",
         r"Document Length:\s+(?P<document_length>\d+)",
         r"Concurrency Level:\s+(?P<concurrency>\d+)",
         r"Complete requests:\s+(?P<requests>\d+)",
         r"Failed requests:\s+(?P<failed_requests>\d+)",
         r"Non-2xx responses:\s+(?P<errors>\d+)",
         rf"Requests per second:\s+(?P<requests_per_s>{_N})",
         rf"Time per request:\s+(?P<latency_mean_ms>{_N}) \[ms\] \(mean\)",
         rf"Transfer rate:\s+(?P<received_kib_per_s>{_N})",
         r"(?P<X>\d+)%\s+(?P<latency_pX_ms>\d+)(?:\s|$)"),
        "requests_per_s", "concurrency", "path document_length",
        {"c": "concurrency", "n": "requests", "t": "duration"}),
    SummaryFormat(
        "k6", r"^[ \t]*(?:http_reqs|iterations)\.{3,}:", r"execution: \w+",
        (r"script: (?P<script>\S+)",
         rf"http_reqs\.+: (?P<requests>\d+)\s+(?P<requests_per_s>{_N})/s",
         rf"iterations\.+: \d+\s+(?P<iterations_per_s>{_N})/s",
         r"http_req_failed\.+: \S+\s+(?:✓ )?(?P<errors>\d+)",
         r"http_req_duration\.+: avg=(?P<latency_mean_s>\S+)\s+min=\S+\s+med=(?P<latency_p50_s>\S+)"
         r"\s+max=(?P<latency_max_s>\S+)\s+p\(90\)=(?P<latency_p90_s>\S+)"
         r"\s+p\(95\)=(?P<latency_p95_s>\S+)",
         r"vus_max\.+: (?P<vus>\d+)"),
        "requests_per_s", "vus", "script",
        {"u": "vus", "d": "duration", "i": "iterations", "e": "env"}),
    SummaryFormat(
        "ycsb", r"^\[OVERALL\], ", r"\[OVERALL\], RunTime",
        (rf"\[OVERALL\], RunTime\(ms\), (?P<run_time_ms>{_N})",
         rf"\[OVERALL\], Throughput\(ops/sec\), (?P<operations_per_s>{_N})",
         rf"\[(?P<X>[A-Z-]+)\], AverageLatency\(us\), (?P<X_latency_mean_us>{_N})",
         rf"\[(?P<X>[A-Z-]+)\], 99thPercentileLatency\(us\), (?P<X_latency_p99_us>{_N})"),
        "operations_per_s"),
    SummaryFormat(
        "redis-benchmark", r"^[ \t]+\d{1,20} parallel clients", r"====== .+ ======",
        (r"====== (?P<test>.+?) ======",
         r"(?P<requests>\d+) requests completed in ",
         r"(?P<clients>\d+) parallel clients",
         r"(?P<payload_size>\d+) bytes payload",
         r"threads: (?P<threads>\d+)",
         rf"(?:throughput summary: )?(?P<requests_per_s>{_N}) requests per second",
         rf"^(?P<latency_mean_ms>{_N})\s+(?P<latency_min_ms>{_N})\s+(?P<latency_p50_ms>{_N})"
         rf"\s+(?P<latency_p95_ms>{_N})\s+(?P<latency_p99_ms>{_N})\s+(?P<latency_max_ms>{_N})$"),
        "requests_per_s", "clients threads", "test payload_size",
        {"c": "clients", "n": "requests", "d": "payload_size", "P": "pipeline", "t": "tests",
         "a": "password"}),
    SummaryFormat(
        "iperf3", r"^\[ ID\](?:\[Role\])? Interval .*(?:Bitrate|Bandwidth)", r"Connecting to host ",
        (rf"^\[(?:SUM|[ \d]+)\](?!\[).*\s(?P<bits_per_s>{_N} [KMGT]?)bits/sec\s+"
         r"(?P<retransmits>\d+)\s+sender",
         rf"^\[(?:SUM|[ \d]+)\](?!\[).*\s(?P<bits_per_s>{_N} [KMGT]?)bits/sec.*\s"
         r"(?:sender|receiver)",
         rf"^\[(?:SUM|[ \d]+)\]\[(?P<X>[TR]X)-[CS]\].*\s(?P<X_bits_per_s>{_N} [KMGT]?)bits/sec"
         r".*\s(?:sender|receiver)"),
        "bits_per_s",
        flags={"P": "parallel", "w": "window", "t": "duration", "l": "length", "M": "mss",
               "C": "congestion", "c": "host", "p": "port", "b": "bitrate", "i": "interval"}),
    SummaryFormat(
        "stream", r"^STREAM version ", r"STREAM version ",
        (r"Array size = (?P<array_size>\d+) \(elements\)",
         r"Number of Threads counted = (?P<threads>\d+)",
         r"This system uses (?P<bytes_per_element>\d+) bytes per array element",
         rf"^(?P<X>Copy|Scale|Add|Triad):\s+(?P<X_mb_per_s>{_N})\s"),
        "triad_mb_per_s", "threads", "array_size bytes_per_element"),
    SummaryFormat(
        "cassandra-stress", r"^Op rate +: ", r"Running with \d+ threads|Results:",
        (r"Running with (?P<threads>\d+) threads",
         rf"^Op rate\s+: (?P<operations_per_s>{_N}) op/s",
         rf"^Latency (?P<X>mean|median|max)\s+: (?P<latency_X_ms>{_N}) ms",
         rf"^Latency (?P<X>[\d.]+)th percentile\s+: (?P<latency_pX_ms>{_N}) ms",
         rf"^Total errors\s+: (?P<errors>{_N})"),
        "operations_per_s", "threads"),
    SummaryFormat(
        "hammerdb", r"TEST RESULT : System achieved", r"Vuser 1:\d+ Active Virtual Users",
        (r"Vuser 1:(?P<virtual_users>\d+) Active Virtual Users",
         r"System achieved (?P<nopm>\d+) NOPM from (?P<tpm>\d+) "),
        "nopm", "virtual_users"),
    SummaryFormat(
        "perf stat", r"^ Performance counter stats for ", r"Performance counter stats for ",
        (r"Performance counter stats for '(?P<command>[^']+)'",
         rf"^(?P<X_count>{_N})\s+(?P<X>[a-z][\w./-]*)(?::\w+)?\s*(?:#.*)?$",
         rf"^(?P<time_s>{_N})\s+(?:\+-\s+{_N}\s+)?seconds time elapsed",
         rf"^(?P<X_time_s>{_N}) seconds (?P<X>user|sys)"),
        "time_s", goal="minimize"),
    SummaryFormat(
        "dd", r"^\d+ bytes (?:\(.{1,60}\) )?(?:copied|transferred)", r"\d+\+\d+ records in",
        (rf"^(?P<copied_bytes>\d{{1,20}}) bytes (?:\(.+\) )?copied, (?P<time_s>{_N}) s\w*, "
         rf"(?P<copied_bytes_per_s>{_N} ?[kKMGT]?i?B)/s",
         rf"^(?P<copied_bytes>\d{{1,20}}) bytes transferred in (?P<time_s>{_N}) secs "
         r"\((?P<copied_bytes_per_s>\d+) bytes/sec\)"),
        "copied_bytes_per_s"),
    SummaryFormat(
        "h2load", r"^finished in [\d.]+\w+, [\d.]+ req/s", r"starting benchmark",
        (r"spawning thread #\d+: (?P<clients>\d+) total client",
         r"Application protocol: (?P<protocol>\S+)",
         rf"finished in \S+, (?P<requests_per_s>{_N}) req/s, (?P<received_bytes_per_s>{_N}\w+)/s",
         r"requests: (?P<requests>\d+) total, .* (?P<errors>\d+) failed,",
         r"time for request:\s+(?P<latency_min_s>\S+)\s+(?P<latency_max_s>\S+)"
         r"\s+(?P<latency_mean_s>\S+)"),
        "requests_per_s", "clients", "protocol",
        {"c": "clients", "n": "requests", "t": "threads", "m": "streams", "D": "duration"}),
    SummaryFormat(
        "db_bench", r"^\w+[ \t]+:[ \t]+[\d.]+ micros/op ", r"\w+\s+:\s+[\d.]+ micros/op|Keys:\s+\d",
        (r"Keys:\s+(?P<key_size>\d+) bytes", r"Values:\s+(?P<value_size>\d+) bytes",
         r"Entries:\s+(?P<entries>\d+)", r"Compression: (?P<compression>\w+)",
         rf"^(?P<test>\w+)\s+:\s+(?P<latency_mean_us>{_N}) micros/op",
         rf"micros/op (?P<operations_per_s>{_N}) ops/sec",
         rf"; +(?P<mb_per_s>{_N}) MB/s"),
        "operations_per_s", "compression", "test key_size value_size entries"),
    SummaryFormat(
        "ior", r"^IOR-\d", r"IOR-\d",
        (r"Command line\s+: (?P<command>.+)", r"api\s+: (?P<api>\S+)",
         r"access\s+: (?P<access>\S+)", r"nodes\s+: (?P<nodes>\d+)", r"tasks\s+: (?P<tasks>\d+)",
         r"xfersize\s+: (?P<transfer_bytes>.+)", r"blocksize\s+: (?P<block_bytes>.+)",
         rf"Max (?P<X>Write|Read):\s+(?P<X_mib_per_s>{_N}) MiB/sec"),
        "write_mib_per_s", "tasks transfer_bytes block_bytes", "api access nodes"),
    SummaryFormat(
        "memtier_benchmark", r"^\d+[ \t]+Threads[ \t]*\r?\n\d+[ \t]+Connections per thread",
        r"\d+\s+Threads$",
        (r"^(?P<threads>\d+)\s+Threads$", r"^(?P<connections>\d+)\s+Connections per thread",
         rf"^Totals\s+(?P<operations_per_s>{_N})\s"),
        "operations_per_s", "threads connections"),
    SummaryFormat(
        "kafka-producer-perf-test", r"^\d+ records sent, [\d.]+ records/sec .* 99\.9th",
        r"\d+ records sent, .* 99\.9th|\S*kafka-producer-perf-test",
        (rf"records sent, (?P<records_per_s>{_N}) records/sec .* 99\.9th",
         rf", (?P<latency_mean_ms>{_N}) ms avg latency, (?P<latency_max_ms>{_N}) ms max latency",
         rf"(?P<latency_p99_ms>{_N}) ms 99th"),
        "records_per_s"),
    SummaryFormat(
        "lammps", r"^LAMMPS \(", r"LAMMPS \(",
        (r"on (?P<processes>\d+) procs for \d+ steps with (?P<atoms>\d+) atoms",
         rf"Performance: .*?(?P<steps_per_s>{_N}) timesteps/s",
         r"with \d+ MPI tasks x (?P<threads>\d+) OpenMP threads"),
        "steps_per_s", "processes threads", "atoms"),
    SummaryFormat(
        "iozone", r"^\s*Iozone: Performance Test of File I/O", r"\d+ +\d+ +\d+ +\d+(?: +\d+)*$",
        (r"Command line used: (?P<command>.+)",
         r"^(?P<file_kib>\d+) +(?P<record_kib>\d+) +(?P<write_kib_per_s>\d+)"
         r" +(?P<rewrite_kib_per_s>\d+)(?: +(?P<read_kib_per_s>\d+) +(?P<reread_kib_per_s>\d+)"
         r"(?: +(?P<random_read_kib_per_s>\d+) +(?P<random_write_kib_per_s>\d+))?)?"),
        "write_kib_per_s", "record_kib", "file_kib"),
    SummaryFormat(
        "netperf", r"^(?:MIGRATED )?(?:TCP|UDP|SCTP)\S* [^\n]{1,40} TEST from ",
        r"(?:MIGRATED )?(?:TCP|UDP|SCTP)\S* .{1,40} TEST from ",
        (r"^(?:MIGRATED )?(?P<test>\S+ .{1,40}) TEST from ",
         r"^(?P<receive_socket_bytes>\d+) +(?P<send_socket_bytes>\d+) +(?P<message_bytes>\d+)"
         rf" +(?P<time_s>\d+\.\d+) +(?P<throughput_mbit_per_s>{_N})$",
         r"^(?P<send_socket_bytes>\d+) +(?P<receive_socket_bytes>\d+) +(?P<request_bytes>\d+)"
         rf" +(?P<response_bytes>\d+) +(?P<time_s>\d+\.\d+) +(?P<transactions_per_s>{_N})$",
         rf"^(?P<send_socket_bytes>\d+) +(?P<message_bytes>\d+) +(?P<time_s>\d+\.\d+) +\d+ +\d+"
         rf" +(?P<throughput_mbit_per_s>{_N})$"),
        "_per_s", "receive_socket_bytes send_socket_bytes message_bytes",
        "test request_bytes response_bytes",
        {"H": "host", "p": "port", "l": "duration", "t": "test", "m": "message_bytes",
         "s": "send_socket_bytes", "S": "receive_socket_bytes", "T": "cpus", "D": "interval"}),
    SummaryFormat(
        "vegeta", r"^Requests +\[total, rate", r"Requests +\[total, rate",
        (rf"^Requests +\[.+\] +(?P<requests>\d+), (?P<rate>{_N})",
         r"^Latencies +\[min, mean, 50, 90, 95, 99, max\] +(?P<latency_min_s>\S+),"
         r" (?P<latency_mean_s>\S+), (?P<latency_p50_s>\S+), (?P<latency_p90_s>\S+),"
         r" (?P<latency_p95_s>\S+), (?P<latency_p99_s>\S+), (?P<latency_max_s>\S+)",
         rf"^Success +\[ratio\] +(?P<success_pct>{_N})%"),
        "latency_mean_s", "", "rate", goal="minimize"),
    SummaryFormat(
        "gromacs", r"^Command line:[ \t]*\r?\n[ \t]+\S*gmx\S* mdrun", r"Command line:",
        (r"^(?P<command>\S*gmx\S* mdrun .+)",
         r"Using (?P<ranks>\d+) MPI (?:process|thread)", r"Using (?P<threads>\d+) OpenMP thread",
         rf"^Time: +{_N} +(?P<wall_time_s>{_N}) ",
         rf"^Performance: +(?P<ns_per_day>{_N}) +(?P<hour_per_ns>{_N})$"),
        "ns_per_day", "ranks threads"),
    SummaryFormat(
        "clickhouse-benchmark", r"^\S+:\d+, queries: \d+, QPS: ", r"Loaded \d+ queries",
        (rf"QPS: (?P<queries_per_s>{_N}), RPS: (?P<rows_per_s>{_N}), MiB/s: {_N}",
         rf"^(?P<X>[\d.]+)%\s+(?P<latency_pX_s>{_N}) sec"),
        "queries_per_s",
        flags={"c": "concurrency", "i": "iterations", "t": "time", "d": "delay", "h": "host"}),
    SummaryFormat(
        "stress-ng", r"^stress-ng: \w+:[ \t]+\[\d+\] stressor[ \t]+bogo ops",
        r"stress-ng: \w+:\s+\[\d+\] dispatching hogs",
        (r"(?:hogs:|,) (?P<X_hogs>\d+) (?P<X>[a-z][\w-]*)",
         rf"\] (?P<X>[a-z][\w-]*)\s+\d+\s+(?:{_N}\s+){{3}}(?P<X_bogo_ops_per_s>{_N})\s+{_N}"),
        "bogo_ops_per_s", "cpu_hogs vm_hogs io_hogs hdd_hogs"),
)  # fmt: skip
_PLACEHOLDER = "X"
_OF_MEASURING = frozenset(
    names("""
    duration requests iterations host port url output interval count time timeout metrics
    metrics_brief program s status
    """)
)
"""Options that say how long and where it was measured."""


def _log(form: SummaryFormat, lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record a run, with the options of the command above it."""
    finder = _finder(form)
    begins = re.compile(form.begins)
    texts: dict[str, str] = {}
    given: dict[str, Any] = {}
    known: set[str] = set()
    trouble = False
    for line in lines:
        text = line.strip()[:MAX_LINE]
        options = _options(form, text)
        begin = begins.match(text)
        start = begin[0][:8] if begin else ""
        if known and (options is not None or (begin and (start in known or _done(form, texts)))):
            yield _ended(form, given | _read_all(texts), trouble)
            texts, trouble = {}, False
            known.clear()
        if options is not None:
            given = {f"{_OPTION}{name}": number_or_text(value) for name, value in options.items()}
            texts = {}
        known |= {start} if begin else set()
        trouble |= is_trouble(text) and not begin
        for new in finder(text[:MAX_RESULT]):
            sums = [name for name in form.sums.split() if name in new]
            texts |= new | {n: str(int(new[n]) + int(texts.get(n, 0))) for n in sums}
    if known:
        yield _ended(form, given | _read_all(texts), trouble)


def _finder(form: SummaryFormat) -> Callable[[str], Sequence[dict[str, str]]]:
    """What the patterns find in a line; runs repeat lines that say how they were configured."""
    patterns = [re.compile(pattern) for pattern in form.lines]

    @lru_cache(maxsize=MOST_KNOWN)
    def found(text: str) -> Sequence[dict[str, str]]:
        return [_measured(match) for pattern in patterns for match in pattern.finditer(text)]

    return found


def _done(form: SummaryFormat, texts: Mapping[str, str]) -> bool:
    """Whether the result of a run is known."""
    return any(name.endswith(form.objective) for name in texts)


def _options(form: SummaryFormat, text: str) -> dict[str, str] | None:
    """What a command of the program sets; ``None`` where a line is no such command."""
    if form.flags:
        options = options_of(text, form.program, dict(form.flags))
        return options and {name: value for name, value in options.items() if name != "test"}
    if form.program not in text and not text.startswith("Command line: "):
        return None
    bare = re.sub(r"^(?:Command line:|\S*[+$#>])\s+", "", text)
    given = arguments_of(bare)
    called = given.pop("program", "").rpartition("/")[2].removesuffix(".sh")
    words = {name for name in given if re.fullmatch(r"arg\d+", name)}
    if called != form.program and not text.startswith("Command line: "):
        return None
    return {name: value for name, value in given.items() if name not in words}


def _measured(match: re.Match[str]) -> dict[str, str]:
    """What a line says, by column, as it stands there."""
    groups = match.groupdict()
    what = groups.pop(_PLACEHOLDER, None) or ""
    shown = f"{float(what):g}".replace(".", "") if re.fullmatch(r"[\d.]+", what) else what.lower()
    return {
        re.sub(r"\W", "_", name.replace(_PLACEHOLDER, shown)): text
        for name, text in groups.items()
        if text is not None
    }


_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,])")
_POINT, _COMMA = re.compile(r"\d\.\d"), re.compile(r"\d,(?!\d{3}(?!\d))\d")
"""A decimal point, and a comma that stands between no thousands."""


def _read_all(texts: Mapping[str, str]) -> dict[str, Any]:
    """What the texts of a run say. 7,793 may be either, and other numbers of the run decide; where
    none does it stays a text, and the column as a whole decides."""
    point = any(map(_POINT.search, texts.values()))
    comma = any(map(_COMMA.search, texts.values()))
    read: dict[str, Any] = {}
    for name, text in texts.items():
        grouped = _GROUPED.match(text) is not None and not comma
        open_ = grouped and not point and text.count(",") == 1
        bare = text.replace(",", "") if grouped else text
        read[name] = without_secrets(text) if open_ else _read(name, bare)
    if command := read.pop("command", ""):
        read |= {f"{_OPTION}{n}": v for n, v in arguments_of(command).items()}
    return read


def _read(name: str, text: str) -> int | float | str:
    timed = name.endswith("_s") and not name.endswith("_per_s")
    read = read_duration if timed else read_size if "bytes" in name else read_count
    try:
        return read(text)
    except ValueError:
        return without_secrets(text)


def _ended(form: SummaryFormat, record: dict[str, Any], trouble: bool) -> dict[str, Any]:
    """The record of a run with how it ended: answers that were errors are no work that was done."""
    errors, requests = record.get("errors"), record.get("requests", 0)
    size, time = record.get("copied_bytes"), record.get("time_s")
    if isinstance(size, int) and isinstance(time, int | float) and time > 0:
        record["copied_bytes_per_s"] = size / time  # the speed that it shows is rounded
    both = [record.get(f"{way}_bits_per_s") for way in ("tx", "rx")]
    if all(isinstance(speed, int | float) for speed in both):  # iperf3 --bidir
        record["bits_per_s"] = sum(both)
    measured = [name for name in record if name.endswith(form.objective)]
    if isinstance(errors, int) and isinstance(requests, int) and 2 * errors > requests:
        record = {name: value for name, value in record.items() if name not in measured}
        measured, trouble = [], True
    return {"tool": form.program, **ended(record, measured, trouble)}


def _recognise(form: SummaryFormat, head: TableHead) -> DetectedExport | None:
    if not head.has("tool", "status") or set(head.values("tool")) != {form.program}:
        return None
    ends = [name for name in head.columns if name.endswith(form.objective)]
    objective = form.objective if form.objective in ends else next(iter(ends), None)
    if objective is None:
        return None
    hints = {"tool": ColumnHint("label", "what measured")}
    for column in head.columns:
        name = column.removeprefix(_OPTION)
        if column != name:
            aside = name in _OF_MEASURING or name in head.columns
            role = "ignored" if aside else INPUT
            why = "how it was measured" if aside else "an option of the run"
            hints[column] = ColumnHint(role, why, name)
        elif column in form.settings.split():
            hints[column] = ColumnHint(INPUT, "how the run was configured")
        elif column in form.work.split():
            hints[column] = ColumnHint("context", "what was done")
        elif any(column.endswith(end) for end in _MEASURED):
            hints[column] = ColumnHint("metric", f"measured by {form.program}")
    hints["status"] = ColumnHint("status", "whether the run ended with a result")
    hints[objective] = ColumnHint(
        "objective", f"measured by {form.program}", None, 0.7, form.goal,
        "it is a time" if form.goal == "minimize" else "the more is done in a second, the better",
    )  # fmt: skip
    marks = ("what it prints", objective)
    return DetectedExport(form.program, f"output of {form.program}", marks, hints)


_MEASURED = ("_s", "_ms", "_us", "_bytes", "_count", "requests", "errors", "retransmits", "tpm")


def _is_log(form: SummaryFormat, start: str) -> bool:
    return re.search(form.mark, start, re.MULTILINE) is not None


EXPORTERS = tuple(
    ExportFormat(
        form.program,
        partial(_recognise, form),
        log=partial(_log, form),
        is_log=partial(_is_log, form),
    )
    for form in _FORMATS
)
