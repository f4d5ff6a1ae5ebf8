"""Drift: noticing that what was learned no longer holds, saying where and since when, and when it
is over.

- :mod:`.rise`: evidence that adds up from job to job
- :mod:`.thresholds`: how much of it is an alarm
- :mod:`.here`, :mod:`.residuals`: a job against what its configuration and context were before
- :mod:`.order`, :mod:`.failures`, :mod:`.inputs`: what else may change than speed
- :mod:`.watch`: all of it for one study
"""

from tunerd.core.drift.found import Change, Drift
from tunerd.core.drift.here import Here
from tunerd.core.drift.watch import Watch

__all__ = ["Change", "Drift", "Here", "Watch"]
