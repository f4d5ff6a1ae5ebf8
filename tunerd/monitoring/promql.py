"""Parts of PromQL, named through the definitions: a label or value that a metric does not have is
a mistake here and not an empty panel there."""

from tunerd.metrics.definitions import MetricDefinition

__all__ = ["JOB", "RESIDENT", "STARTED", "UP", "of", "quantile", "span"]

JOB = "tunerd"
"""What ``deploy/prometheus/prometheus.yml`` calls the daemons."""

_MINE = f'job="{JOB}"'
UP = f"up{{{_MINE}}}"
STARTED = f"process_start_time_seconds{{{_MINE}}}"
RESIDENT = f"process_resident_memory_bytes{{{_MINE}}}"


def of(metric: MetricDefinition, more: str = "", **labels: str | tuple[str, ...]) -> str:
    """A selector of a counter's or a gauge's series.

    Args:
        metric: which one.
        more: further matchers, as PromQL.
        labels: the value that a label must have, or several of which it must have one.

    Raises:
        ValueError: the metric has no such label, or the label never has that value.
    """
    matchers = [_matcher(metric, name, value) for name, value in labels.items()]
    return _selector(metric.series, *matchers, more)


def quantile(share: float, metric: MetricDefinition, window: str, more: str = "") -> str:
    """The value that a share of a histogram's measurements in a window does not pass."""
    buckets = _selector(metric.buckets, more)
    return f"histogram_quantile({share:g}, sum by (le) (rate({buckets}[{window}])))"


def span(seconds: float) -> str:
    """A duration as PromQL and people write it: ``90s``, ``5m``, ``1d``."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:g}s"


def _selector(name: str, *matchers: str) -> str:
    given = ", ".join(filter(None, matchers))
    return f"{name}{{{given}}}" if given else name


def _matcher(metric: MetricDefinition, name: str, value: str | tuple[str, ...]) -> str:
    known = {label.name: label.values for label in metric.labels}
    if name not in known:
        raise ValueError(f"{metric.name} has no label {name}")
    values = (value,) if isinstance(value, str) else value
    for text in values:
        if known[name] and text not in known[name]:
            raise ValueError(f"{metric.name}: {name} is never {text}")
    return f'{name}="{value}"' if isinstance(value, str) else f'{name}=~"{"|".join(value)}"'
