"""Metrics for Prometheus: the one package that imports prometheus_client.

Metrics overhear what the stages report and never decide anything.
"""

from tunerd.metrics.definitions import DEFINITIONS, MetricDefinition
from tunerd.metrics.exporter import MOST_STUDIES, MetricsExporter
from tunerd.metrics.page import metrics_page

__all__ = ["DEFINITIONS", "MOST_STUDIES", "MetricDefinition", "MetricsExporter", "metrics_page"]
