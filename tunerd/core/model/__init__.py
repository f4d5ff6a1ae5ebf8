"""What a study predicts with, and how it is kept up to date.

- :mod:`.history`: how much of it counts in a fit
- :mod:`.model`: predictor, probability to run and bands as one thing; :mod:`.reach`: how far beyond
  what was ever varied
- :mod:`.contest`: whether a rebuilt one takes over; :mod:`.training`: when one is built
"""
