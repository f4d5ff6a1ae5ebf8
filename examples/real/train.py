"""LightGBM learns which kind of file a block of bytes is from: a real training, on any machine.

The blocks are from the files of this Python's own packages: source, bytecode, machine code,
headers. A quarter of the files is held out. What it prints is what `tunerd exec` reads.

    python train.py blocks.npz --prepare                # once
    python train.py blocks.npz num_threads=2 max_bin=63
"""

import os
import sys
import sysconfig
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import lightgbm
import numpy as np

KINDS = (".py", ".pyc", ".so", ".h")
BLOCK = 1024
BLOCKS = 2_500
"""Of each kind."""
TREES = 20
REPEATS = 2
"""Trainings of one run; the fastest counts, which other work on the machine disturbs least."""


def prepare(target: Path) -> None:
    """Count bytes in blocks of files, and keep the counts."""
    drawn = np.random.default_rng(1)
    rows, labels, held_out = [], [], []
    for label, kind in enumerate(KINDS):
        files = sorted(Path(sysconfig.get_paths()["purelib"]).rglob(f"*{kind}"))
        drawn.shuffle(files)
        taken = 0
        for number, file in enumerate(files):
            data = np.fromfile(file, np.uint8)
            blocks = data[: len(data) // BLOCK * BLOCK].reshape(-1, BLOCK)
            for block in drawn.permutation(blocks)[:60]:
                rows.append(np.bincount(block // 4, minlength=64))
                labels.append(label)
                held_out.append(number % 4 == 0)
            taken += min(60, len(blocks))
            if taken >= BLOCKS:
                break
    x, y, out = np.array(rows, np.float32), np.array(labels), np.array(held_out)
    np.savez(target, x=x, y=y, out=out)


def train(source: Path, options: dict[str, str]) -> None:
    """Train on the one part, count mistakes on the other."""
    with np.load(source) as kept:
        x, y, out = kept["x"], kept["y"], kept["out"]
    fixed = {"objective": "multiclass", "num_class": len(KINDS), "verbose": -1, "seed": 1}
    for _ in range(REPEATS):
        begin = time.perf_counter()
        data = lightgbm.Dataset(x[~out], y[~out], params=fixed | options)
        model = lightgbm.train(fixed | options, data, TREES)
        print(f"trained in {time.perf_counter() - begin:.4f} s")
    wrong = float(np.mean(np.argmax(model.predict(x[out]), axis=1) != y[out]))
    print(f"{100 * wrong:.3f} % wrong")


if __name__ == "__main__":
    file = Path(sys.argv[1])
    if sys.argv[2:] == ["--prepare"]:
        prepare(file)
    else:
        train(file, dict(part.split("=", 1) for part in sys.argv[2:]))
