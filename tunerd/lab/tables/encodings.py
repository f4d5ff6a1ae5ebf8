"""How the text of a table is encoded, found out from its bytes."""

import codecs
import re
from collections.abc import Iterable

__all__ = ["UTF8", "WESTERN", "Encoding", "encoding_of"]

Encoding = tuple[str, str]
"""Name of the encoding, and what to do about bytes that are none of it."""

UTF8: Encoding = ("utf-8-sig", "surrogateescape")
"""What is not UTF-8 spoils its line and no other."""
WESTERN: Encoding = ("cp1252", "surrogateescape")
"""Latin-1 as Windows and its spreadsheets write it."""
LOOKED_AT = 16 << 20
"""Bytes by which an encoding is found. ASCII costs next to nothing to look through."""

_MARKS = (
    (codecs.BOM_UTF8, UTF8),
    (codecs.BOM_UTF32_LE, ("utf-32", "replace")),
    (codecs.BOM_UTF32_BE, ("utf-32", "replace")),
    (codecs.BOM_UTF16_LE, ("utf-16", "replace")),
    (codecs.BOM_UTF16_BE, ("utf-16", "replace")),
)
_SEQUENCE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
_FOREIGN = re.compile(rb"[\x80-\xff]")
_NOT_WESTERN = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")


def encoding_of(blocks: Iterable[bytes]) -> Encoding:
    """The encoding of a text, from its beginning in blocks.

    A byte order mark says it; so do zeros in every second byte. Bytes beyond ASCII are UTF-8 where
    any of them make a character of it, and else Western European, in Windows-1252.
    """
    looked, western, before = 0, False, b""
    for place, block in enumerate(blocks):
        if place == 0 and (encoding := _by_mark(block)) is not None:
            return encoding
        looked += len(block)
        if not block.isascii():
            if _SEQUENCE.search(before + block) or _NOT_WESTERN.search(block):
                return UTF8
            western = western or bool(_FOREIGN.search(block))
        before = block[-3:]  # a character may lie across two blocks
        if looked >= LOOKED_AT:
            break
    return WESTERN if western else UTF8


def _by_mark(start: bytes) -> Encoding | None:
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            return encoding
    head = start[:200]
    odd, even = head[1::2], head[0::2]
    if len(head) >= 8 and odd.count(0) > 0.8 * len(odd) and not even.count(0):
        return ("utf-16-le", "replace")
    if len(head) >= 8 and even.count(0) > 0.8 * len(even) and not odd.count(0):
        return ("utf-16-be", "replace")
    return None
