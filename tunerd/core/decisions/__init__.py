"""From what is known and expected in a context to what is said there.

- :mod:`.overrides`, :mod:`.limits`: what operators and the study rule out
- :mod:`.space_cache`: what is left to search, of the contexts looked at lately
- :mod:`.campaign`, :mod:`.context_state`: what is remembered of a context between two looks at it
- :mod:`.acquisition`: what a configuration is worth trying for
- :mod:`.context_search`: a look at one context: what is expected, and what its search found
- :mod:`.decide`, :mod:`.reasons`: candidates, shares and incumbent, and why
- :mod:`.advisor`: all of it for one context; :mod:`.fallback` for those without an entry
- :mod:`.lifecycle`: when there is news; :mod:`.ledger`: what following it was worth
"""
