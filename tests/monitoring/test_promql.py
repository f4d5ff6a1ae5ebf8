"""Parts of PromQL: a name that no metric has is a mistake here and not an empty panel there."""

import pytest

from tunerd.metrics import DEFINITIONS
from tunerd.metrics import definitions as d
from tunerd.monitoring.promql import of, quantile, span


def test_selectors_are_written_as_prometheus_reads_them() -> None:
    assert of(d.LAG) == "tunerd_stream_lag_records"
    assert of(d.RECORDS, outcome="rejected") == 'tunerd_ingest_records_total{outcome="rejected"}'
    assert of(d.JOBS, 'study=~"x"', following=("followed", "ignored")) == (
        'tunerd_jobs_total{following=~"followed|ignored", study=~"x"}'
    )
    assert quantile(0.95, d.LEARN_S, "5m") == (
        "histogram_quantile(0.95, sum by (le) (rate(tunerd_learn_seconds_bucket[5m])))"
    )


@pytest.mark.parametrize(
    ("wrong", "labels"),
    [
        (d.LAG, {"study": "a"}),
        (d.RECORDS, {"outcome": "refused"}),
        (d.JOBS, {"following": ("followed", "obeyed")}),
        (d.LEARN_S, {}),
    ],
)
def test_what_a_metric_does_not_have_is_refused(
    wrong: d.MetricDefinition, labels: dict[str, str | tuple[str, ...]]
) -> None:
    with pytest.raises(ValueError, match=wrong.name):
        of(wrong, "", **labels)


def test_only_histograms_have_quantiles() -> None:
    with pytest.raises(ValueError, match="gauge"):
        quantile(0.5, d.LAG, "5m")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.5, "0.5s"), (90, "90s"), (120, "2m"), (3600, "1h"), (86400, "1d")],
)
def test_durations(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_names_follow_prometheus_conventions() -> None:
    assert len({one.name for one in DEFINITIONS}) == len(DEFINITIONS)
    for one in DEFINITIONS:
        assert one.name.startswith("tunerd_")
        assert not one.name.endswith(("_total", "_count", "_sum", "_bucket"))
        assert one.about.endswith(".")
