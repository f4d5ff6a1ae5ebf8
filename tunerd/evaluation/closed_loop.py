"""Closed loop on a table of measured jobs: who finds a good configuration in the fewest jobs?

Only configurations that the table holds exist. A job of one returns one of its measured rows, the
same for everyone who runs it for the k-th time; a failure is told as a failure. Everyone gets the
same random start, then is asked for a batch a round. An :class:`Optimizer` is tunerd itself, a
peer, or a yardstick such as random; it sees :class:`Problem` and what its jobs came to, no more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tunerd.core.observation import Observation, Scalar, Value
from tunerd.core.study import Study

__all__ = ["Optimizer", "Outcome", "Problem", "Run"]


@dataclass(frozen=True)
class Problem:
    """One context, and what is known beforehand."""

    study: Study
    context: Mapping[str, Scalar]
    """Values in the study's types (``Study.clean_context``)."""
    context_key: str
    configs: tuple[Mapping[str, Value], ...]
    """The distinct configurations that were measured here: the study's parameters, each with one
    of the values of its grid or None where the table has none. Nothing else may be tried."""
    history: tuple[Observation, ...] = ()
    """Jobs of other contexts that are known beforehand, oldest first, sequences 1, 2, …"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one job came to."""

    index: int
    """Which of ``Problem.configs`` it ran."""
    score: float | None
    """Oriented objective (``Study.score``: larger is better), None if the job has none or broke
    a guard."""
    ran: bool
    """Whether the configuration ran: False for a failure and for a broken guard."""
    job: Observation
    """The job as the daemon would have heard of it; its sequence follows those before."""


class Run(Protocol):
    """One optimizer at work on one problem."""

    def ask(self, n: int) -> Sequence[int]:
        """Say which configurations to run next, n indices into ``Problem.configs``.

        The same one twice, or one tried before, is allowed and costs a job. The loop never asks
        for more than there are configurations that were not tried, and ends when all were.
        """

    def tell(self, jobs: Sequence[Outcome]) -> None:
        """Learn what jobs came to: the start that everyone gets (not called if that is empty),
        later the batch that was asked for, in this order."""


class Optimizer(Protocol):
    """Who takes part."""

    @property
    def name(self) -> str:
        """How results call it."""

    def begin(self, problem: Problem, seed: int) -> Run:
        """Start on a problem; what can be learned from its history is learned here. The same
        seed must lead to the same run."""
