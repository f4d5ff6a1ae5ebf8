"""``tunerd exec``: choose a configuration, run a program with it, report what came out.

:mod:`.run` is the whole course of it. The other modules are its steps, in this order: ``plan``
(what settings and study say), ``choose``, ``fill`` (arguments, environment, files), ``child``
(the program), ``output`` and ``metrics`` (what it said), ``causes`` (how it ended). What was not
told yet waits in :mod:`tunerd.spool`. ``local`` keeps a daemon for who has none.

A wrapper of short programs must start fast. So nothing here imports numpy, pydantic or LightGBM,
except what ``plan`` does in a process of its own when settings or a study are new.
"""
