"""The store: everything that outlives a process, in one SQL database.

``open_store`` gives a :class:`Store`. What the stages share, they share through it and through
nothing else: history, positions, outbox, studies, what was learned, leases, operators' commands.
"""

from tunerd.store.commands import Command
from tunerd.store.derivations import Derivation
from tunerd.store.guard import InstanceGuard, folder_guard
from tunerd.store.learned import ContextRow, DamagedCheckpointError, TuneStep, checkpoint_name
from tunerd.store.leases import study_lease
from tunerd.store.models import ModelVersion, serving
from tunerd.store.outbox import OutboxMessage
from tunerd.store.overview import StudyOverview
from tunerd.store.recommendations import RecommendationRow
from tunerd.store.requests import Asked, RequestRow
from tunerd.store.store import Store, Transaction, open_store
from tunerd.store.studies import Generation, StudyRow

__all__ = [
    "Asked",
    "Command",
    "ContextRow",
    "DamagedCheckpointError",
    "Derivation",
    "Generation",
    "InstanceGuard",
    "ModelVersion",
    "OutboxMessage",
    "RecommendationRow",
    "RequestRow",
    "Store",
    "StudyOverview",
    "StudyRow",
    "Transaction",
    "TuneStep",
    "checkpoint_name",
    "folder_guard",
    "open_store",
    "serving",
    "study_lease",
]
