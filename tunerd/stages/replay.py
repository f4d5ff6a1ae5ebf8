"""Deriving a recommendation again from history, to show that it is the same or what differs.

History is read from its first job: its digest is compared with what each step kept, and what the
context's jobs said is gathered once more. The model is fitted again on the sample that its fit saw
and learns on in the steps in which it learned then; so it goes through recovery's own code
(``Tuner.restore``). Then the context is searched and the advice is made into a message, which has
to be the one that was said, bit for bit.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from tunerd import __version__
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.decisions.lifecycle import compose
from tunerd.core.decisions.overrides import Override, OverrideSet
from tunerd.core.features import FeatureMap
from tunerd.core.hash_chain import HashChain
from tunerd.core.model.history_weights import Regime
from tunerd.core.model.training import PORTION_MOST, ModelTrainer, portions
from tunerd.core.observation import Observation
from tunerd.core.recommendation import MadeFrom, Recommendation
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.errors import MisconfiguredError, NothingFeasibleError
from tunerd.events import from_bytes, to_bytes
from tunerd.stages.build_info import build
from tunerd.stages.checkpoints import manifest_of, parts_of
from tunerd.stages.provenance import tuner_of
from tunerd.store import (
    CorruptCheckpointError,
    ProvenanceRow,
    PrunedHistory,
    Store,
    TuneStep,
    checkpoint_name,
)

__all__ = [
    "FieldDifference",
    "How",
    "Progress",
    "ReplayCheck",
    "ReplayResult",
    "derive",
    "differences",
]

How = Literal["auto", "rebuilt", "kept"]
Progress = Callable[[str, int, int], None]
"""Is told what is done, how much of it, and of how much."""

States = Mapping[str, Mapping[str, Any]]
"""State of each context, by its key."""

BATCH = 1_000
MOST_PORTIONS = 300
"""Portions that a model is let learn again unasked: each takes a tenth of a second."""


@dataclass(frozen=True, slots=True)
class ReplayCheck:
    """One thing that was looked at."""

    what: str
    same: bool | None
    """None where it could not be told."""
    text: str
    """For a person; where it is not the same, the likely reason for what differs."""


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field of the message that came out otherwise."""

    field: str
    said: Any
    derived: Any


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What came of deriving."""

    kept: ProvenanceRow
    checks: tuple[ReplayCheck, ...]
    message: Mapping[str, Any] | None
    """None where it could not be made again; the checks say why."""
    differences: tuple[FieldDifference, ...]

    @property
    def same(self) -> bool:
        """Whether all that was looked at is the same, bit for bit."""
        same = [check.same for check in self.checks]
        return self.message is not None and not self.differences and False not in same


def derive(
    store: Store,
    kept: ProvenanceRow,
    how: How = "auto",
    progress: Progress = lambda what, done, of: None,  # noqa: ARG005 - nobody watches
) -> ReplayResult:
    """Make a recommendation again. Reads the store and changes nothing."""
    with ThreadPoolExecutor(1) as background:
        work = _ReplayRun(store, kept, how, progress, background)
        message = work.message()
    kept_message = dict(kept.message)
    derived_message = None if message is None else msgspec.json.decode(to_bytes(message))
    differing = [] if derived_message is None else differences(kept_message, derived_message)
    return ReplayResult(kept, tuple(work.checks), derived_message, tuple(differing))


@dataclass
class _ReplayRun:
    store: Store
    kept: ProvenanceRow
    how: How
    progress: Progress
    background: ThreadPoolExecutor
    checks: list[ReplayCheck] = field(default_factory=list)
    pruned: PrunedHistory | None = None

    def message(self) -> Recommendation | None:
        """The recommendation, made again as far as that is possible."""
        self.pruned = self.store.pruned_history(self.kept.study)
        self._check_build()
        study = self._study()
        if study is None:
            return None
        self._check_orders(study)
        try:
            states = self._states(study)
            tuner = self._tuner(study, states)
        except (KeyError, msgspec.ValidationError) as error:
            why = f"it wants {error}" if isinstance(error, KeyError) else str(error)
            self._say("model", None, f"This build does not read what was kept then: {why}.")
            return None
        except (LookupError, CorruptCheckpointError, ValueError) as error:
            self._say("model", None, f"It cannot be made again: {error}.")
            return None
        return self._searched(study, tuner)

    def _say(self, what: str, same: bool | None, text: str) -> None:
        self.checks.append(ReplayCheck(what, same, text))

    # -- what it is made by and from ------------------------------------------------------------

    def _check_build(self) -> None:
        then, now = self.kept.basis["build"], build()
        names = dict.fromkeys([*then, *now])
        other = [f"{n} {then.get(n)} → {now.get(n)}" for n in names if then.get(n) != now.get(n)]
        if other:
            self._say("build", False, f"Another build or machine: {'; '.join(other)}.")
        else:
            self._say("build", True, f"tunerd {__version__}, code {now['code']}, as it was then.")

    def _study(self) -> Study | None:
        kept = self.kept
        row = self.store.generation(kept.study, kept.generation)
        if row is None:
            self._say("study", False, f"Generation {kept.generation} is not in the store.")
            return None
        try:
            study = parse_study(row.text, f"{kept.study}, generation {kept.generation}")
        except MisconfiguredError as error:
            self._say(
                "study", False, f"This tunerd cannot read generation {kept.generation}: {error}"
            )
            return None
        same = study.content_hash == kept.message["made_from"]["study"]
        text = f"Generation {kept.generation}, {study.content_hash[:19]}…"
        self._say("study", same, text if same else f"{text}: its text is not what it was.")
        return study

    def _check_orders(self, study: Study) -> None:
        """That the orders are those that operators gave."""
        orders = list(map(Override.load, self.kept.basis["orders"]))
        gone = []
        for order in orders:
            command = self.store.command(order.number)
            wanted = command.arguments if command is not None else {}
            given = (wanted.get("context"), wanted.get("config", {}))
            if command is None or given != (dict(order.context), dict(order.config)):
                gone.append(f"{order.number} ({order.what}{order.where})")
        holding = [
            limit.named for limit in OverrideSet(study, orders).limits(self.kept.context_key)
        ]
        if gone:
            text = f"No command in the store gave order {', '.join(gone)}."
        else:
            text = f"{len(orders)} stood then, {len(holding)} limits held here"
            text += f": {', '.join(holding)}." if holding else "."
        self._say("orders", not gone, text)

    # -- history --------------------------------------------------------------------------------

    def _states(self, study: Study) -> "States":
        """By key, the contexts' states as the search began, with what history says of their
        jobs."""
        states: States = self.kept.basis["states"]
        states_read = self._read_history(study, states.keys())
        if self.pruned is not None:
            self._say("evidence", None, "As kept: some of the jobs that it comes from were pruned.")
            return states
        if self.kept.basis["tuner"]["training"]["regimes"]:
            text = "As kept: since a drift, what older jobs said of a configuration counts less."
            self._say("evidence", None, text)
            return states
        evidence = {
            key: msgspec.json.decode(msgspec.json.encode(state))
            for key, state in states_read.items()
        }
        other = differences({key: state["evidence"] for key, state in states.items()}, evidence)
        jobs = sum(state["jobs"] for state in evidence.values())
        where = f"{len(states)} contexts" if len(states) > 1 else "the context"
        if other:
            names = [difference.field for difference in other]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            self._say("evidence", False, f"Jobs say otherwise: {', '.join(names[:3])}{more}.")
        else:
            self._say("evidence", True, f"What {jobs:,} jobs of {where} said is the same.")
        return {key: {**state, "evidence": evidence[key]} for key, state in states.items()}

    def _read_history(self, study: Study, keys: Collection[str]) -> dict[str, Mapping[str, Any]]:
        """Check the digest of each step on the way; returns the contexts' evidence."""
        kept, tuner = self.kept, Tuner(study, self.background)
        known = FeatureMap(study, kept.basis["tuner"]["vocabulary"])
        tuner.features.quarantined = known.quarantined
        then = HashChain.load(kept.basis["chain"])
        steps = {s.sequence_to: s for s in self.store.steps_between(kept.study, 0, kept.sequence)}
        chain = self._chain_begins(then, steps.values())
        begins = chain.at
        wrong: str | None = None
        here: list[Observation] = []
        for job in self._observations(0 if self.pruned is None else begins):
            if job.sequence > begins:
                if job.sequence != chain.at + 1:
                    wrong = wrong or f"Job {chain.at + 1} is missing"
                    chain = HashChain(then.since, job.sequence - 1, chain.digest)
                chain = chain.after([job])
            step = steps.get(job.sequence) if job.sequence > begins else None
            digest = step.detail.get("history", chain.digest) if step else chain.digest
            if wrong is None and step is not None and digest != chain.digest:
                wrong = f"One of jobs {step.sequence_from:,} to {step.sequence_to:,}"
                wrong += f" (step {step.step}) is not what was learned"
            if study.context_key(job.context) in keys:
                here.append(job)
                if len(here) == BATCH:
                    tuner.remember(here)
                    here = []
        if wrong is None and chain.at < kept.sequence:
            wrong = f"History ends at job {chain.at:,}"
        if wrong is None and chain.digest != then.digest:
            wrong = "Its digest is not the one that was kept"
        self._say_history(then, begins, wrong)
        if here:
            tuner.remember(here)
        blank = ContextState({})
        return {key: tuner.contexts.get(key, blank).evidence.dump() for key in keys}

    def _chain_begins(self, then: HashChain, steps: Iterable[TuneStep]) -> HashChain:
        """Where the digest can be followed from: the beginning, or, where history was pruned, the
        end of the first step after that, whose digest is taken as it was kept."""
        if self.pruned is None or self.pruned.last_sequence <= then.since:
            return HashChain(then.since, then.since)
        for step in steps:
            if step.sequence_to >= self.pruned.last_sequence and "history" in step.detail:
                return HashChain(then.since, step.sequence_to, step.detail["history"])
        return HashChain(then.since, then.at, then.digest)

    def _say_history(self, then: HashChain, begins: int, wrong: str | None) -> None:
        """Tell what came of the digest, followed from ``begins``."""
        last = self.kept.sequence
        if self.pruned is None or begins == then.since:
            older = f"; the first {then.since:,} have no digest" if then.since else ""
            good = f"All {last:,} jobs that were learned are as they were{older}."
            self._say("history", wrong is None, good if wrong is None else f"{wrong}{older}.")
            return
        day = self.pruned.pruned_at.date().isoformat()
        gone = f"history before job {self.pruned.last_sequence + 1:,} was pruned, last on {day}"
        if begins >= last:
            text = f"It cannot be checked: {gone}, and no digest leads on from there."
            self._say("history", None, text)
            return
        good = f"The {last - begins:,} jobs learned since job {begins:,} are as they were; {gone}."
        self._say("history", wrong is None, good if wrong is None else f"{wrong}; {gone}.")

    def _observations(self, after: int) -> Iterator[Observation]:
        at, last = after, self.kept.sequence
        while at < last:
            batch = self.store.observations(self.kept.study, after=at, limit=BATCH)
            for job in batch:
                if job.sequence <= last:
                    yield job
            if not batch:
                return
            at = batch[-1].sequence
            self.progress("reading history", min(at, last), last)

    # -- the model ------------------------------------------------------------------------------

    def _tuner(self, study: Study, states: States) -> Tuner:
        """The study's tuner as it was, its model fitted and taught again where that can be.

        Raises:
            LookupError: a checkpoint or a job is gone.
            DamagedCheckpointError: a checkpoint is not what it was.
            ValueError: a part does not fit.
        """
        name: str | None = self.kept.message["made_from"]["model"]
        if name is None:
            self._say("model", True, "There was none yet.")
            return self._restored(study, states, None, [])
        try:
            parts: Mapping[str, bytes] | None = parts_of(self.store, self.kept.study, name)
            gone = ""
        except (LookupError, CorruptCheckpointError) as error:
            parts, gone = None, f"{error}"
        plan = self._plan(parts)
        if isinstance(plan, str):
            if parts is None:
                raise LookupError(f"{gone}, and it cannot be fitted again: {plan}")
            self._say("model", None, f"Taken from its checkpoint, not fitted again: {plan}.")
            return self._restored(study, states, parts, [])
        try:
            tuner = self._taught(study, states, plan)
        except LookupError:
            if parts is None or self.pruned is None:
                raise
            why = "some of the jobs that its fit saw were pruned"
            self._say("model", None, f"Taken from its checkpoint, not fitted again: {why}.")
            return self._restored(study, states, parts, [])
        assert tuner.model is not None
        dumped = tuner.model.dump()
        if parts is None:
            same = _name_of(dumped) == name
            how = "is the one that was named" if same else "has another name than was said"
            self._say("model", same, f"{gone}; {plan.text}, it {how}.")
        elif other := [part for part in parts if parts[part] != dumped.get(part)]:
            self._say("model", False, f"{plan.text}, it differs in {', '.join(other)}.")
        else:
            self._say("model", True, f"{plan.text}, it is the same, bit for bit.")
        return tuner

    def _plan(self, parts: Mapping[str, bytes] | None) -> "_ReplayPlan | str":
        """From where the model can be made again; or why not."""
        kept = self.kept
        versions = [
            version
            for version in self.store.models(kept.study)
            if version.took_over
            and version.generation == kept.generation
            and version.decided_sequence <= kept.sequence
        ]
        if self.how == "kept" and parts is not None:
            return "as asked for"
        if not versions:
            return "the store has forgotten when it was fitted"
        served = versions[0]
        steps = self.store.steps_between(kept.study, served.fitted_sequence, kept.sequence)
        if not _lead(steps, served.fitted_sequence, kept.sequence):
            return "what it learned since its fit is not kept step by step any more"
        lasting = [s for s in steps if s.swapped_model and s.sequence_to > served.decided_sequence]
        start: int | str = served.fitted_sequence
        text = f"Fitted again on what was known at job {start:,}"
        if served.why in ("back", "latest"):
            return "an operator went back to it"
        if lasting:
            anchor = lasting[-1]
            assert anchor.swapped_model is not None
            start = anchor.swapped_model
            text = f"From its checkpoint at job {anchor.sequence_to:,}, where a drift was found"
            steps = [step for step in steps if step.sequence_from > anchor.sequence_to]
        todo = [
            (first, last)
            for step in steps
            for first, last in portions(step.sequence_from, step.sequence_to, PORTION_MOST)
            if isinstance(start, str) or last > start
        ]
        if self.how == "auto" and len(todo) > MOST_PORTIONS and parts is not None:
            return (
                f"it learned {len(todo):,} times since its fit (--model rebuilt does it all again)"
            )
        return _ReplayPlan(start, todo, f"{text} and taught {len(todo):,} times")

    def _taught(self, study: Study, states: States, plan: "_ReplayPlan") -> Tuner:
        if isinstance(plan.start, str):
            parts = parts_of(self.store, self.kept.study, plan.start)
        else:
            self.progress("fitting", 0, 1)
            basis = self.kept.basis["tuner"]
            training = ModelTrainer(study, FeatureMap(study, basis["vocabulary"]), self.background)
            training.regimes = tuple(map(Regime.load, basis["training"]["regimes"]))
            parts = training.fit_at(plan.start, self._fetch(0)).dump()
        return self._restored(study, states, parts, plan.todo, whole=True)

    def _restored(
        self,
        study: Study,
        states: States,
        parts: Mapping[str, bytes] | None,
        todo: Sequence[tuple[int, int]],
        *,
        whole: bool = False,
    ) -> Tuner:
        """The tuner with a model that learns again, for which the sample has to be ``whole``."""
        fetch = self._fetch(len(todo), whole=whole)
        return tuner_of(study, self.background, self.kept.basis, states, parts, todo, fetch)

    def _fetch(
        self, portions: int, *, whole: bool = True
    ) -> Callable[[Sequence[int]], Sequence[Observation]]:
        done = 0

        def fetch(sequences: Sequence[int]) -> Sequence[Observation]:
            nonlocal done
            if portions:
                self.progress("learning again", min(done, portions), portions)
            done += 1
            read = self.store.observations_at if whole else self.store.observations_left
            return read(self.kept.study, sequences)

        return fetch

    # -- the decision ---------------------------------------------------------------------------

    def _searched(self, study: Study, tuner: Tuner) -> Recommendation | None:
        kept = self.kept
        message = from_bytes(msgspec.json.encode(kept.message))
        running = kept.basis["running"]
        self.progress("searching", 0, 1)
        try:
            advice = tuner.advise(
                kept.context_key,
                None if running is None else from_bytes(msgspec.json.encode(running)),
                brief=kept.basis.get("brief", False),
            )
        except NothingFeasibleError as error:
            self._say("search", False, f"Nothing is feasible there: {error}.")
            return None
        model = tuner.model
        derived = compose(
            study,
            kept.context_key,
            tuner.state(kept.context_key),
            advice,
            MadeFrom(
                sequence=tuner.sequence,
                model=None if model is None else _name_of(model.dump()),
                study=study.content_hash,
                seeds=study.search.seeds,
                tunerd=__version__,
            ),
            revision=message.revision,
            now=message.issued_at,
            valid=message.valid_until - message.issued_at,
        )
        # What was foreseen then is not in history: it is taken as it was said.
        return replace(derived, valid_from=message.valid_from, forecast=message.forecast)


