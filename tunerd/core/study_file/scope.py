"""Names and expressions of a study: who owns a name, and what it stands for so far."""

from collections.abc import Iterable, Mapping

from tunerd.core.expressions import (
    RESERVED,
    Expression,
    ExpressionError,
    ExpressionType,
    NameType,
    names_in,
    parse,
    parse_expression,
)
from tunerd.core.study_file.messages import Path
from tunerd.core.study_file.read import ParseResult

__all__ = ["NameScope", "reads"]

UNKNOWN = NameType(ExpressionType("any"))
SECTIONS = ("context", "parameters", "derived")
"""Where names come from."""


class NameScope:
    """What expressions may read, filled in section by section."""

    def __init__(self, reading: ParseResult) -> None:
        self.reading = reading
        self.mistake = reading.mistake
        self.names: dict[str, NameType] = {}
        """What each name stands for; wrong definitions are ``UNKNOWN``."""
        self.owner: dict[str, str] = {}
        """The section that each name belongs to."""
        self.incomplete = not reading.left_out.isdisjoint((section,) for section in SECTIONS)

    def claim(self, section: str, entries: Iterable[str]) -> None:
        """Take the names of a section; what was left out for a mistake is known, but not how."""
        left_out = sorted(
            str(path[1]) for path in self.reading.left_out if _entry_of(section, path)
        )
        for name in [*entries, *left_out]:
            if name in self.owner:
                message = f"{name!r} is the name of an entry in [{self.owner[name]}] too"
                self.mistake((section, name), message)
            elif name in RESERVED:
                self.mistake((section, name), f"{name!r} is a word of expressions")
            elif not self.speakable((section, name)):
                continue
            self.owner.setdefault(name, section)
            self.names.setdefault(name, UNKNOWN)

    def speakable(self, path: Path) -> bool:
        """Whether a name can stand in an expression."""
        name = str(path[-1])
        good = name.isidentifier() and name.isascii() and len(name) <= 64
        if not good:
            message = "a name has ASCII letters, digits and underscores, at most 64, no digit first"
            self.mistake(path, message)
        return good

    def owns(self, section: str, name: str) -> bool:
        """Whether a name is that section's; a collision belongs to whoever came first."""
        return self.owner.get(name) == section

    def parsed(
        self, path: Path, text: str, names: Mapping[str, NameType] | None = None
    ) -> Expression | None:
        """Parse an expression over all names, or over ``names``; a mistake is noted."""
        try:
            return parse_expression(text, self.names if names is None else names)
        except ExpressionError as error:
            # The name may be in a section that could not be read at all.
            if not (self.incomplete and error.message.startswith("unknown name")):
                self.mistake(path, str(error))
            return None

    def is_truth(self, path: Path, expression: Expression) -> bool:
        """Whether an expression is one truth value; anything else is a mistake."""
        kind = expression.kind
        if not kind.truth:
            self.mistake(path, f"must be true or false, this is {kind}; compare it with something")
        elif kind.repeat:
            self.mistake(path, f"these are {kind}, one for each position; use all(...) or any(...)")
        return kind.truth and not kind.repeat


def _entry_of(section: str, path: Path) -> bool:
    return len(path) == 2 and path[0] == section


def reads(text: str) -> frozenset[str]:
    """Return the names in an expression; none if it is wrong, which is said elsewhere."""
    try:
        return names_in(parse(text))
    except ExpressionError:
        return frozenset()
