"""Sweeps of serving benchmarks: vLLM's, SGLang's, TensorRT-LLM's, genai-perf and AIPerf."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tunerd.lab.tables.exports.base import (
    INPUT,
    ColumnHint,
    DetectedExport,
    ExportFormat,
    TableHead,
    names,
)
from tunerd.lab.tables.exports.command_lines import is_secret, number_or_text, options_of
from tunerd.lab.tables.exports.genai_perf import run_of

__all__ = ["EXPORTER"]

_STATISTIC = r"(?:mean|median|avg|average|std|min|max|p\d{1,3}(?:\.\d+)?)"
_LATENCY = r"(?:ttft|tpot|itl|tbt|e2el|e2e_latency|e2e|latency|inter_?token_latency|gen_tps)"
_MEASURED = re.compile(
    rf"{_STATISTIC}_{_LATENCY}(?:_ms|_s)?|{_LATENCY}_{_STATISTIC}(?:_ms|_s)?|ttft|tpot|itl|e2el"
    r"|(?:\w+_)?(?:throughput|goodput)(?:[_(/].*)?|(?:\w+_)?tokens_per_s(?:econd)?(?:_\w+)?"
    r"|duration|completed|failed|num_failed|errors?_count|successful_requests|concurrency"
    r"|max_concurrent_requests|max_output_tokens_per_s|accept_length|accept_rate|mean_accept_\w+"
    r"|total_(?:input|output)(?:_tokens|_text_tokens|_vision_tokens)?(?:_retokenized)?"
    r"|total_(?:num_)?tokens|(?:\w+_)?(?:power|energy|temperature|utili[sz]ation)(?:_\w+)?"
    r"|(?:\w+_)?(?:prefill|decode|total|overall)_(?:latency|throughput)(?:_\w+)?"
    r"|(?:total|avg|max|min|p\d\d)_?(?:sequence_)?latency(?:[_(].*)?|num_(?:error_)?samples"
    r"|inferences/second|(?:server|client|network\+server)_(?:send|recv|queue|compute_\w+|send/recv)"
    r"|p\d\d_latency|rtfx|server_info.*|kv_cache_usage\w*|gpu_(?:mem|memory)_(?:used|peak|mean)\w*",
    re.IGNORECASE,
)
_CLEAR = re.compile(
    rf"{_STATISTIC}_(?:ttft|tpot|itl|e2el|e2e_latency|intertoken_latency)(?:_ms|_s)?"
    r"|(?:request|output|input|total_token|total|token|seq|overall|system_output|system_total)"
    r"_(?:token_)?(?:throughput|goodput)(?:[_(/].*)?|median_decode_throughput|prefill_throughput"
    r"|system_(?:output|total)_throughput_tok_s|inferences/second|(?:server|client|network\+server)_\w+"
    r"(?:/\w+)?",
    re.IGNORECASE,
)
_OBJECTIVES = names("""
    output_throughput system_output_throughput_tok_s output_token_throughput
    total_token_throughput total_throughput token_throughput(token/sec) overall_throughput
    system_total_throughput_tok_s request_throughput request_throughput_req_s inferences/second
""")
_CONTEXT = frozenset(
    names("""
    model model_id model_name model_path isl osl input_len output_len input_length
    output_length random_input_len random_output_len random_range_ratio random_input
    random_output sharegpt_output_len avg_input_length avg_output_length avg_isl avg_osl
    request_rate burstiness dataset dataset_name dataset_path gpu gpu_name gpu_type hardware
    device max_input_length prefix_len input_tokens output_tokens
    prompt_len gen_len vocab_size task
""")
)
_TUNED = frozenset(
    names("""
    tp pp dp ep cp tp_size pp_size dp_size ep_size tensor_parallel_size
    pipeline_parallel_size data_parallel_size max_concurrency max_num_seqs
    max_num_batched_tokens max_batch_size max_num_tokens batch_size runtime_max_batch_size
    runtime_max_num_tokens block_size gpu_memory_utilization mem_fraction_static
    chunked_prefill_size enable_chunked_prefill enable_prefix_caching enforce_eager
    kv_cache_dtype quantization dtype attention_backend num_scheduler_steps
    speculative_num_steps kv_cache_percentage scheduling_policy schedule_policy
    num_speculative_tokens max_running_requests cuda_graph_max_bs
""")
)
_LABELS = frozenset(
    names("""
    date label tag tokenizer tokenizer_id endpoint endpoint_type result_filename run_name
    run_number version vllm_version server_version git_commit hostname base_url host port
    run_id engine_dir
""")
)
_IGNORED = frozenset(
    names("""
    num_prompts num_requests num_iterations num_warmups best_of input_lens output_lens ttfts
    itls errors generated_texts latencies start_times goodput_config
    max_concurrent_requests_list
