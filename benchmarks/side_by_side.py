"""Work in processes of its own, side by side, on one thread each.

Spawned, not forked: LightGBM hangs in a forked child. A task whose process dies (native libraries
abort) is told apart from the others by running what was left one by one.
"""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

__all__ = ["side_by_side"]

T = TypeVar("T")
R = TypeVar("R")

ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Two processes whose libraries take two threads each on two cores stall each other."""


def side_by_side(
    work: Callable[[T], R], tasks: Sequence[T], processes: int
) -> Iterator[tuple[T, R | None]]:
    """Each task with its result, as they come; None for one whose process died.

    ``work`` and tasks travel to the processes, so that they must be importable.
    """
    os.environ |= ALONE  # before the processes start: libraries read it when they are imported
    left = list(tasks)
    with _pool(processes) as pool:
        waiting = {pool.submit(work, task): task for task in left}
        try:
            for done in as_completed(waiting):
                result = done.result()
                left.remove(waiting[done])
                yield waiting[done], result
        except BrokenProcessPool:
            pass
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    for task in left:
        with _pool(1) as pool:
            try:
                yield task, pool.submit(work, task).result()
            except BrokenProcessPool:
                yield task, None


def _pool(processes: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes, context, _end_with, (os.getpid(),))


def _end_with(parent: int) -> None:
    """In a process that works: end when the one that asks is gone, killed or not."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
