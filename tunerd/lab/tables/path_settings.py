"""Settings in names of files and folders: ``wrk_t4_c100.txt``, ``lr=0.1,depth=4/metrics.json``."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from tunerd.core.observation import Scalar
from tunerd.lab.tables.vocabulary import word_set

__all__ = ["path_settings"]

_PART = re.compile(r"[^_\-,;+ /\\]+(?:(?<=\de)-\d+)?")
_KEYED = re.compile(r"([A-Za-z][\w.]*)=(.+)")
_GLUED = re.compile(r"([A-Za-z]+)(\d+(?:\.\d+)?(?:e-?\d+)?[kKmMgG]?)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?[kKmMgG]?")
_COUNTERS = word_set("""
    run trial rep repeat test job file part result results seed iter id exp experiment out log
    version output bench sample try attempt v r no task index
""")
"""Words before the number of a run, which sets nothing."""
_SUFFIX = re.compile(r"\.(?:json|jsonl|ndjson|txt|log|out|csv|gz|zst)$", re.IGNORECASE)


def path_settings(paths: Sequence[PurePath]) -> list[Mapping[str, Scalar]]:
    """What the paths of the files of a folder say of each run.

    A setting stands in every path and differs between some. Words in the same place of each path
    are one too, if these are few.
    """
    read = [_read(path) for path in paths]
    common = set.intersection(*map(set, read)) if read else set()
    kept = {name for name in common if _is_set(name, [settings[name] for settings in read])}
    return [{name: value for name, value in settings.items() if name in kept} for settings in read]


def _read(path: PurePath) -> dict[str, Scalar]:
    """The parts of a path by name: before the sign, the number or a word without one."""
    text = path.as_posix()
    while (bare := _SUFFIX.sub("", text)) != text:
        text = bare
    settings: dict[str, Scalar] = {}
    word = ""
    for place, part in enumerate(_PART.findall(text), 1):
        if keyed := _KEYED.fullmatch(part):
            settings[keyed[1]] = keyed[2]
        elif glued := _GLUED.fullmatch(part):
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
