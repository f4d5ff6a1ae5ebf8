"""What may change in a stream, and the truth about it.

Every effect is a difference in log speed: the logarithm of the objective where more is better,
minus it where less is. 20 % slower is log 0.8 whatever the goal. A change begins with a *job*, so
that nobody has to argue about clocks; the jobs around it say when that was.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Scalar, Value
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.lab.evaluation.tabular import TabularContext

__all__ = [
    "CHANGES",
    "ChangeScenario",
    "ChangeTruth",
    "InjectedChange",
    "UserBurst",
    "log_speeds",
    "make_change",
    "reversal",
]

SLOWED = 2
"""Contexts that become slower."""
BURST_CONFIGS = 3
"""Configurations that the user of a burst goes through."""


class ChangeTruth(msgspec.Struct, frozen=True, kw_only=True):
    """What happens: what a detector is to find, and no more than that."""

    kind: str
    """One of :data:`CHANGES`."""
    first_job: int
    """Number of the first job that it may act on, from 0."""
    last_job: int | None = None
    """Of the last; None where it lasts to the end."""
    contexts: tuple[str, ...] = ()
    """Keys of the contexts that it acts on."""
    size: float = 0.0
    """Share of the speed that is lost in the end; 0 where that is not what happens."""
    parameter: str | None = None
    """Whose effect is reversed."""
    feature: str | None = None
    """Of the context, that takes a value not seen before …"""
    value: Scalar = None
    """… which is this."""
    user: str | None = None
    """Whose burst it is."""
    sentence: str = ""
    """For people."""

    @property
    def is_drift(self) -> bool:
        """Whether speed itself changes for what was known before."""
        return self.kind in ("slower", "reversed", "decay")


@dataclass(frozen=True)
class UserBurst:
    """Jobs of one user that come beside the others'."""

    user: str
    context: int
    configs: tuple[int, ...]
    share: float
    """Of all jobs, while it lasts."""


@dataclass(frozen=True)
class InjectedChange:
    """A change as the stream applies it."""

    truth: ChangeTruth
    effects: Mapping[int, FloatArray] = field(default_factory=dict)
    """Context → difference in log speed of each configuration, (n,), once it is there in full."""
    grows_until: int | None = None
    """Job at which it is there in full; None for at once."""
    absent: frozenset[int] = frozenset()
    """Contexts that do not exist before."""
    burst: UserBurst | None = None

    def extent(self, number: int) -> float:
        """How much of it is there at a job, 0 to 1."""
        truth = self.truth
        if number < truth.first_job or (truth.last_job is not None and number > truth.last_job):
            return 0.0
        if self.grows_until is None:
            return 1.0
        return min((number - truth.first_job) / max(self.grows_until - truth.first_job, 1), 1.0)


def log_speeds(target: TabularContext) -> FloatArray:
    """(n,) log speed of each configuration by the table, NaN for one that never ran.

    Raises:
        MisconfiguredError: the objective is not positive everywhere.
    """
    study = target.study
    values = np.array([study.metric_value(score) for score in target.scores.tolist()])
    if np.nanmin(values) <= 0:
        problem = "streams need an objective that is positive everywhere"
        raise MisconfiguredError(
            [ValidationProblem(f"[objective] {study.objective.metric}", problem)]
        )
    logs: FloatArray = np.log(values)
    return logs if study.objective.goal == "maximize" else -logs


@dataclass(frozen=True)
class ChangeScenario:
    """What a change comes into."""

    contexts: Sequence[TabularContext]
    busy: Sequence[int]
    """Contexts with many jobs: what happens to one is to be noticed."""
    jobs: int
    first: int
    """Job with which the change begins."""
    rng: np.random.Generator


def make_change(kind: str, setting: ChangeScenario) -> InjectedChange:
    """One of :data:`CHANGES`.

    Raises:
        MisconfiguredError: these contexts have nothing that could change so.
    """
    return CHANGES[kind](setting)


def _nothing(setting: ChangeScenario) -> InjectedChange:
    return InjectedChange(
        ChangeTruth(kind="nothing", first_job=setting.jobs, sentence="Nothing changes.")
    )


def _slower(setting: ChangeScenario, size: float = 0.2) -> InjectedChange:
    contexts, first = setting.contexts, setting.first
    chosen = sorted(setting.rng.permutation(setting.busy)[:SLOWED].tolist())
    keys = tuple(contexts[c].context_key for c in chosen)
    return InjectedChange(
        ChangeTruth(
            kind="slower",
            first_job=first,
            contexts=keys,
            size=size,
            sentence=f"From job {first} on, everything is {size:.0%} slower in "
            f"{' and '.join(keys)}.",
        ),
        {c: np.full(len(contexts[c].configs), np.log1p(-size)) for c in chosen},
    )


