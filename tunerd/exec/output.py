"""Reading along: lines of a program's output, and the patterns that look at them.

Output is whatever a program writes: binary, one endless line, a line made to keep a pattern busy.
So a line is looked at up to a bound, and a pattern that takes too long is set aside and told.
"""

import re
import signal
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

__all__ = ["BytesPattern", "LineSplitter", "SampledValues", "within"]

LONGEST_LINE = 1 << 14
"""Bytes of a line that are looked at."""
_LINE_END = re.compile(rb"[\r\n]")  # a progress bar returns and never feeds
MATCHES_FOR_S = 2.0
"""For what came at once, at most 64 KiB."""
MOST_NUMBERS = 1 << 18


class SampledValues:
    """Values of one metric; of very many, evenly spaced ones."""

    def __init__(self) -> None:
        self._values = array("d")
        self.last = 0.0
        self._every, self._seen = 1, 0

    def add(self, value: float) -> None:
        """Take one more."""
        if self._seen % self._every == 0:
            self._values.append(value)
            if len(self._values) >= MOST_NUMBERS:
                self._values = self._values[::2]
                self._every *= 2
        self.last = value
        self._seen += 1

    def __len__(self) -> int:
        return self._seen

    @property
    def values(self) -> list[float]:
        """In the order in which they came."""
        return self._values.tolist()


class BytesPattern:
    """A regular expression over bytes, and what is done with each match."""

    def __init__(self, text: str, found: Callable[[re.Match[bytes]], None]) -> None:
        """Raises re.error."""
        self.text = text
        self.found = found
        self.set_aside = False
        self._search = re.compile(text.encode(), re.ASCII).finditer

    def look_at(self, line: bytes) -> None:
        """Hand over every match."""
        for match in self._search(line):
            self.found(match)


class LineSplitter:
    """A listener that cuts output into lines and shows each to the patterns."""

    def __init__(self, patterns: Sequence[BytesPattern]) -> None:
        self._patterns = list(patterns)
        self._rest = b""
        self._skipping = False

    def hear(self, data: bytes) -> None:
        """Some bytes of output."""
        if not self._patterns:
            return
        *lines, rest = _LINE_END.split(data)
        if lines:
            lines[0] = b"" if self._skipping else self._rest + lines[0]
            self._rest, self._skipping = b"", False
            self._look_at(lines)
        if not self._skipping:
            self._rest += rest
            if len(self._rest) > LONGEST_LINE:
                self._look_at([self._rest])
                self._rest, self._skipping = b"", True

    def end(self) -> None:
        """What came last had no newline."""
        if self._patterns and not self._skipping:
            self._look_at([self._rest])
        self._rest = b""

    def _look_at(self, lines: Sequence[bytes]) -> None:
        for pattern in tuple(self._patterns):
            try:
                with within(MATCHES_FOR_S):
                    for line in lines:
                        if line:
                            pattern.look_at(line[:LONGEST_LINE])
            except TimeoutError:
                pattern.set_aside = True
                self._patterns.remove(pattern)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the main thread once so much time has passed; ``re`` looks for signals
    while it searches."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
