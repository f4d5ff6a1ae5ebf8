"""What the contexts of a new generation take over from the former one, as history does not tell it:
what is being introduced, what was promised, campaigns under way, and who asked."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from msgspec.structs import replace

from tunerd.core.decisions.context_state import ContextState
from tunerd.core.decisions.space_cache import SpaceCache
from tunerd.core.generation_mapping import (
    CarryOverTarget,
    GenerationMapping,
    campaign_of,
    introduction_of,
)
from tunerd.core.observation import Value
from tunerd.core.recommendation import Recommendation
from tunerd.core.study import Study

__all__ = ["CarryOver"]

NOT_READ = {
    part: f"{what}: this version of tunerd does not read what another kept of it"
    for part, what in {
        "introduction": "what was being tested",
        "campaign": "its campaign",
        "promised": "what was promised",
        "declined": "what an operator declined",
        "asked_at": "who asked",
    }.items()
}
"""What history does not tell, where it is in a form of another version."""


@dataclass(frozen=True, slots=True)
class CarryOver:
    """The heirs, as history has made them."""

    study: Study
    spaces: SpaceCache
    contexts: dict[str, ContextState]
    """By key; changed in place."""
    sequence: int
    """Last observation learned."""

    def take_over(
        self,
        former: Mapping[str, Mapping[str, Any]],
        succession: GenerationMapping,
        said: Iterable[Recommendation],
    ) -> list[tuple[str, str]]:
        """See :meth:`Tuner.adopt`; ``former`` are the contexts of the former generation as saved,
        by their keys then."""
        heirs: dict[str, dict[str, Mapping[str, Value]]] = {}
        for entry in said:
            configs = {c.candidate_id: c.config for c in entry.candidates}
            heirs.setdefault(entry.context_key, {}).update(configs)
        lost = []
        for former_key, saved in former.items():
            before, unread = ContextState.load_other(saved)
            key = succession.heirs[former_key]
            lost += [(former_key, NOT_READ[part]) for part in unread if part in NOT_READ]
            goes_on = before.foreseen is not None and succession.passes_on(former_key, key)
            if before.last_job_at is None and not goes_on:
                before.campaign = None  # nobody but the forecast wanted it
            wanted = before.asked_at is not None or before.campaign is not None
            if key not in self.contexts and wanted and not before.evidence.jobs:
                self.contexts[key] = ContextState(self.study.clean_context(before.context))
            state = self.contexts.get(key)
            if state is None:
                if before.campaign is not None:
                    lost.append((former_key, "its campaign: no job is of this context any more"))
                continue
            same = succession.same_space and key == former_key
            self._names(before, key, None if same else heirs.get(former_key, {}))
            if succession.comparable:
                self._tests(succession, former_key, before, key)
            if before.campaign is not None:
                why = self._campaign(before, key)
                lost += [(former_key, why)] if why else []
            if succession.passes_on(former_key, key):
                state.declined, state.foreseen = before.declined, before.foreseen
                state.rhythm.merge(before.rhythm)  # of jobs that were pruned, too
            state.last_job_at = _later(state.last_job_at, before.last_job_at)
            state.imported_at = _later(state.imported_at, before.imported_at)
            state.asked_at = _later(state.asked_at, before.asked_at)
        return lost

    def _names(
        self, before: ContextState, key: str, told: Mapping[str, Mapping[str, Value]] | None
    ) -> None:
        """What candidates of the former generation are called now; ``told`` has the latest ones,
        None where ids are as they were."""
        renamed = self.contexts[key].renamed
        if told is not None:
            trials, heir = before.evidence.trials, self._heir(key)
            earlier = {cid: trials[cid].config for cid in before.promised if cid in trials}
            for former_id, config in {**earlier, **told}.items():
                heir_name = heir.now(config)
                if heir_name is not None and heir_name[0] != former_id:
                    renamed[former_id] = heir_name[0]
        # Of generations before that one, as far as it goes on.
        renamed |= {cid: renamed.get(then, then) for cid, then in before.renamed.items()}

    def _tests(
        self, succession: GenerationMapping, former_key: str, before: ContextState, key: str
    ) -> None:
        """What was promised and what is being introduced in a context."""
        state = self.contexts[key]
        if succession.same_space and key == former_key:
            state.promised, state.introduction = before.promised, before.introduction
            return
        renamed = partial(self._heir(key).renamed, before.evidence, state.evidence)
        for former_id, promise in before.promised.items():
            promise = replace(promise, against=renamed(promise.against) or promise.against)
            state.promise({state.renamed.get(former_id, former_id): promise})
        if succession.passes_on(former_key, key):
            state.introduction = introduction_of(before.introduction, renamed)

    def _campaign(self, before: ContextState, key: str) -> str | None:
        """The campaign of a context; says what of it is lost."""
        state, campaign = self.contexts[key], before.campaign
        assert campaign is not None
        if state.campaign is not None:
            return f"its campaign: one of a context that is the same now goes on in {key}"
        state.campaign, dropped = campaign_of(campaign, self._heir(key).now)
        state.waiting_since = max(self.sequence, 1)
        if not dropped:
            return None
        return f"{dropped} configurations of its campaign: they are not in the space any more"

    def _heir(self, key: str) -> CarryOverTarget:
        return CarryOverTarget(self.study, self.spaces, key, self.contexts[key].context)


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((at for at in (one, other) if at is not None), default=None)