""")
)


def _records(document: Any) -> Iterable[Mapping[str, Any]] | None:
    """TensorRT-LLM's report is one record in sections, genai-perf's one of measurements."""
    if (run := run_of(document)) is not None:
        return [run]
    known = isinstance(document, dict) and isinstance(document.get("performance"), dict)
    return (
        [document] if known and {"world_info", "request_info", "engine"} & set(document) else None
    )


def _recognise(head: TableHead) -> DetectedExport | None:
    leaves = {c: re.sub(r"[- ]", "_", c.rpartition(".")[2]) for c in head.columns}
    clear = [column for column, leaf in leaves.items() if _CLEAR.fullmatch(leaf)]
    latencies = [c for c in clear if re.search(r"ttft|tpot|itl|e2e|intertoken", c, re.IGNORECASE)]
    speeds = [column for column in clear if column not in latencies]
    served = set(leaves.values()) & (
        _CONTEXT | _TUNED | {"num_prompts", "completed", "backend", "Concurrency"}
    )
    if not (len(clear) >= 3 and served) and not (len(speeds) >= 2 and len(served) >= 2):
        return None
    hints = {column: _hint(column, leaf) for column, leaf in leaves.items()}
    hinted = {column: hint for column, hint in hints.items() if hint is not None}
    by_leaf = {leaf.lower(): column for column, leaf in reversed(leaves.items())}
    objective = next((by_leaf[name] for name in _OBJECTIVES if name in by_leaf), None)
    if objective is not None:
        hinted[objective] = ColumnHint(
            "objective", "what a server is tuned for", leaves[objective], 0.6, "maximize"
        )
    if "date" in leaves.values() and re.fullmatch(
        r"\d{8}-\d{6}", str(next(iter(head.values("date")), ""))
    ):
        hinted["date"] = ColumnHint("finished_at", "when the benchmark ended")
    return DetectedExport("serving", f"a sweep of {_maker(head)}", tuple(clear[:3]), hinted)


def _maker(head: TableHead) -> str:
    columns = set(head.columns)
    if "Inferences/Second" in columns:
        return "Triton's perf_analyzer"
    backends = {str(backend).lower() for backend in head.values("backend")[:50]}
    if any(column.startswith(("performance.", "world_info.")) for column in columns) or any(
        "(token/sec)" in column for column in columns
    ):
        return "TensorRT-LLM's benchmark"
    if any("sglang" in backend for backend in backends) or columns & {
        "mean_e2e_latency_ms", "random_range_ratio", "accept_length", "median_decode_throughput",
    }:  # fmt: skip
        return "SGLang's bench_serving"
    return "a serving benchmark such as vLLM's"


def _hint(column: str, leaf: str) -> ColumnHint | None:
    """What one column is, by the last part of its name."""
    name = leaf.lower()
    if name in _LABELS:
        return ColumnHint("label", "describes the run")
    if name in _IGNORED or name.startswith("num_prompts"):
        return ColumnHint("ignored", "is how long the benchmark ran, or a list of each request")
    if name in _CONTEXT:
        return ColumnHint("context", "what was served", leaf, 0.9)
    if name in _TUNED or column == "Concurrency":  # of Triton's perf_analyzer, which sets it
        return ColumnHint("parameter", "how it was served", leaf, 0.9)
    if _MEASURED.fullmatch(name) or column.startswith("performance."):
        return ColumnHint("metric", "measured by the benchmark", leaf)
    if name == "world_size":
        return ColumnHint("ignored", "follows from the parallel sizes")
    if name in ("backend", "n_gpus", "num_gpus", "gpus") or column.startswith(
        ("engine.", "world_info.", "request_info.")
    ):
        role = "metric" if "concurrent" in name else INPUT
        return ColumnHint(role, "what served", leaf)
    if column.startswith("option."):
        return ColumnHint(
            "ignored", "is an option of the benchmark that says nothing about the server"
        )
    return None


# -- what the benchmarks print -------------------------------------------------------------------

_RESULT = re.compile(r"=+ ?(?:Serving )?Benchmark Result ?=+")
_MEASUREMENT = re.compile(r"([A-Z][\w .%/-]*?(?: \([\w/ .]+\))?):\s+(\S+)")
_ARGUMENTS = re.compile(r"(\w+)=('[^']*'|\"[^\"]*\"|[^,()\[\]{}]+)")
_NAMES = {
    "successful_requests": "completed",
    "failed_requests": "failed",
    "benchmark_duration_s": "duration",
    "total_generated_tokens": "total_output_tokens",
    "request_throughput_req_s": "request_throughput",
    "request_goodput_req_s": "request_goodput",
    "output_token_throughput_tok_s": "output_throughput",
    "input_token_throughput_tok_s": "input_throughput",
    "total_token_throughput_tok_s": "total_token_throughput",
}
_PROGRAMS = (
    "vllm",
    "benchmark_serving.py",
    "bench_serving.py",
    "trtllm-serve",
    "python",
    "python3",
)


def _is_log(start: str) -> bool:
    return _RESULT.search(start) is not None


def _log(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """One record for each result that was printed, with what its command or arguments say.

    A server's options count until another server is started.
    """
    server: dict[str, Any] = {}
    record: dict[str, Any] = {}
    inside = False
    for line in lines:
        text = line.strip()
        if _RESULT.fullmatch(text):
            inside = True
        elif inside and re.fullmatch(r"=+", text):
            yield {**server, **record, "status": "succeeded"}
            record, inside = {}, False
        elif inside and (match := _MEASUREMENT.fullmatch(text)):
            name = re.sub(r"\W+", "_", match[1]).strip("_").lower()
            record[_NAMES.get(name, name)] = number_or_text(match[2])
        elif "Namespace(" in text:
            record |= _arguments(text.partition("Namespace(")[2])
        else:
            given = _options(text)
            if " serve " in f"{text} " and "bench" not in text and given:
                server = given
            else:
                record |= given
    if inside:
        yield {**server, **record, "status": "cancelled"}


def _arguments(text: str) -> dict[str, Any]:
    """What Python prints of parsed arguments."""
    pairs = _ARGUMENTS.findall(text[:65_536])
    arguments = {name: value.strip().strip("'\"") for name, value in pairs}
    return {
        f"option.{name}": number_or_text(value)
        for name, value in arguments.items()
        if value not in ("None", "") and not is_secret(name)
    }


def _options(text: str) -> dict[str, Any]:
    for program in _PROGRAMS:
        if (options := options_of(text, program, {"n": "n"})) is not None:
            options.pop("test", None)
            return {f"option.{name}": number_or_text(value) for name, value in options.items()}
    return {}


EXPORTER = ExportFormat("serving", _recognise, _records, log=_log, is_log=_is_log)
