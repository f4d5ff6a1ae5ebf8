"""Drift: noticing that what was learned no longer holds, saying where and since when, and when it
is over.

- :mod:`.shiryaev_roberts`: evidence that adds up from job to job
- :mod:`.calibration`: how much of it is an alarm
- :mod:`.context_monitor`, :mod:`.residuals`: a job against what its configuration and context were
  before
- :mod:`.rank_shift`, :mod:`.failure_rate`, :mod:`.covariate_shift`: what else may change than speed
- :mod:`.monitor`: all of it for one study
"""

from tunerd.core.drift.alarms import Drift, DriftUpdate
from tunerd.core.drift.context_monitor import ContextMonitor
from tunerd.core.drift.monitor import DriftMonitor

__all__ = ["ContextMonitor", "Drift", "DriftMonitor", "DriftUpdate"]
