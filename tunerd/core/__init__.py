"""The pure core: studies, spaces, prediction, search and decisions.

In the order in which they stand on each other, which import-linter checks too:

- values: :mod:`.observation` (a job), :mod:`.recommendation`, :mod:`.request`
- :mod:`.expressions`, :mod:`.study`, :mod:`.study_file`, :mod:`.space`: what may be tuned
- :mod:`.features`, :mod:`.estimators`, :mod:`.predictors`, :mod:`.feasibility`: jobs become
  predictions
- :mod:`.model`: what a study predicts with, kept up to date; :mod:`.conformal`: how sure that is
- :mod:`.evidence`: what jobs showed; :mod:`.drift`: whether it still holds; :mod:`.explain`
- :mod:`.searchers`, :mod:`.decisions`: what could be run, and what is said
- :mod:`.learning`, :mod:`.tuner`: a study's jobs in, its advice out; :mod:`.generation_mapping` and
  :mod:`.carry_over` hand contexts on to a new generation of it

Nothing here does I/O, reads a clock or the environment, or knows Kafka, SQL, HTTP or Prometheus;
randomness comes from a generator that is passed in. import-linter checks the arrows.
"""
