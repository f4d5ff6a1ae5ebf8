"""How the text of a table is encoded, found out from its bytes.

Nothing in a text that is not Unicode says what it is. Each encoding that is in use reads it. The
right one makes words of it: common characters of one script, small letters behind a capital.

Headers are short, and detectors are made for prose: of the 22 texts in the tests charset-normalizer
3.5 reads 14 as they are, chardet 7.7 reads 16. These texts were written beside this module.
"""

import codecs
import re
from collections.abc import Callable, Iterable

__all__ = ["UTF8", "WESTERN", "Encoding", "encoding_of", "guessed_encoding"]

Encoding = tuple[str, str]
"""Name of the encoding, and what to do about bytes that are none of it."""

UTF8: Encoding = ("utf-8-sig", "surrogateescape")
"""What is not UTF-8 spoils its line and no other."""
WESTERN: Encoding = ("cp1252", "surrogateescape")
"""Latin-1 as Windows and its spreadsheets write it."""
LOOKED_AT = 16 << 20
"""Bytes by which an encoding is found. ASCII costs next to nothing to look through."""
MOST_LINES = 2_000
"""Lines beyond ASCII by which it is told whether a text is UTF-8."""
MOST_OF_LINE = 4_096
MOST_READ = 20_000
"""Bytes of such lines that are read in each encoding."""
PLAUSIBLE = 0.8
"""Share of the letters from which on they make words of an encoding's script."""

_MARKS = (
    (codecs.BOM_UTF8, UTF8),
    (codecs.BOM_UTF32_LE, ("utf-32", "replace")),
    (codecs.BOM_UTF32_BE, ("utf-32", "replace")),
    (codecs.BOM_UTF16_LE, ("utf-16", "replace")),
    (codecs.BOM_UTF16_BE, ("utf-16", "replace")),
)
_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}")


def encoding_of(blocks: Iterable[bytes]) -> Encoding:
    """The encoding of a text, from its beginning in blocks.

    A byte order mark says it; so do zeros in every second byte. Lines beyond ASCII are UTF-8 where
    most of them can be, else of the encoding that makes words of them, and where none does UTF-8 or
    Western European.
    """
    looked, lines, rest = 0, list[bytes](), b""
    for place, block in enumerate(blocks):
        if place == 0 and (encoding := _by_mark(block)) is not None:
            return encoding
        looked += len(block)
        if not block.isascii() or not rest.isascii():
            *whole, rest = (rest[:MOST_READ] + block).split(b"\n")
            lines += (line for line in whole if not line.isascii())
        else:
            rest = block[block.rfind(b"\n") + 1 :]
        if looked >= LOOKED_AT or len(lines) >= MOST_LINES:
            break
    if not rest.isascii():
        lines.append(rest)
    return _of_lines([line[:MOST_READ] for line in lines[:MOST_LINES]])


def guessed_encoding(encoding: Encoding) -> str:
    """What an encoding that nothing says for certain is called, for people; "" for Unicode."""
    return _SHOWN.get(encoding[0], "")


def _by_mark(start: bytes) -> Encoding | None:
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            return encoding
    head = start[:4_096]
    odd, even = head[1::2], head[0::2]
    if len(head) >= 8 and odd.count(0) > 0.2 * len(odd) and not even.count(0):
        return ("utf-16-le", "replace")
    if len(head) >= 8 and even.count(0) > 0.2 * len(even) and not odd.count(0):
        return ("utf-16-be", "replace")
    return None


def _of_lines(lines: list[bytes]) -> Encoding:
    """The encoding of lines beyond ASCII."""
    good = sum(_decoded(line, "utf-8") is not None for line in lines)
    if not lines or 2 * good > len(lines):
        return UTF8
    text = b"\n".join(line for line in lines if len(line) <= MOST_OF_LINE) or lines[0]
    text = text if len(text) <= MOST_READ else text[: text.rfind(b"\n", 0, MOST_READ) + 1]
    read = {name: _decoded(text, name) for name in _SCORES}
    scores = {name: _SCORES[name](letters) for name, letters in read.items() if letters is not None}
    best = max(scores, key=lambda name: scores[name], default="")
    if best in _LATIN and _SEQUENCE.search(text):
        return UTF8  # a mixture: letters as "Ã©" are in no language
    if best and scores[best] >= PLAUSIBLE:
        return (best, "surrogateescape")
    return UTF8 if good or "cp1252" not in scores else WESTERN


def _decoded(text: bytes, encoding: str) -> str | None:
    try:  # the end may have been cut within a letter
        return codecs.getincrementaldecoder(encoding)().decode(text, len(text) < MOST_READ)
    except UnicodeDecodeError:
        return None


# -- how well letters make words ---------------------------------------------------------------

_IN_WORDS = re.compile(r"[^\W\d_]+")
_SIGNS = "µ°²³±×·§€£½¼»«–—‘’“”…©®™‰Ω∑"
"""Signs that stand in tables of any language."""


def _of_script(is_common: Callable[[str], bool]) -> Callable[[str], float]:
    """A score by the share of characters beyond ASCII that are common in a script."""

    def score(text: str) -> float:
        beyond = [letter for letter in text if not letter.isascii()]
        return sum(map(is_common, beyond)) / max(1, len(beyond))

    return score


