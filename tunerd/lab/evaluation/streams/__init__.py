"""A table of measured jobs turned into a stream in time order, with changes that are known.

What a detector of drift is told apart by, and what a month of recommendations does good or harm in:
jobs arrive as on a cluster, run what their users would run, or what a policy under test says, and
come out as the table says, times noise, times what has changed. The truth is beside every job.

- :mod:`.changes`: what may change, and the truth about it
- :mod:`.workload`: who runs what, and when
- :mod:`.stream`: jobs in time order
"""

from tunerd.lab.evaluation.streams.changes import CHANGES, ChangeTruth
from tunerd.lab.evaluation.streams.stream import DriftStream, StreamJob, make_stream
from tunerd.lab.evaluation.streams.workload import WorkloadOptions

__all__ = [
    "CHANGES",
    "ChangeTruth",
    "DriftStream",
    "StreamJob",
    "WorkloadOptions",
    "make_stream",
]
