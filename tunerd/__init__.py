"""tunerd: a service that makes a cluster tune itself.

::

    jobs topic ──► ingest ──► history ──► tune ──► outbox ──► publish ──► recommendations topic
                     │        (one SQL              │  learn, watch for drift,
                     └─► rejected    store)         │  search, decide
                         (by the outbox)            └─► metrics

The stages (:mod:`tunerd.stages`) share one store (:mod:`tunerd.store`) and nothing else.
:mod:`tunerd.core` holds everything that needs no I/O: studies, search spaces, predictors,
searchers and decisions. :mod:`tunerd.streams` and :mod:`tunerd.events` are the edges,
:mod:`tunerd.service.daemon` runs it all.
"""

__version__ = "0.1.0"
