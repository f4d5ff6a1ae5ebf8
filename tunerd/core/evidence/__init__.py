"""What jobs showed: about a configuration, about its lead, and about what was said of it.

- :mod:`.config_stats`: each configuration tried in a context; :mod:`.decision_inputs`: what else
  may be one
- :mod:`.sequential`, :mod:`.paired_tests`: which of two is better, however often one looks
- :mod:`.rollout`, :mod:`.uplift`: who is on trial, who is incumbent, and how far ahead
- :mod:`.following`, :mod:`.prequential`: what a job did with advice, and what was predicted of it
- :mod:`.gain_calibration`: what candidates were said to gain, beside what they gained
"""
