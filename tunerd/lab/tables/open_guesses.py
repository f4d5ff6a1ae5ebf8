"""What ``tunerd init`` guessed in a study file, and nobody has confirmed yet."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["A_GUESS", "OpenGuess", "open_guesses"]

A_GUESS = "A GUESS, look at it"
"""What marks an entry that nobody has confirmed: who finds it right takes these words out."""
MOST_SHOWN = 60
"""Characters of an entry that are told."""


@dataclass(frozen=True)
class OpenGuess:
    """An entry of a study file that is still marked as a guess."""

    line: int
    """From 1."""
    entry: str
    """``goal = "maximize"``; cut where it is long."""
    why: str


def open_guesses(text: str) -> list[OpenGuess]:
    """The guesses of ``tunerd init`` in a study file that nobody has confirmed yet."""
    lines = text.splitlines()
    return [_open_guess(lines, place) for place, line in enumerate(lines) if A_GUESS in line]


def _open_guess(lines: Sequence[str], place: int) -> OpenGuess:
    before, _, why = lines[place].partition(A_GUESS)
    entry = before.rpartition("#")[0].strip()
    for line in [] if entry else lines[place + 1 :]:  # the comment stands above its entry
        if not line.startswith("#"):
            entry = line.strip()
            break
        why += f" {line.lstrip('# ')}"
    return OpenGuess(place + 1, _shortened(entry), why.strip(" :,"))


def _shortened(text: str) -> str:
    """A text on which something is left out where it is long."""
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
