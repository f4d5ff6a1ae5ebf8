"""Small real trainings with torch that are measured: what :mod:`benchmarks.measure` and
:mod:`benchmarks.live` run."""
