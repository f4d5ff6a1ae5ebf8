"""Steps away from what serves, and how much one user or node counts."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.tuning import START, TEXT, Inline, job, random_jobs, study, true_speed
from tunerd.core.decisions.campaign import Campaign
from tunerd.core.decisions.limits import ContributionCaps, near, reachable
from tunerd.core.decisions.overrides import Override, OverrideSet
from tunerd.core.observation import Observation, Scalar, Status, Value
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study.parts import LimitOptions
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.errors import MisconfiguredError

WIDE = """
schema = 1
name = "wide"
[objective]
metric = "speed"
goal = "maximize"
[parameters]
kind = { type = "category", values = ["a", "b", "c"], repeat = 24 }
reserved = { type = "float", low = 0.5, high = 1.0, step = 0.01 }
[constraints]
few = "count(kind == 'c') <= 4"
"""


def limited(text: str) -> Study:
    return parse_study(f"{TEXT}\n[limits]\n{text}")


@pytest.mark.slow
@pytest.mark.parametrize("repeat", ["", ", repeat = 24"])
def test_a_step_is_to_the_next_number_in_whatever_order_they_are_listed(repeat: str) -> None:
    """Some list what they use by default first."""
    made = parse_study(
        f"""
schema = 1
name = "s"
objective = {{ metric = "speed", goal = "maximize" }}
[parameters]
batch = {{ type = "int", values = [4, 1, 2, 16, 8]{repeat} }}
[limits]
max_steps = {{ batch = 1 }}
"""
    )
    space = SearchSpace(made, {})
    assert (space.table(100_000) is None) == bool(repeat)
    for start, beside in ((4, {2, 4, 8}), (1, {1, 2}), (16, {8, 16})):
        serves: dict[str, Value] = {"batch": start}
        found = reachable(space, made.limits, serves, [], np.random.default_rng(0))
        assert found is not None
        assert {value for one in found for value in np.ravel(np.array(one["batch"]))} == beside


@settings(max_examples=25, deadline=None)
@given(
    changes=st.one_of(st.none(), st.integers(1, 3)),
    x=st.one_of(st.none(), st.integers(0, 3)),
    start=st.integers(1, 8),
)
def test_all_that_is_near_is_reachable_and_nothing_else(
    changes: int | None, x: int | None, start: int
) -> None:
    space = SearchSpace(study(), {"n": 8})
    limits = LimitOptions(changes, {} if x is None else {"x": x})
    serves: dict[str, Value] = {"x": start, "y": "b", "z": True}
    found = reachable(space, limits, serves, [], np.random.default_rng(0))
    assert found is not None
    names = {json.dumps(one) for one in found}
    table = space.table(1000)
    assert table is not None
    for code in table:
        config = space.decode(code)
        apart = sum(config[name] != serves[name] for name in serves)
        steps = abs(int(str(config["x"])) - start)
        within = (changes is None or apart <= changes) and (x is None or steps <= x)
        assert (json.dumps(config) in names) == within


def test_of_what_is_drawn_no_value_is_left_out() -> None:
    """More is within the limits than a limited context has: every single change is there all the
    same, and each value of each parameter beside others."""
    parameters = "\n".join(f'p{i} = {{ type = "int", low = 0, high = 7 }}' for i in range(8))
    space = SearchSpace(
        parse_study(f"{WIDE.partition('[parameters]')[0]}[parameters]\n{parameters}"), {}
    )
    serves: dict[str, Value] = {f"p{i}": 4 for i in range(8)}
    found = reachable(space, LimitOptions(6, {}), serves, [], np.random.default_rng(0))
    assert found is not None
    changed = [{name for name in one if one[name] != 4} for one in found]
    single = {
        (*names, one[min(names)])
        for one, names in zip(found, changed, strict=True)
        if len(names) == 1
    }
    assert len(single) == 8 * 7
    beside = Counter(
        (name, one[name]) for one, names in zip(found, changed, strict=True) for name in names
    )
    assert len(beside) == 8 * 7
    assert min(beside.values()) > 100


def test_steps_go_from_what_is_nearest_to_a_configuration_that_is_ruled_out() -> None:
    """As where a pin rules out what serves."""
    space = SearchSpace(parse_study(TEXT.replace("x <= n", "x >= 5")), {"n": 8})
    serves: dict[str, Value] = {"x": 1, "y": "b", "z": True}
    assert space.encode(serves) is None
    limits = LimitOptions(1, {"x": 1, "y": 0})
    found = reachable(space, limits, serves, [], np.random.default_rng(0))
    assert found is not None
    assert {(one["x"], one["y"], one["z"]) for one in found} == {
        (5, "b", True),
        (5, "b", False),
        (6, "b", True),
    }


@pytest.mark.slow
def test_of_a_space_that_nobody_can_list_what_is_near_is_drawn() -> None:
    space = SearchSpace(parse_study(WIDE), {})
    limits = LimitOptions(2, {"reserved": 3})
    serves: dict[str, Any] = {"kind": ["a"] * 24, "reserved": 0.8}
    tried: list[dict[str, Any]] = [
        {"kind": ["b", *["a"] * 23], "reserved": 0.83},
        {"kind": ["b"] * 24, "reserved": 0.8},
    ]
    found = reachable(space, limits, serves, tried, np.random.default_rng(0))
    assert found is not None
    assert serves in found
    assert tried[0] in found
    assert tried[1] not in found
    assert 1000 < len(found) < 5000
    codes = np.stack([code for one in found if (code := space.encode(one)) is not None])
    assert len(codes) == len(found)
    origin = space.encode(serves)
    assert origin is not None
    assert near(space, limits, origin, codes).all()
    kinds = {json.dumps(one["kind"]) for one in found}
    assert sum(24 - kind.count('"a"') == 1 for kind in kinds) == 48


def test_candidates_keep_to_the_steps_and_the_reason_says_so() -> None:
    tuner = Tuner(limited("max_changes = 1\nmax_steps = { x = 2 }"), Inline())
    base: dict[str, Value] = {"x": 2, "y": "a", "z": False}
    own = [job(i, {"n": 8}, base, speed=true_speed({"n": 8}, base)) for i in range(61, 66)]
    tuner.learn(random_jobs(60, sizes=(4, 16)))
    tuner.learn(own)
    key = tuner.study.context_key({"n": 8})
    advice = tuner.advise(key, None)
    assert advice.incumbent is not None
    assert advice.incumbent.config == base
    assert advice.candidates
    for candidate in advice.candidates:
        assert sum(candidate.config[name] != base[name] for name in base) == 1
        assert abs(int(str(candidate.config["x"])) - 2) <= 2
    assert "max_changes = 1, max_steps of x = 2" in advice.reason


def test_a_study_says_what_is_wrong_with_its_limits() -> None:
    with pytest.raises(MisconfiguredError) as caught:
        limited("max_steps = { w = 1, x = -1 }")
    assert "no parameter 'w'" in str(caught.value)
    assert "negative" in str(caught.value)


def test_one_user_among_many_counts_at_most_his_share() -> None:
    influence, limits = ContributionCaps(), LimitOptions(max_user_share=0.5)
    counted: Counter[str] = Counter()
    for i in range(400):
        user = "eager" if i % 2 else f"user-{i % 8}"
        name = "c-1" if user == "eager" or i % 20 == 0 else "c-2"
        one = msgspec.structs.replace(job(i + 1, {"n": 8}, {}), user=user)
        if influence.counts(name, one, limits) and name == "c-1":
            counted[user] += 1
    assert counted.total() > 20
    assert counted["eager"] <= 0.56 * counted.total()


def test_who_runs_everything_alone_counts_in_full() -> None:
    influence, limits = ContributionCaps(), LimitOptions()
    one = msgspec.structs.replace(job(1, {"n": 8}, {}), user="only", extra={"nodes": ["n1", "n2"]})
    assert all(influence.counts("c-1", one, limits) for _ in range(50))
    nobody = job(1, {"n": 8}, {})
    assert all(ContributionCaps().counts("c-1", nobody, limits) for _ in range(50))


def test_one_label_counts_at_most_its_share() -> None:
    influence = ContributionCaps()
    limits = LimitOptions(max_user_share=1.0, max_label_share={"team": 0.25})
    plain = job(1, {"n": 8}, {})
    for i in range(100):  # what others run elsewhere
        other = msgspec.structs.replace(plain, extra={"labels": {"team": f"t{i % 20}"}})
        influence.counts("c-0", other, limits)
    eager = [
        msgspec.structs.replace(plain, user=f"u{i}", extra={"labels": {"team": "t3", "x": "y"}})
        for i in range(20)
    ]
    counted = [influence.counts("c-1", one, limits) for one in eager]
    assert sum(counted) == 1
    assert all(ContributionCaps().counts("c-1", one, LimitOptions()) for one in eager)


def test_one_slow_node_counts_at_most_its_share() -> None:
    influence, limits = ContributionCaps(), LimitOptions(max_node_share=0.25)
    plain = job(1, {"n": 8}, {})
    for i in range(100):  # what others run elsewhere
        other = msgspec.structs.replace(plain, extra={"nodes": [f"n{i % 20}"]})
        influence.counts("c-0", other, limits)
    slow = msgspec.structs.replace(plain, extra={"nodes": ["n3"]})
    counted = [influence.counts("c-1", slow, limits) for _ in range(20)]
    assert sum(counted) == 1
    again = ContributionCaps.load(json.loads(json.dumps(influence.dump())))
    assert again == influence


def ran_by(users: list[str], nodes: list[str], sequence: int = 1) -> Observation:
    plain = job(sequence, {"n": 8}, {})
    user = users[0] if users else None
    return msgspec.structs.replace(plain, user=user, extra={"nodes": nodes})


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    often=st.lists(st.integers(1, 9), min_size=2, max_size=14),
    share=st.sampled_from([0.05, 0.1, 0.25, 0.5, 0.8]),
    users=st.booleans(),
    tried=st.sampled_from([0.1, 0.5, 1.0]),
    seed=st.integers(0, 1000),
)
def test_nobody_is_a_job_above_his_share_and_somebody_always_counts(
    often: list[int], share: float, users: bool, tried: float, seed: int
) -> None:
    """Users, or nodes one at a time, take turns at random, each as often as ever; a share of their
    jobs tries a new configuration. Whoever runs it next, there is one whose job would count."""
    rng = np.random.default_rng(seed)
    names = [f"u{i}" for i in range(len(often))]
    limits = LimitOptions(max_user_share=share, max_node_share=share)
    influence, jobs, counted, ran = ContributionCaps(), Counter[str](), Counter[str](), 0
    after_half = 0

    def one(name: str) -> Observation:
        return ran_by([name], []) if users else ran_by([], [name])

    for i in range(400):
        who = names[int(rng.choice(len(often), p=np.array(often) / sum(often)))]
        new = bool(rng.random() < tried)
        jobs[who] += 1
        ran += new
        if influence.counts("new" if new else "old", one(who), limits) and new:
            counted[who] += 1
            after_half += i >= 200
            fair = max(share, jobs[who] / jobs.total())
            assert counted[who] <= max(1.0, fair * counted.total() + (1.0 if users else 2.0))
        if i % 20 == 19:
            state = influence.dump()
            again = [ContributionCaps.load(json.loads(json.dumps(state))) for _ in names]
            assert any(
                copy.counts("new", one(name), limits)
                for copy, name in zip(again, names, strict=True)
            )
    assert counted.total() >= min(ran / 8, 5)
    assert after_half or ran < 60


@pytest.mark.parametrize(
    ("nodes", "each", "users"),
    [(3, 2, 0), (4, 3, 0), (12, 8, 0), (16, 15, 0), (8, 4, 2), (16, 8, 2)],
)
def test_jobs_of_several_nodes_go_on_counting_on_a_small_cluster(
    nodes: int, each: int, users: int
) -> None:
    """Every job has a node that has all that is its share: refused for each, none would count."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        influence, limits = ContributionCaps(), LimitOptions()
        jobs, counted, ran, total = Counter[str](), Counter[str](), 0, 0
        for _ in range(1500):
            user = [f"u{rng.integers(users)}"] if users else []
            names = [f"n{i}" for i in rng.permutation(nodes)[:each].tolist()]
            jobs.update([*names, "all"])
            new = rng.random() < 0.1
            ran += new
            if influence.counts("new" if new else "old", ran_by(user, names), limits) and new:
                counted.update(names)
                total += 1
                for name in names:
                    fair = max(0.5, jobs[name] / jobs["all"])
                    assert counted[name] <= fair * total + 5
        assert total >= ran / 7


