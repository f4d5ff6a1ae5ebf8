"""Measures a table of its own: matrices multiplied on this machine, blocked in thousands of ways.

Contexts are few (the sizes of the matrices), configurations are thousands and the same in each, and
a handful of them come near the best: what tables of tuned kernels look like, and what the five
tables that the project is measured on do not. Nobody can have tuned anything on it beforehand. It
wants a C compiler that knows GCC's options, and a processor that knows x86's vectors (what it does
not know is told as a failure)::

    python -m benchmarks.kernels FOLDER
    python -m benchmarks.yardsticks --data FOLDER --out RESULTS
"""

import argparse
import csv
import ctypes
import itertools
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from tunerd.cli.progress import progress, track

__all__ = ["main"]

NAME = "matmul_kernels"
SOURCE = Path(__file__).with_suffix(".c")
SIZES = ((256, 256, 256), (32, 1024, 256), (1024, 32, 256), (96, 96, 1024))
"""(m, n, k) of each context."""
GRID: Mapping[str, Sequence[int]] = {
    "tile_m": (8, 16, 32, 64),
    "tile_n": (16, 32, 64, 128, 256),
    "tile_k": (16, 64, 256),
    "at_once": (1, 2, 4, 8),
    "order": (0, 1, 2),
    "pack": (0, 1),
    "vector_bits": (128, 256, 512),
}
CATEGORIES = ("order", "pack")
"""Parameters whose numbers stand for nothing that could be ordered."""
VECTORS = {128: (), 256: ("-mavx2", "-mfma"), 512: ("-mavx512f", "-mprefer-vector-width=512")}
"""What the compiler is told of vectors."""
SECONDS = 0.006
TURNS = 3
"""A configuration's speed is that of its best turn: other processes only ever slow it down."""

Configuration = Mapping[str, int]
Kernel = Callable[[int, int, int, float], float]
"""(m, n, k, seconds) → Gflop/s."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help=f"where {NAME}.csv and {NAME}.json go")
    parser.add_argument(
        "--configurations", type=int, metavar="N", help="a random sample of so many; all otherwise"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample and of the order")
    options = parser.parse_args(argv)
    compiler = shutil.which("cc")
    if compiler is None:
        print("no C compiler: install one, so that there is a 'cc'", file=sys.stderr)
        return 2
    chosen = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    random.Random(options.seed).shuffle(chosen)  # a machine that slows down hits all alike
    chosen = chosen[: options.configurations]
    widths, ran = vectors_here(), 0
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / f"{NAME}.csv"
    with path.open("w", newline="") as file, progress() as show:
        rows = csv.DictWriter(file, ["m", "n", "k", *GRID, "status", "gflops"])
        rows.writeheader()
        for one in track(chosen, "kernels", len(chosen), show):
            kernel = built(compiler, one) if one["vector_bits"] in widths else None
            rows.writerows(measured(kernel, one))
            file.flush()
            ran += kernel is not None
    described = options.folder / f"{NAME}.json"
    described.write_text(json.dumps({"name": NAME, "columns": columns()}, indent=1) + "\n")
    print(f"{path}: {ran:,} of {len(chosen):,} configurations ran in {len(SIZES)} contexts")
    return 0 if ran else 1


def built(compiler: str, configuration: Configuration) -> Kernel | None:
    """The kernel that this makes, None where it does not compile."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kernel.so"
        # No -ffast-math: a library linked with it rounds tiny numbers to 0 in the whole process.
        flags = ["-O3", "-shared", "-fPIC", *VECTORS[configuration["vector_bits"]]]
        defined = [f"-D{name.upper()}={value}" for name, value in configuration.items()]
        command = [compiler, *flags, *defined, str(SOURCE), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return None
        kernel = ctypes.CDLL(str(library)).measure
    kernel.argtypes = [ctypes.c_int] * 3 + [ctypes.c_double]
    kernel.restype = ctypes.c_double
    return cast(Kernel, kernel)


def measured(kernel: Kernel | None, configuration: Configuration) -> Iterator[dict[str, object]]:
    """A row for each context; without a kernel a failure in all of them."""
    for size in SIZES:
        row = {**dict(zip("mnk", size, strict=True)), **configuration}
        if kernel is None:
            yield {**row, "status": "failed", "gflops": ""}
        else:
            best = max(kernel(*size, SECONDS) for _ in range(TURNS))
            yield {**row, "status": "ok", "gflops": round(best, 4)}


def vectors_here() -> set[int]:
    """Widths of vectors that this processor has: another one's instruction ends the process."""
    cpu = Path("/proc/cpuinfo")
    known = set(cpu.read_text().split()) if cpu.exists() else set()
    wide = {256: {"avx2", "fma"}, 512: {"avx512f"}}
    return {128} | {bits for bits, needed in wide.items() if needed <= known}


def columns() -> list[dict[str, object]]:
    """The roles of the columns, as ``benchmarks.tables`` reads them."""
    told: list[dict[str, object]] = [
        {"name": name, "role": "context", "type": "int"} for name in "mnk"
    ]
    for name in GRID:
        kind = "category" if name in CATEGORIES else "int"
        told.append({"name": name, "role": "tunable", "type": kind})
    told.append({"name": "status", "role": "status", "type": "category"})
    goal = {"name": "gflops", "role": "objective", "type": "float", "direction": "max"}
    return [*told, {**goal, "unit": "Gflop/s"}]


if __name__ == "__main__":
    sys.exit(main())