def _common_in(encoding: str, last: int) -> Callable[[str], bool]:
    """Whether a character is common: tables of an encoding put such characters first."""

    def is_common(letter: str) -> bool:
        try:
            first = letter.encode(encoding)
        except UnicodeEncodeError:
            return False
        return len(first) == 2 and first[0] <= last

    return is_common


def _is_kana(letter: str) -> bool:
    return "\u3040" <= letter <= "\u30ff"


def _japanese(last: int, encoding: str) -> Callable[[str], float]:
    """A score for Japanese: its own letters stand between what is Chinese too."""
    common = _of_script(_common_in(encoding, last))

    def score(text: str) -> float:
        return common(text) + (0.02 if any(map(_is_kana, text)) else -0.15)

    return score


def _korean(text: str) -> float:
    """A score for Korean. By chance a few Chinese words could be Korean too, but no words that
    stand in tables."""
    many = sum(map(_is_syllable, text)) >= FEWEST_SYLLABLES
    sure = many or _KOREAN_WORDS.search(text) is not None
    return _of_script(_is_syllable)(text) + (0.01 if sure else -0.3)


def _is_syllable(letter: str) -> bool:
    return "\uac00" <= letter <= "\ud7a3" and _decoded(letter.encode("cp949"), "euc_kr") == letter


FEWEST_SYLLABLES = 6
_KOREAN_WORDS = re.compile(
    "시간|처리|지연|속도|스레드|노드|모드|모델|배치|크기|결과|상태|이름|작업|횟수|메모리|성능|학습|실행|설정|빠름"
)


def _chinese(encoding: str, last: int) -> Callable[[str], float]:
    common = _of_script(_common_in(encoding, last))

    def score(text: str) -> float:
        # Kana are in these tables too, where a text is Japanese.
        return common(text) - (0.2 if any(map(_is_kana, text)) else 0.0)

    return score


def _of_letters(first: str, last: str, frequent: str, bonus: float) -> Callable[[str], float]:
    """A score for a script with capitals: whole words of it, in which no capital follows a small
    letter, and which have its frequent letters."""

    def score(text: str) -> float:
        beyond = sum(not letter.isascii() and letter not in _SIGNS for letter in text)
        good = 0.0
        for word in _IN_WORDS.findall(text):
            if all(first <= letter <= last for letter in word):
                case = 1.0 if word[1:].islower() else 0.97 if word[1:].isupper() else 0.0
                good += len(word) * (case if len(word) > 1 else 0.5)
        often = sum(letter in frequent for letter in text.lower())
        return (good + 0.3 * often) / max(1, beyond) + bonus

    return score


def _latin(bonus: float, rare: str = "") -> Callable[[str], float]:
    """A score for Latin letters: those beyond ASCII stand among others, and signs between none.
    Several that are ``rare`` in its languages are of another."""

    def score(text: str) -> float:
        beyond = [letter for letter in text if not letter.isascii()]
        inside = len(re.findall(r"(?<=[^\W\d_])[^\w\s!-~](?=[^\W\d_])", text.replace("’", "'")))
        good = float(sum(letter.isalpha() or letter in _SIGNS for letter in beyond))
        for word in _IN_WORDS.findall(text):
            foreign = sum(not letter.isascii() for letter in word)
            mixed = not (word.isupper() or word[1:].islower() or word.isascii())
            if (len(word) > 2 and 2 * foreign > len(word) + 1) or mixed:
                good -= foreign
        strange = sum(letter in rare for letter in text)
        good -= 0.1 * strange if strange > 1 else 0.0
        return (good - inside) / max(1, len(beyond)) + bonus

    return score


_CYRILLIC = "оеаинтсрвлк"
_SCORES: dict[str, Callable[[str], float]] = {
    "gb18030": _chinese("gb2312", 0xD7),
    "cp932": _japanese(0x97, "cp932"),
    "big5": _chinese("big5", 0xC6),
    "cp949": _korean,
    "euc_jp": _japanese(0xCF, "euc_jp"),
    "cp1251": _of_letters("Ѐ", "ӿ", _CYRILLIC, 0.03),
    "koi8-r": _of_letters("Ѐ", "ӿ", _CYRILLIC, 0.02),
    "cp866": _of_letters("Ѐ", "ӿ", _CYRILLIC, 0.01),
    "cp1253": _of_letters("Ͱ", "Ͽ", "αοιετσνηυρ", 0.0),
    "cp1252": _latin(0.04, "þýðìÿ"),
    "cp1250": _latin(0.03, "ţđ"),
    "cp1254": _latin(0.02),
}
"""By encoding, the likelier first where a text fits several."""
_LATIN = ("cp1252", "cp1250", "cp1254")
_SHOWN = {
    "gb18030": "GB18030 (Chinese)",
    "cp932": "Shift-JIS (Japanese)",
    "big5": "Big5 (Chinese)",
    "cp949": "Windows-949 (Korean)",
    "euc_jp": "EUC-JP (Japanese)",
    "cp1251": "Windows-1251 (Cyrillic)",
    "koi8-r": "KOI8-R (Cyrillic)",
    "cp866": "code page 866 (Cyrillic)",
    "cp1253": "Windows-1253 (Greek)",
    "cp1252": "Windows-1252 (Latin-1)",
    "cp1250": "Windows-1250 (Central European)",
    "cp1254": "Windows-1254 (Turkish)",
}
