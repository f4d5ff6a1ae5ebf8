"""What a PromQL expression speaks of, read from the text as Prometheus will get it."""

import re
from collections.abc import Iterator, Mapping

from tunerd.metrics import DEFINITIONS

__all__ = ["SERIES", "labels_of", "series_in", "words_in"]

PROCESS = ("process_start_time_seconds", "process_resident_memory_bytes")
"""Of prometheus_client's own; a test holds them against a daemon's page."""
SCRAPED = ("job", "instance")
"""Labels that Prometheus adds."""
LANGUAGE = {
    *("and", "by", "changes", "count", "deriv", "histogram_quantile", "increase", "label_values"),
    *("max", "min", "or", "rate", "sum", "time", "vector"),
}
SELECTOR = re.compile(r"([a-zA-Z_][\w:]*)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')


def _series() -> Iterator[tuple[str, Mapping[str, tuple[str, ...]]]]:
    """Every series that there is, with its labels and their values where those are known."""
    yield "up", {}
    for name in PROCESS:
        yield name, {}
    for one in DEFINITIONS:
        labels = {label.name: label.values for label in one.labels}
        if one.kind != "histogram":
            yield one.series, labels
            continue
        yield one.buckets, labels | {"le": ()}
        yield f"{one.name}_sum", labels
        yield f"{one.name}_count", labels


SERIES: Mapping[str, Mapping[str, tuple[str, ...]]] = dict(_series())


def words_in(expression: str) -> set[str]:
    """All names in an expression: of series, of labels after ``by`` and in ``label_values``."""
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]", " ", expression)
    bare = re.sub(r"\bby \([^)]*\)", " ", bare)
    bare = re.sub(r", *(instance|study)\)", ")", bare)
    return set(re.findall(r"(?<![\w.])[a-zA-Z_][\w:]*", bare)) - LANGUAGE


def series_in(expression: str) -> set[str]:
    """Names of the series in an expression that exist. Raises AssertionError for others."""
    found = words_in(expression)
    assert found <= set(SERIES), f"{found - set(SERIES)} in {expression}"
    for name, matchers in SELECTOR.findall(expression):
        for label, value in MATCHER.findall(matchers):
            _check(name, label, value)
    known = {label for name in found for label in (*SERIES[name], *SCRAPED)}
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        assert set(re.split(r", *", grouped)) <= known, f"by ({grouped}) in {expression}"
    return found


def labels_of(series: str) -> tuple[str, dict[str, str]]:
    """Name and labels of a series as a rule test writes it. Raises AssertionError for others."""
    name, brace, matchers = series.partition("{")
    assert name in SERIES, name
    labels = dict(MATCHER.findall(brace + matchers))
    for label, value in labels.items():
        _check(name, label, value)
    return name, labels


def _check(name: str, label: str, value: str) -> None:
    labels = SERIES[name]
    assert label in (*labels, *SCRAPED), f"{name} has no label {label}"
    if labels.get(label) and not value.startswith("$"):
        assert set(value.split("|")) <= set(labels[label]), f"{name}: {label} is never {value}"
