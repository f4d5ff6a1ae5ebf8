"""Tables of old jobs: reading them, what their columns mean, and a first draft of a study.

``files`` reads CSV, JSON lines and Parquet in constant memory. ``profile``, ``guess`` and ``draft``
make a study file of a table (``tunerd init``); ``mapping`` makes job events of its rows
(``tunerd import``) or observations (``tunerd backtest`` and ``tunerd simulate``).
"""
