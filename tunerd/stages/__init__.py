"""The stages: ingest, requests, tune, publish. Each does one bounded unit of work per ``step()``.

They share the store and nothing else; each may die between any two instructions, which costs a
repeat and never a loss. A test calls ``step()`` in its own process and needs no clock and no sleep.
"""

from tunerd.stages.base import Stage

__all__ = ["Stage"]
