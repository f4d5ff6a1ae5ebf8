"""What jobs showed: about a configuration, about its lead, and about what was said of it.

- :mod:`.evidence`: each configuration tried in a context; :mod:`.prospects`: what else may be one
- :mod:`.sequential`, :mod:`.duels`: which of two is better, however often one looks
- :mod:`.introduction`, :mod:`.leads`: who is on trial, who is incumbent, and how far ahead
- :mod:`.following`, :mod:`.judged`: what a job did with advice, and what was predicted of it
- :mod:`.promises`: what candidates were said to gain, beside what they gained
"""
