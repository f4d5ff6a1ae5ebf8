"""What watches tunerd from outside: the Grafana dashboard and Prometheus' alert rules.

Both are made from :mod:`tunerd.metrics.definitions`. ``tunerd schema dashboard`` and ``tunerd
schema alerts`` print them; ``deploy/`` and ``docs/`` keep the results, and a test compares.
"""
