"""What a study predicts with, and how it is kept up to date.

- :mod:`.history_weights`: how much of it counts in a fit
- :mod:`.model`: predictor, probability to run and bands as one thing; :mod:`.extrapolation`: how
  far beyond what was ever varied
- :mod:`.comparison`: whether a rebuilt one takes over; :mod:`.training`: when one is built
"""
