"""What a daemon's ``/metrics`` says, for those who ask for some of it."""

import math
import re

__all__ = ["MetricSamples"]

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.M)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class MetricSamples:
    """What ``/metrics`` said; only as much of the format as tunerd itself writes."""

    def __init__(self, text: str = "") -> None:
        self._values: dict[str, list[tuple[dict[str, str], float]]] = {}
        for name, labels, value in _SAMPLE.findall(text):
            by_label = dict(_LABEL.findall(labels))
            self._values.setdefault(name, []).append((by_label, float(value)))

    def of(self, name: str, **labels: str) -> float | None:
        """The value of one sample; None when there is none, or it is not a number."""
        for sample, value in self._values.get(name, []):
            if sample == labels:
                return None if math.isnan(value) else value
        return None

    def sum(self, name: str) -> float | None:
        """The sum of all samples; None when there is none."""
        samples = [value for _, value in self._values.get(name, ())]
        return sum(samples) if samples else None

    def labels(self, name: str, label: str) -> list[str]:
        """The values of a label, in the order of the samples."""
        return [sample[label] for sample, _ in self._values.get(name, ())]

    def by(self, name: str, label: str, **labels: str) -> dict[str, int]:
        """Counts by the values of a label, of the samples with these others."""
        return {
            sample[label]: int(value)
            for sample, value in self._values.get(name, ())
            if labels.items() <= sample.items()
        }

    def one(self, name: str) -> float | None:
        """The value of a sample without labels."""
        return self.of(name)
