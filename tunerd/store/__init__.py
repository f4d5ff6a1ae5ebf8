"""The store: everything that outlives a process, in one SQL database.

``open_store`` gives a :class:`Store`. What the stages share, they share through it and through
nothing else: history, positions, outbox, studies, what was learned, leases, operators' commands.
"""

from tunerd.store.attempts import AttemptCounts, AttemptRow, WaitingAttempt
from tunerd.store.command_arguments import arguments_problem
from tunerd.store.commands import OperatorCommand
from tunerd.store.instance_lock import InstanceLock, folder_guard
from tunerd.store.instances import InstanceRow
from tunerd.store.leases import PUBLISH_LEASE, Lease, leased_study, study_lease
from tunerd.store.models import ModelVersion, serving
from tunerd.store.outbox import OutboxMessage
from tunerd.store.overview import StudyOverview
from tunerd.store.provenance import ProvenanceRow
from tunerd.store.quarantine import QuarantineRow, QuarantineState, nodes_of
from tunerd.store.recommendations import RecommendationRow
from tunerd.store.requests import InsertedRequests, RequestRow
from tunerd.store.retention import PastJob, PrunedHistory
from tunerd.store.search_tasks import CollectedSearch, SearchTask
from tunerd.store.store import Store, Transaction, open_store, open_store_unchecked
from tunerd.store.studies import StudyGeneration, StudyRow
from tunerd.store.tuner_state import ContextRow, CorruptCheckpointError, TuneStep, checkpoint_name

__all__ = [
    "PUBLISH_LEASE",
    "AttemptCounts",
    "AttemptRow",
    "CollectedSearch",
    "ContextRow",
    "CorruptCheckpointError",
    "InsertedRequests",
    "InstanceLock",
    "InstanceRow",
    "Lease",
    "ModelVersion",
    "OperatorCommand",
    "OutboxMessage",
    "PastJob",
    "ProvenanceRow",
    "PrunedHistory",
    "QuarantineRow",
    "QuarantineState",
    "RecommendationRow",
    "RequestRow",
    "SearchTask",
    "Store",
    "StudyGeneration",
    "StudyOverview",
    "StudyRow",
    "Transaction",
    "TuneStep",
    "WaitingAttempt",
    "arguments_problem",
    "checkpoint_name",
    "folder_guard",
    "leased_study",
    "nodes_of",
    "open_store",
    "open_store_unchecked",
    "serving",
    "study_lease",
]
