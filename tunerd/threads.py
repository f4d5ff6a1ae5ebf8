"""How many threads numerical libraries may use. Import this before them: they look only once.

Threads that spin while they wait for work make a small computation hundreds of times slower as
soon as one other process is busy: trainings with OpenMP, searches with numpy, Gaussian processes.
And one thread adds up in one order on any machine. What is set already stays.
"""

import os

__all__ = ["THREADS"]

THREADS = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}

for _name, _value in THREADS.items():
    os.environ.setdefault(_name, _value)
