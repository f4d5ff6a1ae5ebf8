"""How far a command is, and how long it still takes: on standard error.

On a terminal there are bars, which are gone at the end. Elsewhere there is a plain line now and
then. Nothing is said of what takes less than :data:`QUIET_S`.
"""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

__all__ = ["Show", "left", "progress", "track"]

T = TypeVar("T")

Show = Callable[[str, float, float], None]
"""What is being done, how much of it is done, and of how much in all; 0 when nobody knows."""

QUIET_S = 10.0
"""Time without a line where there is no terminal."""
LEAST_S, LEAST_SHARE = 1.0, 0.01
"""Before that much has passed, what is left is anybody's guess."""


@contextmanager
def progress() -> "Iterator[Show]":
    """Give a function to call as often as there is news."""
    if not sys.stderr.isatty():
        yield _PlainProgress().show
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as Left

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), Left())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def show(what: str, done: float, total: float) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=None)
            bars.update(tasks[what], completed=done, total=total or None)

        yield show


def track(items: Iterable[T], what: str, total: int, show: Show) -> Iterator[T]:
    """The items one after the other, told as they are done."""
    show(what, 0, total)
    for done, item in enumerate(items, 1):
        yield item
        show(what, done, total)


class _PlainProgress:
    """A line now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: dict[str, float] = {}
        self._told_at = clock()

    def show(self, what: str, done: float, total: float) -> None:
        """Tell how far it is, where nothing was told for a while."""
        now = self._clock()
        began = self._began.setdefault(what, now)
        if now - self._told_at < QUIET_S:
            return
        self._told_at = now
        line = f"{what}: {done / total:.0%}" if total else what
        share = done / total if total else 0.0
        click.echo(f"{line}{left(now - began, share)}", err=True)


def left(seconds: float, share: float) -> str:
    """How long it still takes, after so many seconds for this share of it: ``, about 2 min
    left``. Nothing while nobody can tell."""
    if seconds < LEAST_S or not LEAST_SHARE <= share < 1.0:
        return ""
    rest = seconds * (1.0 - share) / share
    return f", about {_span(rest)} left"


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = seconds / 60
    return f"{math.ceil(minutes)} min" if minutes < 90 else f"{minutes / 60:.1f} h"
