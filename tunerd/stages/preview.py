"""What a new generation of a study would make of its history and of what is recommended.

Looks and changes nothing. Goes once through history, a moment per thousand jobs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tunerd.core.decisions.context_history import ContextHistory
from tunerd.core.decisions.overrides import Override, OverrideSet
from tunerd.core.decisions.space_cache import SpaceCache, why_not
from tunerd.core.evidence.config_stats import estimates
from tunerd.core.evidence.decision_inputs import MeasuredConfig
from tunerd.core.evidence.prequential import NamedJob
from tunerd.core.evidence.rollout import elect
from tunerd.core.generation_mapping import GenerationMapping
from tunerd.core.observation import Observation, Value
from tunerd.core.recommendation import candidate_id
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study.context_key import written_config
from tunerd.core.usability import unusable_jobs
from tunerd.errors import NothingFeasibleError
from tunerd.events import from_bytes
from tunerd.store import Store

__all__ = ["GenerationPreview", "preview"]

AT_ONCE = 1000


@dataclass(frozen=True)
class GenerationPreview:
    """What would come of it."""

    jobs: int
    """In history."""
    known_before: int
    """Jobs whose configuration lies in the space as the study is now."""
    known_after: int
    """… and as it would be."""
    lost: Mapping[str, int]
    """Why configurations that are known now no longer are: jobs by reason, most first."""
    jobs_change: Mapping[str, int]
    """What becomes of what jobs say of their configurations, objective and guards: jobs by what
    changes, most first."""
    keys_vanish: Mapping[str, int]
    """Context keys that no job would have: how many jobs have them now."""
    keys_appear: Mapping[str, int]
    recommendations: Sequence[Mapping[str, Any]]
    """What is active: ``context_key``, ``becomes`` (stays, replaced, withdrawn), ``why``."""
    incumbents: Sequence[Mapping[str, Any]]
    """Best known configurations that would not stay: ``context_key``, ``becomes`` (falls out,
    changes), ``why``, ``config``, ``jobs``. With another objective by what is measured alone."""
    incumbents_stay: int
    orders: Sequence[Mapping[str, Any]]
    """Operators' orders that would do nothing: ``number``, ``what``, ``why``."""

    def dump(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass
class _HistoryView:
    """History as one version of the study sees it."""

    study: Study
    spaces: SpaceCache = field(init=False)
    contexts: dict[str, ContextHistory] = field(default_factory=dict)
    jobs: Counter[str] = field(default_factory=Counter)
    """By context key."""
    without: set[tuple[str, str]] = field(default_factory=set)
    """Context key and name of configurations that had jobs without a usable objective."""

    def __post_init__(self) -> None:
        self.spaces = SpaceCache(self.study)

    def space(self, key: str) -> SearchSpace | None:
        try:
            return self.spaces.get(key, self.contexts[key].context)
        except NothingFeasibleError:
            return None

    def see(self, job: Observation) -> tuple[str, str, bool]:
        """Take in one job: its key, its configuration's name, and whether that is in the space."""
        study = self.study
        key = study.context_key(job.context)
        if key not in self.contexts:
            self.contexts[key] = ContextHistory(study.clean_context(job.context))
        self.jobs[key] += 1
        config = self.own(key, job.config)
        name = candidate_id(study.name, key, config)
        if unusable_jobs(study, [job]) not in ([], [None]):
            self.without.add((key, name))
        named = NamedJob(job, name, config, 0)
        self.contexts[key].learn(study, named, study.score(job.metrics), 1.0)
        return key, name, self.encodes(key, config)

    def own(self, key: str, config: Mapping[str, Value]) -> dict[str, Value]:
        """A configuration as this version of the study has it."""
        return self.spaces.own_config(key, self.contexts[key].context, config)

    def encodes(self, key: str, config: Mapping[str, Value]) -> bool:
        space = self.space(key)
        return space is not None and space.encode(config) is not None

    def why_not(self, key: str, config: Mapping[str, Value]) -> str:
        """Why a configuration does not lie in the space of a context."""
        return why_not(self.study, self.contexts[key].context, self.study.named(config))

    def fails(self, key: str, name: str) -> str:
        """How few jobs of a configuration ran, where that is too few; else empty."""
        trial = self.contexts[key].evidence.trials.get(name)
        if trial is None or trial.run_share >= self.study.min_feasible:
            return ""
        return f"{trial.ran} of its {trial.ran + trial.failures} jobs run and keep to the guards"

    def unmeasured(self, key: str, name: str) -> str:
        """Why a configuration can be no incumbent, by its jobs; empty where it can."""
        trial = self.contexts[key].evidence.trials.get(name)
        if (key, name) in self.without and trial is not None and not (trial.runs or trial.former):
            return f"none of its jobs has a usable {self.study.objective.metric}"
        return self.fails(key, name)

    def best(self, key: str) -> str | None:
        """Candidate id of the configuration in the space that the evidence alone would elect; None
        where nothing in the space runs."""
        inside = [
            (name, trial)
            for name, trial in self.contexts[key].evidence.measured()
            if trial.run_share >= self.study.min_feasible and self.encodes(key, trial.config)
        ]
        if not inside:
            return None
        own = np.array([trial.mean for _, trial in inside])
        noise = self.contexts[key].evidence.noise(self.study.unit(own))
        spread = np.full(len(own), own.std() + noise)
        beliefs = estimates([t for _, t in inside], noise, np.full(len(own), own.mean()), spread)
        rivals = [
            MeasuredConfig(*rival, belief, 1.0)
            for rival, belief in zip(inside, beliefs, strict=True)
        ]
        elected = elect(rivals)
        return elected.candidate_id if elected else None


def preview(store: Store, old: Study, new: Study) -> GenerationPreview:
    """Look at a study's history and recommendations under ``old``, which holds, and ``new``."""
    before, after = _HistoryView(old), _HistoryView(new)
    known_before = known_after = jobs = 0
    lost: Counter[str] = Counter()
    jobs_change: Counter[str] = Counter()
    becomes: dict[tuple[str, str], tuple[str, str, bool, str]] = {}
    for observation in _history(store, old.name):
        jobs += 1
        key, name, was = before.see(observation)
        new_key, new_name, is_known = after.see(observation)
        known_before += was
        known_after += is_known
        why = ""
        if was and not is_known:
            why = after.why_not(new_key, observation.config)
            lost[why] += 1
        jobs_change.update(_changes(old, new, observation.metrics))
        becomes.setdefault((key, name), (new_key, new_name, is_known, why))
    stay, incumbents = _incumbents(store, before, after, becomes)
    return GenerationPreview(
        jobs=jobs,
        known_before=known_before,
        known_after=known_after,
        lost=dict(lost.most_common()),
        jobs_change=dict(jobs_change.most_common()),
        keys_vanish={k: n for k, n in before.jobs.most_common() if k not in after.jobs},
        keys_appear={k: n for k, n in after.jobs.most_common() if k not in before.jobs},
        recommendations=_recommendations(store, before, after, incumbents),
        incumbents=incumbents,
        incumbents_stay=stay,
        orders=_orders(store, new),
    )


def _history(store: Store, study: str) -> Iterator[Observation]:
    at, gone = 0, store.corrected_sequences(study)
    while batch := store.observations(study, after=at, limit=AT_ONCE):
        yield from (job for job in batch if job.sequence not in gone)
        at = batch[-1].sequence


def _changes(old: Study, new: Study, metrics: Mapping[str, float]) -> Iterator[str]:
    """What a job no longer says of its configuration, or says only under ``new``."""
    had, has = (study.score(metrics) is not None for study in (old, new))
    if had and not has:
        yield f"losing the objective: no usable {new.objective.metric}"
    if has and not had:
        yield f"gaining an objective: {new.objective.metric}"
    was, broken = old.guard_broken(metrics), new.guard_broken(metrics)
    if broken and not was:
        yield f"breaking the guard of {broken}"
    if was and not broken:
        yield f"no longer breaking the guard of {was}"


def _recommendations(
    store: Store, before: _HistoryView, after: _HistoryView, incumbents: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    fallen = {
        incumbent["context_key"]: f"its incumbent {incumbent['becomes']}"
        for incumbent in incumbents
    }
    old, new = before.study.objective, after.study.objective
    others = (old.metric, old.goal, old.unit) != (new.metric, new.goal, new.unit)
    changes = []
    for row in store.recommendations(after.study.name):
        if row.state != "active" or row.context_key == after.study.name != after.study.context_key(
            {}
        ):
            continue  # the entry for the empty context is made anew from the others
        message, key = from_bytes(row.value.encode()), row.context_key
        becomes, why = "stays", ""
        if after.study.mode == "observe":
            becomes, why = "withdrawn", "the study would only observe"
        elif key not in after.jobs:
            becomes, why = "withdrawn", "no job has this context key any more"
        else:
            configs = [candidate.config for candidate in message.candidates]
            configs += [message.incumbent.config] if message.incumbent else []
            wrong = [_wrong(before, after, key, config) for config in configs]
            if message.incumbent:
                wrong.append(fallen.get(key, ""))
            if others:
                wrong.append(f"what it predicts is {old.metric}, to {old.goal}")
            if why := next(filter(None, wrong), ""):
                becomes = "replaced"
        changes.append({"context_key": key, "becomes": becomes, "why": why})
    return changes


def _wrong(before: _HistoryView, after: _HistoryView, key: str, config: Mapping[str, Value]) -> str:
    """Why a configuration that is published would be no more; empty where it may."""
    own = after.own(key, config)
    if not after.encodes(key, own):
        return after.why_not(key, own)
    name = candidate_id(after.study.name, key, own)
    if key in before.jobs and before.fails(
        key, candidate_id(before.study.name, key, before.own(key, config))
    ):
        return ""  # a campaign tries it all the same
    return after.fails(key, name)


def _incumbents(
    store: Store,
    before: _HistoryView,
    after: _HistoryView,
    becomes: Mapping[tuple[str, str], tuple[str, str, bool, str]],
) -> tuple[int, list[dict[str, Any]]]:
    """How many best known configurations stay; what becomes of the others."""
    followed = _told(store, before.study.name)
    succession = GenerationMapping(
        after.study,
        before.study,
        {key: history.context for key, history in before.contexts.items()},
    )
    anew = not succession.comparable
    stay, incumbents = 0, []
    for key in before.jobs:
        name = followed.get(key) or before.best(key)
        if name is None or (key, name) not in becomes:
            continue
        new_key, new_name, is_known, why = becomes[key, name]
        falls = after.unmeasured(new_key, new_name) if is_known else why or "not in the space"
        best: str | None = new_name
        # Within a context, by one objective, what is established stays; where several have become
        # one, the evidence is asked.
        if not falls and (anew or not succession.passes_on(key, new_key)):
            best = after.best(new_key)
        if not falls and best in (new_name, None):
            stay += 1
            continue
        better = f"{new_key} has a better one"
        if best is not None and new_key == key:
            config = after.contexts[key].evidence.trials[best].config
            better = f"best measured is {written_config(config)}"
        trial = before.contexts[key].evidence.trials.get(name)
        incumbents.append(
            {
                "context_key": key,
                "becomes": "falls out" if falls else "changes",
                "why": falls or better,
                "config": dict(trial.config) if trial else {},
                "jobs": trial.runs if trial else 0,
            }
        )
    return stay, incumbents


def _told(store: Store, study: str) -> dict[str, str]:
    """Names of the incumbents that recommendations have, by context key."""
    configs = {}
    for row in store.recommendations(study):
        if row.state == "active":
            message = from_bytes(row.value.encode())
            if message.incumbent is not None:
                configs[row.context_key] = candidate_id(
                    study, row.context_key, message.incumbent.config
                )
    return configs


def _orders(store: Store, new: Study) -> list[dict[str, Any]]:
    saved = store.study_state(new.name)
    given = map(Override.load, saved.state.get("orders", []) if saved else [])
    orders = OverrideSet(new)
    return [
        {"number": override.number, "what": override.what + override.where, "why": wrong}
        for override in given
        if (wrong := orders.problem(override))
    ]