def test_a_node_that_is_in_all_jobs_of_a_configuration_counts_at_most_its_share() -> None:
    """However many others are beside it, which have had their share as well."""
    rng = np.random.default_rng(0)
    influence, limits = ContributionCaps(), LimitOptions()
    total, slow = 0, 0
    for i in range(3000):
        others = [f"n{k}" for k in rng.permutation(12)[:8].tolist()]
        if i % 10:
            influence.counts("old", ran_by([], others), limits)
            continue
        names = ["n0", *[one for one in others if one != "n0"][:7]] if i % 30 else others[:8]
        if influence.counts("new", ran_by([], names), limits):
            total += 1
            slow += "n0" in names
    assert total > 90
    assert slow <= (8 / 12 + 0.03) * total + 3


@pytest.mark.slow
@pytest.mark.parametrize("between", [0, 1, 3])
def test_who_comes_new_to_what_many_nodes_have_run_counts_at_most_his_share(between: int) -> None:
    """Of all that ran it only so many are remembered; the new one is, also with others between."""
    influence, limits, count = ContributionCaps(), LimitOptions(max_user_share=0.25), 0

    def others(name: str) -> bool:
        nonlocal count
        count += 1
        one = ran_by([f"u{count % 10}"], [f"n{count * 7 % 100}"])
        return influence.counts(name, one, limits)

    total, zoe = sum(others("new") for _ in range(300)), 0
    for _ in range(6000):  # a small share of all that runs here
        others("old")
    for _ in range(600):
        counts = influence.counts("new", ran_by(["zoe"], ["slow"]), limits)
        zoe, total = zoe + counts, total + counts
        total += sum(others("new") for _ in range(between))
    assert 50 < zoe <= 0.25 * total + 1


