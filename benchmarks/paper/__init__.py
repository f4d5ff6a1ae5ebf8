"""The experiments of CubicML (arXiv 2409.04585) by one command: ``python -m benchmarks.paper``.

- :mod:`.program`: options, parts, worker processes, the file of results, bars
- :mod:`.sizes`: how much of everything a run takes
- :mod:`.ads`: the ads space of A.2.1 on a simulated cluster; Figures 2a and 2b, ablations
- :mod:`.tables`: public tables; Figures 3 and 4, groups of features, other hardware
- :mod:`.intervals`: 95 % intervals, and what they allow to say
- :mod:`.page`, :mod:`.pictures`: ``docs/paper.md`` and its pictures, made from the results alone
"""
