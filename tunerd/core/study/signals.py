"""Signals by name and labels, and which one a study's context feature comes from."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tunerd.core.study.context_key import value_text

__all__ = ["SignalQuery", "parse_duration", "parse_signal", "signal_name"]

_QUERY = re.compile(r"\s*([A-Za-z_:][A-Za-z0-9_:.]*)\s*(?:\{(.*)\})?\s*", re.DOTALL)
_LABEL = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?:\$([A-Za-z_]\w*)|\"([^\"]*)\"|([^\s,\"$}]+))\s*"
)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True, slots=True)
class SignalQuery:
    """``rps{service=$service}``: the signal that belongs to a context."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()
    """Label and text, in the order of names."""
    features: tuple[tuple[str, str], ...] = ()
    """Label and the context feature that its text comes from, likewise."""
    over_s: float = 300.0
    """Seconds that the signal is averaged over, at least."""

    def of(self, context: Mapping[str, object]) -> str | None:
        """The signal's written name for a context; None where it lacks a feature."""
        labels = dict(self.labels)
        for label, feature in self.features:
            value = context.get(feature)
            if not isinstance(value, bool | int | float | str):
                return None
            labels[label] = value_text(value)
        return signal_name(self.name, labels)


def signal_name(name: str, labels: Mapping[str, object]) -> str:
    """A signal's written name: ``rps{service="a"}``, labels in the order of their names."""
    if not labels:
        return name
    texts = (f'{label}="{_escaped(str(labels[label]))}"' for label in sorted(labels))
    return f"{name}{{{','.join(texts)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def parse_signal(text: str, over_s: float = 300.0) -> SignalQuery:
    """Read what stands under ``signal`` in a study file.

    Raises:
        ValueError: says what is wrong.
    """
    whole = _QUERY.fullmatch(text)
    if whole is None:
        raise ValueError(f'{text!r} should be like rps{{service=$service, zone="a"}}')
    texts: dict[str, str] = {}
    features: dict[str, str] = {}
    rest = whole[2] or ""
    while rest.strip():
        label = _LABEL.match(rest)
        if label is None or (rest[label.end() :] and not rest[label.end() :].startswith(",")):
            raise ValueError(f'{rest.strip()!r} should be label=$feature or label="text"')
        if label[1] in texts or label[1] in features:
            raise ValueError(f"the label {label[1]!r} stands there twice")
        if label[2]:
            features[label[1]] = label[2]
        else:
            texts[label[1]] = label[3] if label[3] is not None else label[4]
        rest = rest[label.end() + 1 :]
    return SignalQuery(
        whole[1], tuple(sorted(texts.items())), tuple(sorted(features.items())), over_s
    )


def parse_duration(text: str) -> float:
    """Seconds of ``30s``, ``5m``, ``1h`` or ``1d``.

    Raises:
        ValueError: it is none of these, or not above 0.
    """
    duration = _DURATION.fullmatch(text.strip())
    seconds = float(duration[1]) * _SECONDS[duration[2]] if duration else 0.0
    if not 0.0 < seconds <= 31 * 86_400.0:
        raise ValueError(f"{text!r} should be a time such as 30s, 5m or 1h, at most 31d")
    return seconds