def test_all_nodes_of_a_large_job_are_remembered_beside_others() -> None:
    influence, limits = ContributionCaps(), LimitOptions()
    for i in range(200):
        influence.counts("new", ran_by([], [f"n{i % 100}"]), limits)
        influence.counts("old", ran_by([], [f"n{i % 100}"]), limits)
    large = [f"large-{i}" for i in range(16)]
    counted = sum(influence.counts("new", ran_by(["zoe"], large), limits) for _ in range(400))
    assert counted <= 201


def of_many(tuner: Tuner, count: int, config: dict[str, Value]) -> None:
    """Jobs of twelve users in turn."""
    first = tuner.sequence + 1
    for i in range(first, first + count):
        tuner.learn([by(f"u{i % 12}", job(i, {"n": 8}, config, speed=800.0))])


def by(user: str, one: Observation) -> Observation:
    return msgspec.structs.replace(one, user=user)


@pytest.mark.slow
def test_failures_above_a_share_do_not_count_for_a_configuration() -> None:
    """One user runs out of memory again and again where all others do not."""
    tuner = Tuner(limited("max_user_share = 0.1"), Inline())
    base: dict[str, Value] = {"x": 2, "y": "a", "z": False}
    fast: dict[str, Value] = {"x": 4, "y": "a", "z": False}
    of_many(tuner, 400, base)
    of_many(tuner, 12, fast)
    first = tuner.sequence + 1
    for i in range(first, first + 20):
        failing = job(i, {"n": 8}, fast, status=Status.OUT_OF_MEMORY)
        tuner.learn([by("zoe", failing)])
    trials = tuner.contexts[tuner.study.context_key({"n": 8})].evidence.trials.values()
    tried = next(one for one in trials if one.config == fast)
    assert tried.ran >= 10
    assert tried.failures <= 2
    assert tried.run_share >= tuner.study.min_feasible


