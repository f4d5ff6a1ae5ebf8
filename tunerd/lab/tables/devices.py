"""Numbers that describe known accelerators: a ``[lookup]`` for a feature that names them.

From the makers' data sheets: dense bf16 (before Ampere fp16) TFLOP/s, memory in GiB as the device
reports it, and GB/s of the fastest link to a neighbour in one direction.
"""

import re

from tunerd.lab.tables.profile import ColumnProfile

__all__ = ["lookups"]

_KNOWN: dict[str, tuple[int, int, int]] = {
    "gb200": (2500, 172, 900),
    "b200": (2250, 167, 900),
    "b100": (1750, 180, 900),
    "h200": (989, 131, 450),
    "gh200": (989, 90, 450),
    "h100": (989, 80, 450),
    "h800": (989, 80, 200),
    "h20": (148, 96, 450),
    "a100": (312, 80, 300),
    "a800": (312, 80, 200),
    "a40": (150, 45, 56),
    "a10g": (70, 22, 32),
    "a10": (125, 22, 32),
    "a6000": (155, 47, 56),
    "l40s": (362, 45, 32),
    "l40": (181, 45, 32),
    "l4": (121, 22, 32),
    "v100": (125, 32, 150),
    "p100": (21, 16, 80),
    "t4": (65, 15, 16),
    "mi100": (185, 32, 138),
    "mi210": (181, 64, 150),
    "mi250x": (383, 128, 200),
    "mi250": (362, 128, 200),
    "mi300x": (1307, 192, 448),
    "mi300a": (981, 128, 384),
    "mi325x": (1307, 256, 448),
    "rtx3090": (71, 24, 56),
    "rtx4090": (165, 24, 32),
}

_ODD = r"[\x00-\x1f\x7f\"\\]"


def lookups(name: str, column: ColumnProfile) -> list[str]:
    """A commented ``[lookup]`` for a feature most of whose values are known accelerators."""
    texts = [value for value in column.counts if isinstance(value, str)]
    numbers_of = {text: numbers for text in texts if (numbers := _numbers(text)) is not None}
    if not numbers_of or 2 * len(numbers_of) < len(texts) or len(texts) > 60:
        return []
    lines = [
        "",
        f"# Numbers that describe a {name} help with one that is new. Check them; take the # away.",
        f"# [lookup.{name}]",
    ]
    for text, (tflops, memory, link) in numbers_of.items():
        key = text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else f'"{re.sub(_ODD, "?", text)}"'
        lines.append(f"# {key} = {{ tflops = {tflops}, memory_gib = {memory}, link_gbs = {link} }}")
    return lines


def _numbers(text: str) -> tuple[int, int, int] | None:
    plain = re.sub(r"[^a-z0-9]+", " ", text.lower())
    plain = re.sub(r"\brtx (?=\d)", "rtx", plain)
    for word in plain.split():
        if word in _KNOWN:
            tflops, memory, link = _KNOWN[word]
            # A100, V100 and others were sold with half of it too; the name then says so.
            gigabytes = re.search(r"\b(\d{2,3}) ?gi?b?\b", plain)
            return tflops, int(gigabytes[1]) if gigabytes else memory, link
    return None
