"""What three lines cost a training: the time that each step takes longer, and a choice from a file.

Steps are those of a loop that does nothing else, of transformers' callback and of Lightning's, with
the job's threads at work beside them. A choice is made by a process that has just started and by
one that lives on, from a file of ten thousand contexts, saved or as the topic has it. Other work on
the machine shows in the slowest of many, so these are held in processor time.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.kit import Bars, arguments, percentile
from tunerd.client import RecommendationFile, Recommendations, context_key, job
from tunerd.trainers.job import TrainingJob

STEP_US = 20.0
CHOICE_MS = 1.0
CANDIDATES = 8
STRETCH = 1_000


def main() -> int:
    """Run it."""
    options = arguments(__doc__).parse_args()
    bars = Bars("steps")
    with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
        _steps(bars, options, Path(folder))
        _choices(bars, options, Path(folder))
    return bars.end(options)


def _steps(bars: Bars, options: argparse.Namespace, folder: Path) -> None:
    stretches = 20 if options.quick else 300
    (folder / "stream").mkdir()
    (folder / "stream" / "tunerd.jobs.jsonl").touch()
    ways: dict[str, Callable[[TrainingJob], Callable[[], object]]] = {
        "job.step()": lambda job: job.step,
        "job.step(tokens=n)": lambda job: lambda: job.step(tokens=4096),
        "job.step(tokens=n, samples=m)": lambda job: lambda: job.step(tokens=4096, samples=32),
        "transformers' callback": _huggingface,
        "Lightning's callback": _lightning,
    }
    for name, way in ways.items():
        with job("bench", {"gpu": "none"}, config={}, stream=folder / "stream") as running:
            try:
                step = way(running)
            except ModuleNotFoundError as error:
                print(f"  {name:58} NOT MEASURED: no {error.name}")
                running.end(status="cancelled")
                continue
            each = []
            for _ in range(stretches):
                began = time.perf_counter()
                for _ in range(STRETCH):
                    step()
                each.append((time.perf_counter() - began) / STRETCH * 1e6)
        typical = percentile(each, 0.5)
        bars.hold(f"{name}: median", typical, typical < STEP_US, f"< {STEP_US:g}", "µs")
        bars.say(f"{name}: 99th percentile of {STRETCH} steps' means", percentile(each, 0.99), "µs")


def _huggingface(running: TrainingJob) -> Callable[[], object]:
    from tunerd.trainers.huggingface import HuggingFaceCallback

    callback = HuggingFaceCallback(running, tokens_per_sample=128)
    arguments = SimpleNamespace(train_batch_size=8, gradient_accumulation_steps=1, world_size=1)
    state = SimpleNamespace(num_input_tokens_seen=0)
    control = SimpleNamespace(should_evaluate=False, should_save=False)
    callback.on_train_begin(arguments, state, control)

    def step() -> None:
        callback.on_step_begin(arguments, state, control)
        callback.on_step_end(arguments, state, control)

    return step


def _lightning(running: TrainingJob) -> Callable[[], object]:
    from tunerd.trainers.lightning import LightningCallback

    callback = LightningCallback(running, lambda batch: {"tokens": len(batch)})
    trainer = SimpleNamespace(train_dataloader=SimpleNamespace(batch_size=8))
    callback.on_train_start(trainer, None)
    batch = [0] * 8
    return lambda: callback.on_train_batch_end(trainer, None, None, batch, 0)


# -- choices ----------------------------------------------------------------------------------

FRESH = """
import sys, time
from tunerd.client import RecommendationFile
began = time.perf_counter()
choice = RecommendationFile(sys.argv[1]).choose(sys.argv[2], "4711")
print(time.perf_counter() - began)
assert choice is not None
"""


def _choices(bars: Bars, options: argparse.Namespace, folder: Path) -> None:
    contexts = 500 if options.quick else 10_000
    keys = [_key(number) for number in range(contexts)]
    topic = folder / "stream" / "tunerd.recommendations.jsonl"
    with topic.open("w") as file:
        for key in keys:
            file.write(json.dumps({"key": key, "value": _message(key)}) + "\n")
    followed = Recommendations.follow_jsonl(folder / "stream")
    began = time.perf_counter()
    followed.catch_up()
    bars.say(f"the topic's file of {contexts:,} contexts read", time.perf_counter() - began, "s")
    saved = folder / "saved.jsonl"
    followed.save(saved)
    bars.say("size of the file", saved.stat().st_size / 2**20, "MiB")

    fresh = [_fresh(saved, keys[index]) for index in _spread(contexts, 5 if options.quick else 20)]
    typical = percentile(fresh, 0.5)
    bars.hold("a new process, saved file: median", typical, typical < CHOICE_MS, "< 1", "ms")
    for name, path in (("saved file", saved), ("the topic's file", topic)):
        kept = RecommendationFile(path)
        kept.choose(keys[0], "1")
        each = [_timed(kept, keys[index]) for index in _spread(contexts, min(contexts, 2_000))]
        typical = percentile([wall for wall, _ in each], 0.5)
        late = percentile([processor for _, processor in each], 0.99)
        where = f"a process that lives on, {name}"
        bars.hold(f"{where}: median", typical, typical < CHOICE_MS, "< 1", "ms")
        bars.hold(f"{where}: p99, processor time", late, late < CHOICE_MS, "< 1", "ms")


def _spread(contexts: int, count: int) -> list[int]:
    return [(index * 7919) % contexts for index in range(count)]


def _timed(file: RecommendationFile, key: str) -> tuple[float, float]:
    began, used = time.perf_counter(), time.thread_time()
    choice = file.choose(key, "4711")
    taken = (time.perf_counter() - began) * 1e3, (time.thread_time() - used) * 1e3
    assert choice is not None
    return taken


def _fresh(path: Path, key: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(path), key], capture_output=True, text=True, check=True
    )
    return float(done.stdout) * 1e3


def _key(number: int) -> str:
    features = {"gpu": "category", "n_gpus": "int", "model_params": "float"}
    context = {"gpu": f"H{number % 7}00 SXM", "n_gpus": number, "model_params": 7e9 + number}
    return context_key("llm-pretrain", features, context)


def _message(key: str) -> dict[str, Any]:
    """As large as they are: eight candidates of ten parameters."""
    config = {f"parameter_{index}": index for index in range(10)}
    candidates = [
        {
            "candidate_id": f"c-{rank:020x}",
            "rank": rank,
            "kind": "exploit",
            "share": 0.1 / CANDIDATES,
            "wanted": 0,
            "config": config,
            "predicted": {"median": 430.1, "low": 418.0, "high": 441.9, "band": 0.8},
            "feasible": 0.98,
            "gain": {"median": 0.042, "low": 0.011},
        }
        for rank in range(1, CANDIDATES + 1)
    ]
    return {
        "schema": "tunerd.recommendation/1",
        "recommendation_id": "r-51f2f8a3d2c95c4c0a7e",
        "revision": 7,
        "state": "active",
        "study": "llm-pretrain",
        "context_key": key,
        "valid_until": "2999-01-01T00:00:00Z",
        "candidates": candidates,
        "incumbent": {"config": config, "median": 412.9, "low": 409.0, "high": 416.2, "jobs": 12},
        "baseline": config,
        "reason": "Predicted 4.2 % faster than the incumbent of 12 jobs.",
        "round": None,
    }


if __name__ == "__main__":
    sys.exit(main())
