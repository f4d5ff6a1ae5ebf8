"""Text of strangers, made fit to be shown."""

__all__ = ["printable"]


def printable(text: str) -> str:
    """What comes from jobs may hold anything, also what a terminal or a log would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
