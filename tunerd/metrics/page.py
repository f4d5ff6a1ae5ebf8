"""``docs/metrics.md``, made from the definitions."""

from tunerd.metrics.definitions import DEFINITIONS, OTHER, MetricLabel
from tunerd.metrics.exporter import MOST_STUDIES

__all__ = ["metrics_page"]

_INTRODUCTION = f"""\
# Metrics

<!-- Made by `tunerd schema metrics --markdown`; a test compares the two. -->

`GET /metrics` on the daemon's HTTP port (`[http]` in [settings](settings.md)), in the text format
of Prometheus or as OpenMetrics. At most {MOST_STUDIES} studies have series of their own, further
ones are counted under `study="{OTHER}"` and have no gauges. A study's series disappear when it ends
or another instance takes it over. The memory, processor time and open files of the daemon itself,
without its tuner process, are there as `process_*`.

[The dashboard](dashboard.md) shows them, [the alerts](alerts.md) watch them.

| name | type | labels | meaning |
|---|---|---|---|
"""


def metrics_page() -> str:
    """``docs/metrics.md``."""
    lines = [_INTRODUCTION]
    for definition in DEFINITIONS:
        name = definition.name if definition.kind == "histogram" else definition.series
        labels = "; ".join(_told(label) for label in definition.labels)
        lines.append(f"| `{name}` | {definition.kind} | {labels} | {definition.about} |\n")
    return "".join(lines)


def _told(label: MetricLabel) -> str:
    values = label.about or ", ".join(label.values)
    return f"`{label.name}`: {values}" if values else f"`{label.name}`"
