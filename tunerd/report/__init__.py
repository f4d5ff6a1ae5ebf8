"""What ``tunerd report`` says of a study: what would have been recommended, how well jobs were
predicted before they were learned, and what people would have gained.

- :mod:`.gather`: reads the store (the only part that does)
- :mod:`.jobs`: judged jobs as arrays
- :mod:`.quality`: how well they were predicted
- :mod:`.gains`: what the jobs would have gained that ran something else than what was recommended
- :mod:`.model`, :mod:`.compute`: the report as values, which are its JSON
- :mod:`.terminal`, :mod:`.page`: the same for a person
"""
