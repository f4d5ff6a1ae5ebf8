"""The pure core: studies, spaces, prediction, search and decisions.

Nothing here does I/O, reads a clock or the environment, or knows Kafka, SQL, HTTP or Prometheus;
randomness comes from a generator that is passed in. import-linter checks the arrows.
"""
