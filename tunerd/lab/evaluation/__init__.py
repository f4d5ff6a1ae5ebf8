"""How good predictions and searches are, on jobs that are already done.

Pure, and nothing but the core below it: what is measured here is the code that serves.

- :mod:`.forecaster`: what predicts, seen from outside: tunerd's own predictors and every peer
- :mod:`.splits`: which jobs are known and which are asked for
- :mod:`.scores`: how well a prediction ranked and fitted what then happened
- :mod:`.backtest`: splits and predictors in, results out
- :mod:`.closed_loop`: what a search finds in a table of measured jobs, one batch after the other
- :mod:`.streams`: a table turned into jobs in time order, with changes that are known
"""
