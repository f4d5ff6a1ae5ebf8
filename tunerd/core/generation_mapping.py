"""What a new generation of a study takes over from the one before, beyond what history tells.

Much hangs on names: the key of a context, the id of a configuration. Both are made of names and
values as a study has them, and a new generation may name, type and count them otherwise. So what
is taken over is put into its words first: a key by what the context was, an id by what the
configuration was. Two may become one, where what told them apart is gone.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from tunerd.core.decisions.campaign import Campaign, PendingRuns
from tunerd.core.decisions.space_cache import SpaceCache
from tunerd.core.evidence.config_stats import ConfigStatsTable
from tunerd.core.evidence.paired_tests import PairedTest, PromotionGuard, RollbackReview
from tunerd.core.evidence.rollout import Rollout
from tunerd.core.evidence.uplift import UntestedIncumbents, UpliftTracker
from tunerd.core.model.history_weights import Regime
from tunerd.core.observation import Scalar, Value
from tunerd.core.recommendation import candidate_id
from tunerd.core.study import Study
from tunerd.errors import NothingFeasibleError

__all__ = ["CarryOverTarget", "GenerationMapping", "Renames", "campaign_of", "introduction_of"]

Renames = Callable[[str], str | None]
"""A candidate id of the former generation → the present one; None where there is none."""
Begun = tuple[int, float | None]
"""A sequence from which estimates began again, and by how much older ones moved; see
:meth:`tunerd.core.evidence.config_stats.ConfigStatsTable.begin_again`."""


class GenerationMapping:
    """Which context of the former generation is which now. ``before`` is its study, None where
    nobody can read it any more; ``contexts`` are the former contexts by their keys."""

    def __init__(
        self, study: Study, before: Study | None, contexts: Mapping[str, Mapping[str, Scalar]]
    ) -> None:
        self.heirs = {key: study.context_key(context) for key, context in contexts.items()}
        """Former key → the present one."""
        self.parents: dict[str, list[str]] = {}
        """Present key → the former ones."""
        for key, heir in self.heirs.items():
            self.parents.setdefault(heir, []).append(key)
        self.comparable = before is not None and study.scores_like(before)
        """Whether scores mean the same, so that one can be held against the other."""
        self.same_space = before is not None and _space(before) == _space(study)
        """Whether configurations and what rules them out are as they were."""

    def passes_on(self, key: str, heir: str) -> bool:
        """Whether what was found out in a former context holds in a present one: where several
        became one, it was found out beside jobs that are no longer apart."""
        return self.heirs.get(key) == heir and len(self.parents[heir]) == 1

    def regimes(self, former: Iterable[Regime]) -> tuple[Regime, ...]:
        """Regimes, by present keys. One of contexts that this generation does not know goes, and
        one that acted on some of those that became one."""
        regimes = []
        for regime in former:
            if regime.keys is None:
                regimes.append(regime)
                continue
            acted = set(regime.keys)
            keys = sorted(heir for heir, whence in self.parents.items() if acted >= set(whence))
            if keys:
                regimes.append(replace(regime, keys=tuple(keys)))
        return tuple(regimes)

    def begun(self, told: Mapping[str, Iterable[Begun]]) -> dict[str, list[Begun]]:
        """When estimates began again, by present keys, given it by former ones; of several that
        became one what they have in common."""
        changes = {}
        for heir, (first, *others) in self.parents.items():
            both = set.intersection(
                *({since for since, _ in told.get(context, ())} for context in (first, *others))
            )
            if kept := [(since, moved) for since, moved in told.get(first, ()) if since in both]:
                changes[heir] = sorted(kept, key=lambda change: change[0])
        return changes


@dataclass(frozen=True, slots=True)
class CarryOverTarget:
    """A context of the present generation that takes over from a former one."""

    study: Study
    spaces: SpaceCache
    key: str
    context: Mapping[str, Scalar]

    def now(self, config: Mapping[str, Value]) -> tuple[str, dict[str, Value]] | None:
        """Id and configuration, as they are now, of a configuration of the former generation; None
        where it is none any more. Where nothing at all is feasible, that may be a slip of the pen:
        then nothing is lost."""
        own = self.spaces.own_config(self.key, self.context, config)
        try:
            if self.spaces.get(self.key, self.context).encode(own) is None:
                return None
        except NothingFeasibleError:
            pass
        return candidate_id(self.study.name, self.key, own), own

    def renamed(
        self, former: ConfigStatsTable, present: ConfigStatsTable, former_id: str
    ) -> str | None:
        """The present id of a configuration that both have evidence of; None where there is
        none."""
        trial = former.trials.get(former_id)
        if trial is None:
            return None
        if (renamed_id := self.now(trial.config)) is not None:
            return renamed_id[0] if renamed_id[0] in present.trials else None
        return self._most_run(trial.config, present)

    def _most_run(self, config: Mapping[str, Value], present: ConfigStatsTable) -> str | None:
        """Of configurations that are told apart by a parameter which the study knows only now, and
        were one without it, the one that ran most."""
        named = self.study.named(config)
        if all(parameter.name in named for parameter in self.study.parameters):
            return None
        alike = [
            (trial.runs, trial.last_sequence, candidate)
            for candidate, trial in present.measured()
            if all(trial.config.get(name) == value for name, value in named.items())
            and self.now(trial.config) is not None
        ]
        return max(alike)[2] if alike else None


def _space(study: Study) -> tuple[object, ...]:
    return study.parameters, study.derived, study.constraints, study.lookups, study.context


def introduction_of(former: Rollout, renamed: Renames) -> Rollout:
    """What was being introduced, by present ids. Of tests that become one, the one with most runs
    goes on. Without its incumbent nothing is left to hold anything against: the next one is elected
    by the estimates, and its lead begins at zero."""
    made = replace(former)
    incumbent = made.incumbent = _new(former.incumbent, renamed)
    if former.incumbent is not None and incumbent is None:
        made = Rollout(
            scale=former.scale,
            noise_squares=former.noise_squares,
            noise_weight=former.noise_weight,
        )
    duels: dict[str, PairedTest] = {}
    for cid, duel in former.duels.items() if incumbent is not None else ():
        new = _new(cid, renamed)
        if new is None or new == incumbent:
            continue
        if new not in duels or duels[new].runs < duel.runs:
            duels[new] = duel
    made.duels = duels
    made.closed = {}
    for cid, sequence in former.closed.items():
        new = _new(cid, renamed)
        if new is not None and new != incumbent and new not in duels:
            made.closed[new] = max(sequence, made.closed.pop(new, 0))
    if incumbent is not None:
        made.uplift = _leads(former.uplift, renamed)
        made.probation = _probation(former.probation, incumbent, renamed)
        made.doubt = _doubt(former.doubt, incumbent, renamed)
    made.formers = _others(former.formers, incumbent, renamed)
    made.recheck = _others(former.recheck, incumbent, renamed)
    made.fallen = [
        replace(rival, candidate_id=new)
        for rival in former.fallen
        if (new := renamed(rival.candidate_id)) is not None and new != incumbent
    ]
    made.verdicts = [
        replace(verdict, candidate_id=renamed(verdict.candidate_id) or verdict.candidate_id)
        for verdict in former.verdicts
    ]
    return made


def campaign_of(
    former: Campaign, now: Callable[[Mapping[str, Value]], tuple[str, dict[str, Value]] | None]
) -> tuple[Campaign, int]:
    """A campaign that asks for what ``now`` makes of its configurations, by present ids; and how
    many of them had to be dropped, because that is None. Where two have become one, the runs of
    both count for it."""
    asks: dict[str, PendingRuns] = {}
    dropped = 0
    for ask in former.asks:
        config = now(ask.config)
        if config is None:
            dropped += 1
        elif config[0] in asks:
            asks[config[0]].missing += ask.missing - former.repeats
        else:
            asks[config[0]] = PendingRuns(*config, ask.missing)
    return replace(former, asks=list(asks.values())), dropped


def _probation(
    former: PromotionGuard | None, incumbent: str | None, renamed: Renames
) -> PromotionGuard | None:
    before = None if former is None else renamed(former.former)
    if former is None or before is None or before == incumbent:
        return None
    return replace(former, former=before)


def _doubt(
    former: RollbackReview | None, incumbent: str | None, renamed: Renames
) -> RollbackReview | None:
    doubted = None if former is None else renamed(former.candidate_id)
    if former is None or doubted is None or doubted == incumbent:
        return None
    return replace(former, candidate_id=doubted)


def _leads(former: UpliftTracker, renamed: Renames) -> UpliftTracker:
    earlier = ((renamed(cid), ahead) for cid, ahead in former.earlier.items())
    return UpliftTracker(
        former.ahead,
        {cid: ahead for cid, ahead in earlier if cid is not None},
        _untested(former.untested, renamed),
    )


def _untested(former: UntestedIncumbents | None, renamed: Renames) -> UntestedIncumbents | None:
    before = None if former is None else renamed(former.former)
    if former is None or before is None:
        return None
    runs = {new: runs for cid, runs in former.runs.items() if (new := renamed(cid)) is not None}
    runs.pop(before, None)
    return replace(former, former=before, runs=runs)


def _new(candidate_id: str | None, renamed: Renames) -> str | None:
    return None if candidate_id is None else renamed(candidate_id)


def _others(ids: Iterable[str], incumbent: str | None, renamed: Renames) -> list[str]:
    new = dict.fromkeys(map(renamed, ids))
    return [cid for cid in new if cid is not None and cid != incumbent]
