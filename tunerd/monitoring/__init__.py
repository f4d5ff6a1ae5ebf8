"""What watches tunerd from outside: Prometheus' alert rules and Grafana's dashboard, as files.

``alerts.yml`` and ``dashboard.json`` are edited as such. ``deploy/`` holds copies that ``tunerd
schema alerts|dashboard`` prints. Tests hold every series, label and value in them to
:mod:`tunerd.metrics.definitions`.
"""
