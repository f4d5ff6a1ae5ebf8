"""Settings in names of files and folders: ``wrk_t4_c100.txt``, ``lr=0.1,depth=4/metrics.json``."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import PurePath

from tunerd.core.observation import Scalar
from tunerd.lab.tables.vocabulary import word_set

__all__ = ["path_settings"]

FEWEST_PATHS = 4
"""Of so many paths one may be odd."""
_PART = re.compile(r"[^_\-,;+ /\\]+(?:(?<=\de)-\d+)?")
_KEYED = re.compile(r"([A-Za-z][\w.]*)=(.+)")
_GLUED = re.compile(r"([A-Za-z]+)(\d+(?:\.\d+)?(?:e-?\d+)?[kKmMgG]?)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?[kKmMgG]?")
_COUNTERS = word_set("""
    run trial rep repeat test job file part result results seed iter id exp experiment out log
    version output bench sample try attempt v r no task index
""")
"""Words before the number of a run, which sets nothing."""
_SUFFIX = re.compile(r"\.(?:json|jsonl|ndjson|txt|log|out|csv|tsv|gz|zst)$", re.IGNORECASE)


def path_settings(paths: Sequence[PurePath]) -> list[Mapping[str, Scalar] | None]:
    """What the paths of the files of a folder say of each run.

    A setting stands in every path and differs between some. Words in the same place of each path
    are one too, if these are few, as ``h100`` and ``a100`` are. ``None`` for the only path
    without the settings that all others have: ``baseline.json``.
    """
    read = [_read(path) for path in paths]
    odd = _odd(read)
    usual = [settings for place, settings in enumerate(read) if place != odd]
    everywhere = set.intersection(*map(set, usual)) if usual else set()
    read = [_read(path, everywhere) for path in paths]
    usual = [settings for place, settings in enumerate(read) if place != odd]
    common = set.intersection(*map(set, usual)) if usual else set()
    kept = {name for name in common if _is_set(name, [settings[name] for settings in usual])}
    return [
        None if place == odd and kept else {n: v for n, v in settings.items() if n in kept}
        for place, settings in enumerate(read)
    ]


def _odd(read: Sequence[Mapping[str, Scalar]]) -> int | None:
    """The only path without a setting that all others have."""
    held = Counter(name for settings in read for name in settings if not name.startswith("name_"))
    nearly = {name for name, many in held.items() if many == len(read) - 1}
    without = [place for place, settings in enumerate(read) if nearly - settings.keys()]
    return without[0] if len(without) == 1 and len(read) >= FEWEST_PATHS else None


def _read(path: PurePath, keys: Set[str] | None = None) -> dict[str, Scalar]:
    """The parts of a path by name: before the sign, the number or a word without one.

    Args:
        path: of a file.
        keys: the words before a number that name it. With others it is a word. None: all do.
    """
    text = path.as_posix()
    while (bare := _SUFFIX.sub("", text)) != text:
        text = bare
    if "=" not in text:
        text = re.sub(r"\.(?=[A-Za-z])", "_", text)  # bwa.threads8
    settings: dict[str, Scalar] = {}
    word = ""
    for place, part in enumerate(_PART.findall(text), 1):
        if keyed := _KEYED.fullmatch(part):
            settings[keyed[1]] = keyed[2]
        elif (glued := _GLUED.fullmatch(part)) and (keys is None or glued[1] in keys):
            settings[glued[1]] = glued[2]
        elif _NUMBER.fullmatch(part):
            settings |= {word: part} if word else {}
        else:
            settings[f"name_{place}"] = part
        word = part if part.isalpha() else ""
    return settings


def _is_set(name: str, values: Sequence[Scalar]) -> bool:
    distinct = len(set(values))
    if distinct < 2 or name.lower() in _COUNTERS:
        return False
    return not name.startswith("name_") or 2 * distinct <= len(values)