@pytest.mark.slow
def test_a_campaign_counts_runs_above_a_share() -> None:
    """Who profiles a context runs what it asks for: the round must end."""
    tuner = Tuner(limited("max_user_share = 0.1"), Inline())
    of_many(tuner, 200, {"x": 2, "y": "a", "z": False})
    now = START + timedelta(days=1)
    key = tuner.start_campaign({"n": 8}, Campaign(3, 1, 2, repeats=4), now)
    asked = [c for c in tuner.advise(key, None).candidates if c.wanted]
    assert asked
    for one in asked:
        for _ in range(4):
            again = job(tuner.sequence + 1, {"n": 8}, one.config, speed=700.0)
            tuner.learn([by("zoe", again)])
    campaign = tuner.contexts[key].campaign
    assert campaign is not None
    assert campaign.missing == 0


@pytest.mark.slow
@pytest.mark.parametrize("status", [Status.CANCELLED, Status.PREEMPTED, Status.NODE_FAILURE])
def test_jobs_that_say_nothing_take_nobodys_share(status: Status) -> None:
    """Neither the place of one's own run nor room for more of another's."""
    tuner = Tuner(limited("max_user_share = 0.5"), Inline())
    of_many(tuner, 200, {"x": 2, "y": "a", "z": False})
    other: dict[str, Value] = {"x": 3, "y": "a", "z": False}
    runs = []
    for user, speeds in (
        ("zoe", (None, None, 850.0)),
        ("bob", (None,) * 20),
        ("zoe", (850.0,) * 9),
    ):
        for speed in speeds:
            how = status if speed is None else Status.SUCCEEDED
            again = job(tuner.sequence + 1, {"n": 8}, other, speed=speed, status=how)
            tuner.learn([by(user, again)])
        trials = tuner.contexts[tuner.study.context_key({"n": 8})].evidence.trials.values()
        runs.append(next(one.runs for one in trials if one.config == other))
    assert runs == [1, 1, 1]


