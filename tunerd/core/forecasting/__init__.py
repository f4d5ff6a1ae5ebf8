"""Forecasts of signals: numbers over time, such as requests a second, foreseen as quantiles.

A :class:`~.series.SignalSeries` keeps a signal in slots of equal length. Several methods foresee it
side by side, and a :class:`~.forecaster.SignalForecaster` weights them by how well each foresaw.
Nothing here reads a clock: whoever calls says what time it is.
"""
