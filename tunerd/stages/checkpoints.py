"""Checkpoints of one study's model: what one is, when it is due, and which are kept.

A model is saved in parts, each under the name of its content, as most of them stay as they are from
one checkpoint to the next. The checkpoint itself is a *manifest*: what each part is called.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tunerd.core.model.model import StudyModel
from tunerd.settings.model import TuneSettings
from tunerd.stages.model_registry import keep_versions
from tunerd.stages.recommendations import LogEvent
from tunerd.store import CorruptCheckpointError, Store, Transaction

__all__ = ["CheckpointManager", "manifest_of", "parts_of"]

MANIFEST = b'{"parts"'
"""What a manifest begins with, and no part of a model."""
STEPS_PER_CHECKPOINT = 25
"""Steps after which a checkpoint is due: recovery learns those since the last one again."""
KEEP_CHECKPOINTS = 200
"""Latest checkpoints kept, so that what was recommended lately can be derived again. A job changes
less than 0.1 MB; a fit, of ``committee`` 3 to 17 MB, is shared until the next one."""
KEEP_DERIVATIONS = 1000
"""Latest recommendations of which is kept what they were made from: some kilobytes each."""
FOLLOWED_FOR = timedelta(days=400)
"""How long the message of older ones is kept, for who asks what a job followed: a kilobyte each.
What is known of jobs that were pruned is kept for as long."""
PRUNE_EVERY = 50
"""Checkpoints between two prunings."""


@dataclass
class CheckpointManager:
    """Those of one generation of a study."""

    study: str
    generation: int
    settings: TuneSettings
    latest: str | None = None
    """Name of the last one."""
    learned: int = 0
    """Sequence up to which its model had learned."""
    steps: int = 0
    """Steps since then, this one included."""
    _parts: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    """By part of it, what was saved and how that is called: to name one takes time."""
    _written: int = 0
    """Since the study was loaded."""

    def go_on(self, latest: str, parts: Mapping[str, bytes]) -> None:
        """Go on from the checkpoint that was saved last."""
        self.latest = latest
        self.learned = json.loads(parts["at"])["learned"]

    def is_due(self, model: StudyModel, *, swapped: bool, news: bool) -> bool:
        """Whether this step ends with one: its model took over, or has learned something and there
        is ``news`` made from it, or long enough has passed."""
        if swapped or self.latest is None:
            return True
        learned = model.learned - self.learned
        enough = learned >= self.settings.checkpoint_every or self.steps >= STEPS_PER_CHECKPOINT
        return learned != 0 and (news or enough)

    def save(self, tx: Transaction, model: StudyModel, now: datetime) -> list[LogEvent]:
        """Write one; returns what to log."""
        parts = model.dump()
        saved = {part: known for part, known in self._parts.items() if parts.get(part) is known[0]}
        for part, blob in parts.items():
            if part not in saved:
                saved[part] = blob, tx.save_checkpoint(self.study, blob, now)
        self._parts = saved
        manifest = manifest_of({part: called for part, (_, called) in saved.items()})
        self.latest = tx.save_checkpoint(self.study, manifest, now)
        self.learned, self.steps = model.learned, 0
        self._written += 1
        return self._prune(tx, now) if self._written % PRUNE_EVERY == 0 else []

    def _prune(self, tx: Transaction, now: datetime) -> list[LogEvent]:
        """Drop the parts that none of the latest checkpoints is made of."""
        lines = []
        kept: set[str] = set()
        named = keep_versions(tx, self.study, self.generation, self.settings.keep_models)
        named.append(self.latest or "")
        manifests = 0
        rows = tx.checkpoints(self.study)
        for row in rows:  # newest first
            latest = row.begins == MANIFEST and manifests < KEEP_CHECKPOINTS
            if row.name not in named and not latest:
                continue
            manifests += 1
            try:
                names = json.loads(tx.checkpoint(self.study, row.name))["parts"].values()
            except CorruptCheckpointError as error:  # nobody can use it any more
                detail = {"problem": f"{error}; it is dropped"}
                lines.append(LogEvent("checkpoint damaged", detail, wrong=True))
                continue
            kept |= {row.name, *names}
        tx.prune_derivations(self.study, KEEP_DERIVATIONS, tx.no_later(now) - FOLLOWED_FOR)
        tx.delete_checkpoints(self.study, [row.name for row in rows if row.name not in kept])
        return lines


def manifest_of(names: Mapping[str, str]) -> bytes:
    """What a model's checkpoint is: what each of its parts is called as a checkpoint."""
    return json.dumps({"parts": dict(names)}, sort_keys=True).encode()


def parts_of(store: Store, study: str, checkpoint: str) -> dict[str, bytes]:
    """The parts of a checkpoint.

    Raises:
        LookupError: it is not kept.
        DamagedCheckpointError: it is not what was saved.
    """
    names = json.loads(store.checkpoint(study, checkpoint))["parts"]
    return {part: store.checkpoint(study, name) for part, name in names.items()}