def _reversed(setting: ChangeScenario) -> InjectedChange:
    contexts, first = setting.contexts, setting.first
    name = max(
        (parameter.name for parameter in contexts[0].study.parameters),
        key=lambda parameter: np.mean(
            [np.abs(reversal(context, parameter)).mean() for context in contexts]
        ),
    )
    effects = {c: reversal(context, name) for c, context in enumerate(contexts)}
    effects = {c: effect for c, effect in effects.items() if np.abs(effect).max() > 1e-9}
    if not effects:
        raise MisconfiguredError(
            [ValidationProblem("[parameters]", "none of them has an effect to reverse")]
        )
    return InjectedChange(
        ChangeTruth(
            kind="reversed",
            first_job=first,
            contexts=tuple(contexts[c].context_key for c in effects),
            parameter=name,
            sentence=f"From job {first} on, what {name} did is reversed: its fast values are as "
            "slow as its slow ones were fast.",
        ),
        effects,
    )


def reversal(target: TabularContext, parameter: str) -> FloatArray:
    """(n,) what to add to log speeds so that a parameter's effect is turned round.

    The effect is that of an additive model of all parameters, each value a level of its own,
    fitted to the configurations that run, so that what goes with the parameter in the table is not
    taken for it. A value that only occurs in configurations that never ran has none.
    """
    logs = log_speeds(target)
    ran = np.isfinite(logs)
    columns, owner = [np.ones(len(logs))], [""]
    for shifted in target.study.parameters:
        values = [_level(config.get(shifted.name)) for config in target.configs]
        for value in sorted({v for v, kept in zip(values, ran, strict=True) if kept}):
            columns.append(np.array([v == value for v in values], np.float64))
            owner.append(shifted.name)
    design = np.stack(columns, axis=1)
    # A trace of ridge: the levels of each parameter sum to the constant.
    weight = design[ran].T @ design[ran] + 1e-6 * np.eye(design.shape[1])
    fitted = np.linalg.solve(weight, design[ran].T @ logs[ran])
    mine = np.array([name == parameter for name in owner])
    effect = design[:, mine] @ fitted[mine]
    turned: FloatArray = -2 * (effect - effect[ran].mean())
    return turned


def _level(value: Value) -> str:
    return msgspec.json.encode(value).decode()


def _new_hardware(setting: ChangeScenario) -> InjectedChange:
    """Hold back the contexts that have one value of a feature: of a category the rarest, of a
    number the largest. A category goes first, as a GPU type would; at least half must be left."""
    contexts, first = setting.contexts, setting.first
    features = contexts[0].study.context
    for feature in sorted(features, key=lambda feature: feature.type != "category"):
        values = [context.context[feature.name] for context in contexts]
        known = [value for value in values if value is not None]
        if feature.type in ("category", "bool"):
            order = sorted(set(known), key=lambda value: (known.count(value), str(value)))
        else:
            order = sorted(set(known), key=lambda value: -float(value))
        if len(order) < 2 or known.count(order[0]) > len(contexts) / 2:
            continue
        held = [c for c, value in enumerate(values) if value == order[0]]
        return InjectedChange(
            ChangeTruth(
                kind="new_hardware",
                first_job=first,
                contexts=tuple(contexts[c].context_key for c in held),
                feature=feature.name,
                value=order[0],
                sentence=f"From job {first} on, there are jobs with {feature.name} = {order[0]}, "
                "which nobody has seen before.",
            ),
            absent=frozenset(held),
        )
    problem = "no feature has a value that could be new: all contexts are alike, or there is one"
    raise MisconfiguredError([ValidationProblem("[context]", problem)])


def _decay(setting: ChangeScenario, size: float = 0.2) -> InjectedChange:
    contexts, first = setting.contexts, setting.first
    return InjectedChange(
        ChangeTruth(
            kind="decay",
            first_job=first,
            contexts=tuple(context.context_key for context in contexts),
            size=size,
            sentence=f"From job {first} on, everything becomes slower, little by little: "
            f"{size:.0%} at the end.",
        ),
        {c: np.full(len(context.configs), np.log1p(-size)) for c, context in enumerate(contexts)},
        grows_until=setting.jobs,
    )


def _burst(setting: ChangeScenario, share: float = 0.8) -> InjectedChange:
    contexts, jobs, first, rng = setting.contexts, setting.jobs, setting.first, setting.rng
    c = int(rng.choice(setting.busy))
    ran = np.flatnonzero(np.isfinite(contexts[c].scores))
    # Slow ones: what a burst may do harm with is that they are many.
    slow = ran[np.argsort(contexts[c].scores[ran], kind="stable")][: max(len(ran) // 4, 1)]
    configs = tuple(int(i) for i in rng.permutation(slow)[:BURST_CONFIGS])
    last = min(first + max(jobs // 10, 1), jobs) - 1
    key = contexts[c].context_key
    return InjectedChange(
        ChangeTruth(
            kind="burst",
            first_job=first,
            last_job=last,
            contexts=(key,),
            user="bursty",
            sentence=f"From job {first} to job {last}, {share:.0%} of all jobs are one user's, who "
            f"tries {len(configs)} slow configurations over and over in {key}; speed is as ever.",
        ),
        burst=UserBurst("bursty", c, configs, share),
    )


CHANGES: Mapping[str, Callable[[ChangeScenario], InjectedChange]] = {
    "nothing": _nothing,
    "slower": _slower,
    "reversed": _reversed,
    "new_hardware": _new_hardware,
    "decay": _decay,
    "burst": _burst,
}
"""What may change, by name: two contexts 20 % slower, a parameter's effect reversed, a context
value that nobody has seen, a slow decay, a burst from one user."""