def led_by(
    tuner: Tuner, launched: Sequence[tuple[Mapping[str, Scalar], float]], rounds: int
) -> list[str]:
    """What was the incumbent, one after the other, while people launch these side by side."""
    key, found = tuner.study.context_key({"n": 8}), list[str]()
    rng = np.random.default_rng(tuner.sequence)
    for _ in range(rounds):
        for config, speed in launched:
            seen = speed * float(np.exp(rng.normal(0, 0.02)))
            tuner.learn([job(tuner.sequence + 1, {"n": 8}, config, speed=seen)])
        stated = tuner.advise(key, None).incumbent
        now = "" if stated is None else json.dumps(stated.config)
        found += [now] if found[-1:] != [now] else []
    return found


BASE: dict[str, Scalar] = {"x": 2, "y": "a", "z": False}
STEP: dict[str, Scalar] = {"x": 3, "y": "a", "z": False}
NEXT: dict[str, Scalar] = {"x": 4, "y": "a", "z": False}
FAR: dict[str, Scalar] = {"x": 6, "y": "c", "z": True}
STEPS = "max_changes = 1\nmax_steps = { x = 1 }"


@pytest.mark.slow
@pytest.mark.parametrize("share", ["0.1", "0.5"])
def test_what_is_beyond_the_steps_is_not_promoted_and_the_reason_says_so(share: str) -> None:
    """However fast it is where people launch it by themselves."""
    text = TEXT.replace("explore_share = 0.5", f"explore_share = {share}")
    tuner = Tuner(parse_study(f"{text}\n[limits]\n{STEPS}"), Inline())
    assert led_by(tuner, [(BASE, 800.0)], 5) == [json.dumps(BASE)]
    assert led_by(tuner, [(BASE, 800.0), (FAR, 1400.0)], 40) == [json.dumps(BASE)]
    key = tuner.study.context_key({"n": 8})
    advice = tuner.advise(key, None)
    assert "They rule out a measured configuration that is 7" in advice.reason
    # A test that it has won by then is not lost.
    assert "given_up" not in {one.outcome for one in tuner.contexts[key].introduction.verdicts}


