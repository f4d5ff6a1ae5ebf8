"""How many threads numerical libraries may use. Import this before them: they look only once.

Threads that spin while they wait for work make a small computation hundreds of times slower as
soon as one other process is busy: trainings with OpenMP, searches with numpy, Gaussian processes.
And one thread adds up in one order on any machine. What is set already stays.
"""

import os

__all__ = ["SET_HERE", "THREADS"]

THREADS = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}

SET_HERE = tuple(name for name in THREADS if name not in os.environ)
"""What was not set before: programs that are started for somebody else go without."""

for _name in SET_HERE:
    os.environ[_name] = THREADS[_name]
