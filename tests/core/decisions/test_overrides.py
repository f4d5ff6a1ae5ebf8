"""Operators' orders: where they hold, what they rule out, and that nothing ever breaks a limit."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.tuning import START, Inline, random_jobs, study
from tunerd.core.decisions.campaign import Campaign
from tunerd.core.decisions.overrides import Override, OverrideSet
from tunerd.core.observation import Scalar, Value
from tunerd.core.recommendation import Advice
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.errors import NothingFeasibleError

LAYERED = """
schema = 1
name = "layered"
[objective]
metric = "speed"
goal = "maximize"
[context]
gpu = { type = "category" }
size = { type = "float", key = { bucket = 2 } }
host = { type = "category", key = "ignore" }
[parameters]
tp = { type = "int", values = [1, 2, 4, 8] }
reserved = { type = "float", low = 0.77, high = 0.85, step = 0.01 }
mode = { type = "category", values = ["it's", "say \\"x\\"", "a|b=c", "plain"] }
fused = { type = "bool" }
sharding = { type = "category", values = ["FULL", "GRAD", "NO"], repeat = 48 }
[constraints]
few = "count(sharding == 'NO') <= 20"
"""


def layered() -> Study:
    return parse_study(LAYERED)


def pin(
    number: int, config: Mapping[str, Scalar], context: Mapping[str, Scalar] | None = None
) -> Override:
    return Override(number, "pin", context or {}, config)


def forbid(
    number: int, config: Mapping[str, Scalar], context: Mapping[str, Scalar] | None = None
) -> Override:
    return Override(number, "forbid", context or {}, config)


def key(one: Study, **context: Scalar) -> str:
    return one.context_key(context)


# ── where they hold ──────────────────────────────────────────────────────────────────────────


def test_an_order_holds_where_the_context_has_its_values() -> None:
    one = layered()
    orders = OverrideSet(one, [pin(1, {"tp": 8}, {"gpu": "A 100"}), forbid(2, {"tp": 1})])
    assert [o.number for o in orders.limits(key(one, gpu="A 100", size=3.0))] == [1, 2]
    assert [o.number for o in orders.limits(key(one, gpu="A", size=3.0))] == [2]
    assert orders.study_in(key(one, gpu="A")).constraints[1].name == "forbid 2"


def test_values_of_one_bucket_are_one_and_missing_is_a_value() -> None:
    one = layered()
    orders = OverrideSet(
        one, [pin(1, {"tp": 8}, {"size": 5.0}), pin(2, {"fused": True}, {"gpu": None})]
    )
    assert [o.number for o in orders.limits(key(one, gpu="a", size=4.1))] == [1]
    assert orders.limits(key(one, gpu="a", size=8.1)) == ()
    assert [o.number for o in orders.limits(key(one, size=100.0))] == [2]


def test_pauses_over_and_within() -> None:
    one = layered()
    gpu = Override(1, "pause", {"gpu": "a"})
    both = Override(2, "pause", {"gpu": "a", "size": 4.0})
    orders = OverrideSet(one, [gpu, both])
    assert orders.paused(key(one, gpu="a", size=64.0)) == gpu
    assert orders.paused(key(one, gpu="b", size=4.0)) is None
    assert orders.all_paused is None
    assert orders.pauses_over({"gpu": "a", "size": 5.0}) == [gpu, both]
    assert orders.pauses_within({"gpu": "a"}) == [gpu, both]
    assert orders.pauses_within({"size": 4.0}) == [both]
    everything = Override(3, "pause")
    orders = orders.given(everything)
    assert orders.all_paused == everything
    assert orders.lifted([1, 3]).standing == (both,)
    assert orders.limits(key(one, gpu="a")) == ()


# ── what does not fit ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (pin(1, {"tpp": 8}), "no parameter 'tpp'; did you mean 'tp'?"),
        (pin(1, {"tp": 3}), "tp = 3 is outside the space: its values are 1, 2, 4, 8"),
        (pin(1, {"tp[0]": 8}), "tp is a single value"),
        (forbid(1, {"sharding[48]": "NO"}), "positions 0 to 47"),
        (forbid(1, {"sharding[-1]": "NO"}), "no parameter 'sharding'"),
        (pin(1, {"sharding[any]": "SOME"}), "its values are 'FULL', 'GRAD', 'NO'"),
        (pin(1, {"reserved": 0.775}), "reserved = 0.775 is outside the space"),
        (pin(1, {"tp": 8}, {"gpus": "a"}), "no context feature 'gpus'; did you mean 'gpu'?"),
        (pin(1, {"tp": 8}, {"host": "a"}), "not told apart by 'host'"),
        (pin(1, {"tp": 8}, {"size": "big"}), "size = 'big' is not of type float"),
    ],
)
def test_an_order_that_does_not_fit_is_named_and_does_nothing(order: Override, said: str) -> None:
    orders = OverrideSet(layered(), [order])
    assert said in (orders.problem(order) or "")
    assert orders.standing == (order,)
    assert orders.limits("layered|gpu=a|size=1") == ()


def test_an_order_comes_back_from_json() -> None:
    order = Override(7, "pin", {"gpu": "a", "size": None}, {"tp": 8, "fused": True}, "why not")
    assert Override.load(order.dump()) == order
    assert order.what + order.where == "pin tp = 8, fused = true where gpu = a, size = ~"
    assert order.named == "pin 7 (tp = 8, fused = true)"


# ── limits as constraints ────────────────────────────────────────────────────────────────────


def test_a_pin_of_many_layers() -> None:
    one = layered()
    space = SearchSpace(
        OverrideSet(one, [pin(1, {"sharding": "GRAD", "tp": 4})]).study_in("layered"), {}
    )
    for config in map(space.decode, space.sample(20, np.random.default_rng(0))):
        assert config["sharding"] == ["GRAD"] * 48
        assert config["tp"] == 4


@pytest.mark.parametrize("text", ["it's", 'say "x"', "a|b=c"])
def test_any_text_can_be_pinned(text: str) -> None:
    space = SearchSpace(OverrideSet(layered(), [pin(1, {"mode": text})]).study_in("layered"), {})
    configs = [space.decode(code) for code in space.sample(20, np.random.default_rng(0))]
    assert {config["mode"] for config in configs} == {text}


def test_positions() -> None:
    limits = [
        forbid(1, {"sharding[any]": "NO"}),
        pin(2, {"sharding[3]": "GRAD"}),
        forbid(3, {"sharding": "GRAD", "tp": 8}),
    ]
    orders = OverrideSet(layered(), limits)
    space = SearchSpace(orders.study_in("layered"), {})
    for config in map(space.decode, space.sample(50, np.random.default_rng(0))):
        sharding = config["sharding"]
        assert isinstance(sharding, list)
        assert "NO" not in sharding
        assert sharding[3] == "GRAD"
        assert orders.broken("layered", config) is None
    assert orders.broken("layered", {"tp": 8, "sharding": ["GRAD"] * 48}) == limits[2]
    assert orders.broken("layered", {"sharding": "NO"}) == limits[0]
    assert orders.broken("layered", {"tp": 8}) is None  # it does not say


def test_what_cannot_be_is_explained_by_the_orders_names() -> None:
    one = study()
    limited = OverrideSet(
        one, [pin(12, {"x": 8}), forbid(13, {"x": 8, "y": "a"}), pin(14, {"y": "a"})]
    )
    with pytest.raises(NothingFeasibleError) as error:
        SearchSpace(limited.study_in("toy|n=16"), {"n": 16})
    for part in ("'pin 12' (x == 8)", "'forbid 13' (not (x == 8 and y == a))", "'pin 14'"):
        assert part in str(error.value)


def test_a_partial_configuration_is_completed_by_what_is_pinned() -> None:
    orders = OverrideSet(
        layered(), [pin(1, {"tp": 8, "sharding": "FULL"}), forbid(2, {"fused": True})]
    )
    assert orders.completed("layered", {"mode": "plain"}) == {
        "mode": "plain",
        "tp": 8,
        "sharding": ["FULL"] * 48,
    }
    assert orders.completed("layered", {"tp": 2})["tp"] == 2


# ── whatever limits there are ────────────────────────────────────────────────────────────────

VALUES: dict[str, list[Scalar]] = {
    "x": [1, 2, 3, 4, 5, 6, 7, 8],
    "y": ["a", "b", "c"],
    "z": [True, False],
}
configs = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in VALUES.items()}
).filter(bool)
contexts = st.sampled_from([{}, {}, {"n": 4}, {"n": 8}, {"n": 16}])
limit_lists = st.lists(
    st.tuples(st.sampled_from(["pin", "forbid", "forbid", "forbid"]), contexts, configs),
    min_size=1,
    max_size=6,
)


def keeps(config: Mapping[str, Value], kind: str, limit: Mapping[str, Scalar]) -> bool:
    """What a limit means, said once more and otherwise."""
    hits = sum(config[name] == value for name, value in limit.items() if name in config)
    if kind == "pin":
        return hits == sum(name in config for name in limit)
    return hits < len(limit)


@pytest.mark.slow
@given(limit_lists, st.sampled_from([4, 8, 16]))
def test_a_limited_space_is_the_space_without_what_the_limits_rule_out(
    limits: list[tuple[str, dict[str, int], dict[str, Scalar]]], n: int
) -> None:
    one, where = study(), f"toy|n={n}"
    orders = OverrideSet(one, [_order(i, *limit) for i, limit in enumerate(limits)])
    whole = SearchSpace(one, {"n": n})
    table = whole.table(1000)
    assert table is not None
    here = [(kind, config) for kind, context, config in limits if context.get("n", n) == n]
    kept = [
        config
        for config in map(whole.decode, table)
        if all(keeps(config, kind, limit) for kind, limit in here)
    ]
    assert all((orders.broken(where, c) is None) == (c in kept) for c in map(whole.decode, table))
    if not kept:
        with pytest.raises(NothingFeasibleError):
            SearchSpace(orders.study_in(where), {"n": n})
        return
    space = SearchSpace(orders.study_in(where), {"n": n})
    limited = space.table(1000)
    assert limited is not None
    assert sorted(map(space.decode, limited), key=str) == sorted(kept, key=str)


def _order(number: int, kind: str, context: dict[str, int], config: dict[str, Scalar]) -> Override:
    return Override(number, kind, context, config)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def learned() -> Tuner:
    return learned_tuner()


def learned_tuner() -> Tuner:
    """It has seen jobs all over the space."""
    tuner = Tuner(study(evaluations="60"), Inline())
    tuner.learn(random_jobs(90))
    return tuner


@pytest.mark.slow
@settings(max_examples=40)
@given(limit_lists, st.sampled_from([4, 8, 16]), st.booleans())
def test_no_advice_breaks_a_limit(
    learned: Tuner,
    limits: list[tuple[str, dict[str, int], dict[str, Scalar]]],
    n: int,
    campaign: bool,
) -> None:
    where = f"toy|n={n}"
    learned.impose(
        OverrideSet(learned.study, [_order(i, *limit) for i, limit in enumerate(limits)])
    )
    try:
        if campaign:
            _begin_campaign(learned, n)
        advice = learned.advise(where, None)
    except NothingFeasibleError as error:
        problem = str(error)
    else:
        problem = ""
    learned.contexts[where].campaign = None
    if problem:
        assert "'pin " in problem or "'forbid " in problem
        return
    here = [(kind, config) for kind, context, config in limits if context.get("n", n) == n]
    for config in _said(advice):
        assert all(keeps(config, kind, limit) for kind, limit in here), (config, here)
    assert ("Limits here: " in advice.reason) == bool(here)


def _begin_campaign(tuner: Tuner, n: int) -> None:
    tuner.start_campaign({"n": n}, Campaign(jobs=6, rounds=1, round_size=2), START)


def _said(advice: Advice) -> list[Mapping[str, Value]]:
    said = [candidate.config for candidate in advice.candidates]
    said += [advice.incumbent.config] if advice.incumbent else []
    return said + ([advice.baseline] if advice.baseline else [])


@pytest.mark.slow
def test_a_reason_says_what_a_limit_holds_back() -> None:
    learned = learned_tuner()  # advice under limits leaves its traces in who leads
    where = "toy|n=8"
    learned.impose(OverrideSet(learned.study))
    free = learned.advise(where, None)
    assert free.incumbent is not None
    assert free.baseline is not None
    assert "Limits" not in free.reason
    best = {name: one for name, one in free.incumbent.config.items() if not isinstance(one, list)}
    learned.impose(OverrideSet(learned.study, [forbid(12, best), forbid(13, {"x": 1})]))
    held = learned.advise(where, None)
    assert "Limits here: forbid 12 (x = " in held.reason
    assert "measured configuration" in held.reason
    assert "They rule out the baseline." in held.reason
    assert held.baseline is None
    learned.impose(OverrideSet(learned.study))
    assert learned.advise(where, None).candidates == free.candidates


@pytest.mark.slow
def test_a_campaign_goes_on_without_what_a_limit_rules_out(learned: Tuner) -> None:
    learned.impose(OverrideSet(learned.study))
    _begin_campaign(learned, 16)
    learned.advise("toy|n=16", None)
    learned.impose(OverrideSet(learned.study, [pin(1, {"y": "a"})]))
    advice = learned.advise("toy|n=16", None)
    wanted = [candidate for candidate in advice.candidates if candidate.wanted]
    assert 0 < len(wanted) < 6
    assert learned.cancel_campaign("toy|n=16") == len(wanted)
    assert learned.cancel_campaign("toy|n=16") is None
    assert learned.advise("toy|n=16", None).round is None


@pytest.mark.parametrize("left", [True, False])
def test_a_round_of_which_a_limit_leaves_nothing_is_followed_by_the_next(
    learned: Tuner, left: bool
) -> None:
    """At once: where no job comes, nothing else brings another look at the context. Where all that
    is allowed was tried already, the campaign is over."""
    learned.impose(OverrideSet(learned.study))
    learned.start_campaign({"n": 16}, Campaign(4, 2, 3), START)
    advice = learned.advise("toy|n=16", None)
    asked = [_plain(c.config) for c in advice.candidates if c.wanted]
    assert (advice.round, len(asked)) == (0, 4)
    limits = [forbid(number, config) for number, config in enumerate(asked, 1)]
    if not left:
        limits = [pin(1, _plain(learned.contexts["toy|n=16"].evidence.measured()[0][1].config))]
    learned.impose(OverrideSet(learned.study, limits))
    advice = learned.advise("toy|n=16", None)
    wanted = [c for c in advice.candidates if c.wanted]
    assert (advice.round, len(wanted)) == ((1, 3) if left else (None, 0))
    assert learned.cancel_campaign("toy|n=16") == (3 if left else None)


def _plain(config: Mapping[str, Value]) -> dict[str, Scalar]:
    return {name: one for name, one in config.items() if not isinstance(one, list)}
