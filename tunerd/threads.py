"""How many threads numerical libraries may use. Import this before them: they look only once.

Threads that spin while they wait for work make a small computation hundreds of times slower as
soon as one other process is busy: an OpenMP training of 0.02 s took 4.8 s, a search with numpy
3.3 s instead of 0.65 s, a Gaussian process 39 s instead of 0.8 s. And one thread adds up in one
order on any machine. What is set already stays.
"""

import os

__all__ = ["THREADS"]

THREADS = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}

for _name, _value in THREADS.items():
    os.environ.setdefault(_name, _value)