@dataclass(frozen=True, slots=True)
class _ReplayPlan:
    start: int | str
    """Sequence of the fit, or a checkpoint."""
    todo: list[tuple[int, int]]
    """Portions to learn since."""
    text: str


def _lead(steps: Sequence[TuneStep], first: int, last: int) -> bool:
    """Whether steps, oldest first, lead from one observation to another without a gap."""
    at = first
    for step in steps:
        if step.sequence_from > at + 1:
            return False
        at = step.sequence_to
    return at == last


def _name_of(parts: Mapping[str, bytes]) -> str:
    """What the checkpoint of a model with these parts is called."""
    return checkpoint_name(
        manifest_of({part: checkpoint_name(blob) for part, blob in parts.items()})
    )


def differences(said: Any, derived: Any) -> list[FieldDifference]:
    """Field by field, what two JSON values do not have in common."""
    return list(_differences("", said, derived))


def _differences(where: str, said: Any, derived: Any) -> Iterator[FieldDifference]:
    if isinstance(said, dict) and isinstance(derived, dict):
        for name in dict.fromkeys([*said, *derived]):
            inner = f"{where}.{name}" if where else name
            yield from _differences(inner, said.get(name), derived.get(name))
    elif isinstance(said, list) and isinstance(derived, list) and len(said) == len(derived):
        for i, (left, other) in enumerate(zip(said, derived, strict=True)):
            yield from _differences(f"{where}[{i}]", left, other)
    elif said != derived or type(said) is not type(derived):
        yield FieldDifference(where, said, derived)
