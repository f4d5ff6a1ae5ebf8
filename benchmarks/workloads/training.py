"""One training, as a rank of it runs it: the configuration applied, steps timed."""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # optimizers and DDP import it when first used: over a second in each run
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from benchmarks.workloads.models import WORKLOADS, Batches, Samples, Workload

__all__ = ["RANKS", "train"]

RANKS = {"single": 1, "ddp": 2, "fsdp": 2}
WARM_UP = 2
"""Steps that are not counted; the last of them says how many fit into the window."""
LEAST_STEPS, MOST_STEPS = 3, 300


def train(job: dict[str, Any], rank: int, folder: Path) -> dict[str, float]:
    """Train for about ``window_s`` and return what was measured, as rank 0 saw it.

    ``folder`` is where ranks meet. Raises whatever torch raises for what it cannot do.
    """
    context, config = job["context"], job["config"]
    ranks = RANKS[config["parallelism"]]
    torch.set_num_threads(config["threads"])
    torch.backends.mkldnn.set_flags(config["onednn"])
    torch.manual_seed(0)
    if ranks > 1:
        store = distributed.FileStore(str(folder / "store"), ranks)
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    make_model, make_data = WORKLOADS[context["model"]]
    samples = make_data(context["data_size"], torch.Generator().manual_seed(0))
    micro = config["batch_size"] // (config["accumulation_steps"] * ranks)
    batches = _loaded(Samples(samples), Batches(micro, rank), config["loader_workers"])
    model = _prepared(make_model(context["width"], context["data_size"]), config)
    step = _step(model, _optimizer(model, config["optimizer"]), batches, config)
    took = _timed(step, WARM_UP)[-1]
    if time.monotonic() + LEAST_STEPS * took > job["deadline"]:
        raise TimeoutError("it would take too long")
    steps = min(max(math.ceil(job["window_s"] / took), LEAST_STEPS), MOST_STEPS)
    if ranks > 1:  # ranks that make different numbers of steps wait for each other forever
        agreed = torch.tensor([steps])
        distributed.broadcast(agreed, 0)
        steps = int(agreed)
    step_s = statistics.median(_timed(step, steps))
    return {"samples_per_s": micro * config["accumulation_steps"] * ranks / step_s, "steps": steps}


def _timed(step: Callable[[], None], steps: int) -> list[float]:
    """Seconds of each step."""
    seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return seconds


def _loaded(samples: Samples, batches: Batches, workers: int) -> Iterator[Any]:
    """Batches of a loader. Its workers start here, before an operation has started threads."""
    how: dict[str, Any] = {"prefetch_factor": 1, "multiprocessing_context": "fork"}
    loader = DataLoader(
        samples, batch_sampler=batches, num_workers=workers, **(how if workers else {})
    )
    return iter(loader)


def _prepared(model: Workload, config: dict[str, Any]) -> nn.Module:
    model.checkpointing = config["checkpointing"]
    if config["precision"] == "bfloat16":
        model = model.to(torch.bfloat16)
    if config["channels_last"]:
        model = model.to(memory_format=torch.channels_last)
    if config["parallelism"] == "ddp":
        return DistributedDataParallel(model)
    if config["parallelism"] == "fsdp":
        mesh = distributed.device_mesh.init_device_mesh("cpu", (RANKS["fsdp"],))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def _optimizer(model: nn.Module, implementation: str) -> torch.optim.Optimizer:
    how = {"for_loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    return torch.optim.AdamW(model.parameters(), lr=1e-4, **how[implementation])


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[Any],
    config: dict[str, Any],
) -> Callable[[], None]:
    """One step of the optimizer: gradients of one or more batches added up."""
    accumulated = config["accumulation_steps"]
    mixed = config["precision"] == "bfloat16_mixed"

    def step() -> None:
        for turn in range(accumulated):
            inputs, answer = next(batches)
            with (
                _synchronized(model, turn == accumulated - 1),
                torch.autocast("cpu", torch.bfloat16, enabled=mixed),
            ):
                outputs = model(*(_converted(one, config) for one in inputs))
                loss = nn.functional.cross_entropy(outputs.float(), answer.flatten())
                (loss / accumulated).backward()
        optimizer.step()
        optimizer.zero_grad()
        if not math.isfinite(loss.item()):
            raise ArithmeticError("the loss is not a finite number")

    return step


def _converted(values: torch.Tensor, config: dict[str, Any]) -> torch.Tensor:
    if values.is_floating_point() and config["precision"] == "bfloat16":
        values = values.to(torch.bfloat16)
    if values.dim() == 4 and config["channels_last"]:
        values = values.contiguous(memory_format=torch.channels_last)
    return values


def _synchronized(model: nn.Module, last: bool) -> AbstractContextManager[Any]:
    """Gradients travel between ranks with the last batch of a step only."""
    if isinstance(model, DistributedDataParallel):
        return nullcontext() if last else model.no_sync()
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(last)
    return nullcontext()