@pytest.mark.slow
def test_a_better_one_nearby_is_promoted_first_and_the_next_step_goes_from_there() -> None:
    tuner = Tuner(limited(STEPS), Inline())
    led_by(tuner, [(BASE, 800.0)], 5)
    launched = [(BASE, 800.0), (STEP, 1000.0), (NEXT, 1250.0)]
    assert led_by(tuner, launched, 30) == [json.dumps(one) for one in (BASE, STEP, NEXT)]


def test_the_first_incumbent_is_what_people_run_however_far_from_the_baseline() -> None:
    """Nor does a single job that came before keep it away."""
    tuner = Tuner(limited(STEPS), Inline())
    led_by(tuner, [(STEP, 800.0)], 1)
    assert led_by(tuner, [(FAR, 1400.0)], 4)[-1] == json.dumps(FAR)
    assert led_by(tuner, [(FAR, 1400.0), (BASE, 800.0)], 5) == [json.dumps(FAR)]


@pytest.mark.parametrize(
    "order", [Override(1, "forbid", {}, BASE), Override(1, "pin", {}, {"y": "c"}), None]
)
def test_where_the_incumbent_is_ruled_out_and_nothing_is_near_the_best_of_all_takes_over(
    order: Override | None,
) -> None:
    """By an order, or by its failures."""
    tuner = Tuner(limited(STEPS), Inline())
    led_by(tuner, [(BASE, 800.0)], 5)
    assert led_by(tuner, [(BASE, 800.0), (FAR, 1400.0)], 5) == [json.dumps(BASE)]
    if order is None:
        for _ in range(10):
            failing = job(tuner.sequence + 1, {"n": 8}, BASE, status=Status.OUT_OF_MEMORY)
            tuner.learn([failing])
    else:
        tuner.impose(OverrideSet(tuner.study, [order]))
    advice = tuner.advise(tuner.study.context_key({"n": 8}), None)
    assert advice.incumbent is not None
    assert advice.incumbent.config == FAR
    assert advice.candidates


@pytest.mark.slow
def test_a_campaign_keeps_to_the_steps_as_well() -> None:
    """While it profiles, the best estimate is the incumbent: of what is within the limits."""
    tuner = Tuner(limited(STEPS), Inline())
    led_by(tuner, [(BASE, 800.0)], 5)
    led_by(tuner, [(BASE, 800.0), (FAR, 1400.0)], 5)
    tuner.start_campaign({"n": 8}, Campaign(3, 2, 2), START + timedelta(days=1))
    found = led_by(tuner, [(BASE, 800.0), (STEP, 1000.0), (FAR, 1400.0)], 8)
    assert json.dumps(FAR) not in found
    assert found[-1] == json.dumps(STEP)


@pytest.mark.slow
def test_a_round_begins_with_what_is_expected_to_bring_most() -> None:
    """A run that fails brings nothing: the riskiest is not launched first."""
    tuner = Tuner(study(), Inline())
    jobs = [
        job(i, one.context, one.config, status=Status.FAILED)
        if int(str(one.config["x"])) >= 5  # the fast ones mostly fail
        else one
        for i, one in enumerate(random_jobs(120), 1)
    ]
    for begin in range(0, 120, 20):
        tuner.learn(jobs[begin : begin + 20])
    key = tuner.start_campaign({"n": 8}, Campaign(8, 1, 8), START + timedelta(days=1))
    asked = [one for one in tuner.advise(key, None).candidates if one.wanted]
    brings = [one.predicted.median * (one.feasible or 0.0) for one in asked if one.predicted]
    assert len(brings) > 3
    assert brings == sorted(brings, reverse=True)
    assert brings != sorted(brings)
