"""Predictors and optimizers beside their peers: ``python -m benchmarks.yardsticks``.

- :mod:`.program`: its options, its worker processes, its lines
- :mod:`.plan`: the cells, one of a table, a question and somebody who answers
- :mod:`.cells`: one of them measured; :mod:`.results`: its line, read again
- :mod:`.comparison`: whether a difference is more than luck
- :mod:`.bars`, :mod:`.summary`: what is held, and what is kept of a run
"""
