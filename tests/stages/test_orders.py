"""Operators' orders through the tune stage: what is taken back, what comes again, what survives."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.empty_store import empty_store
from tests.stages.fakes import CrashError, Heard, Time, crash_in
from tests.stages.tuning import Tuning, another, job, random_jobs
from tunerd import telemetry
from tunerd.core.observation import Scalar
from tunerd.core.recommendation import Recommendation, State
from tunerd.events import from_bytes
from tunerd.settings.model import TuneSettings
from tunerd.stages.tune import TuneStage
from tunerd.store import open_store

KEYS = {n: Tuning.key(n) for n in (4, 8, 16)}


def published(tuning: Tuning, mode: str = '"publish"') -> None:
    """Recommendations are out, or proposed, in three contexts."""
    tuning.learned(mode=mode)
    tuning.outbox()


def sent(tuning: Tuning) -> dict[str, Recommendation | None]:
    """The last message of each key since the last look."""
    return {key: None if value is None else from_bytes(value) for key, _, value in tuning.outbox()}


def values(one: Recommendation, name: str) -> set[object]:
    """What a recommendation says of one parameter, the baseline included."""
    configs = [candidate.config for candidate in one.candidates]
    configs += [one.incumbent.config] if one.incumbent else []
    configs += [one.baseline] if one.baseline else []
    return {config[name] for config in configs}


# ── pause and resume ─────────────────────────────────────────────────────────────────────────


def test_a_pause_withdraws_with_the_reason_and_a_resume_brings_advice_back_at_once(
    tuning: Tuning,
) -> None:
    published(tuning)
    tune = tuning.start()
    pause = tuning.command("pause", context={})
    tuning.run(tune)
    assert tuning.result(pause) == "paused; 3 recommendations withdrawn"
    messages = sent(tuning)
    assert set(messages) == set(KEYS.values())
    for message in messages.values():
        assert message is not None
        assert (message.state, message.revision) == (State.WITHDRAWN, 2)
        assert message.reason == f"Paused by an operator (command {pause}): because."
        assert "ann" not in message.reason
    stepped = tuning.heard.of(telemetry.StepCommitted)[-1]
    assert stepped.paused
    assert stepped.withdrawn == 3
    # It learns on, and says nothing, whoever goes on with it.
    tuning.add(random_jobs(40, first=61, seed=3))
    again = tuning.start()
    tuning.run(again, days=5)
    assert sent(tuning) == {}
    known = tuning.store.study("toy")
    assert known is not None
    assert known.learned_sequence == 100
    resume = tuning.command("resume", context={})
    tuning.time.pass_(seconds=1)
    assert again.step()  # in the step that carries it out
    assert tuning.result(resume) == f"lifted: pause ({pause}); 3 contexts searched again"
    back = sent(tuning)
    assert set(back) == set(KEYS.values())
    for message in back.values():
        assert message is not None
        assert (message.state, message.revision) == (State.ACTIVE, 3)
        assert message.made_from.sequence == 100
    assert not tuning.heard.of(telemetry.StepCommitted)[-1].paused


def test_one_context_is_paused_and_the_others_go_on(tuning: Tuning) -> None:
    published(tuning)
    tune = tuning.start()
    tuning.command("pause", context={"n": 8})
    tuning.run(tune)
    assert set(sent(tuning)) == {KEYS[8]}
    assert not tuning.heard.of(telemetry.StepCommitted)[-1].paused
    tuning.add(random_jobs(60, first=61, seed=3))
    tuning.run(tune)
    assert KEYS[8] not in sent(tuning)
    assert tuning.row(8).state == "withdrawn"


def test_pauses_that_are_not_and_pauses_in_pauses(tuning: Tuning) -> None:
    published(tuning)
    tune = tuning.start()
    commands = [
        tuning.command(name, context=context)
        for name, context in (
            ("resume", {}),
            ("pause", {"n": 8}),
            ("pause", {}),
            ("pause", {"n": 8}),
            ("resume", {"n": 16}),
            ("resume", {"n": 8}),
            ("pause", {"m": 1}),
            ("resume", {"m": 1}),
            ("resume", {}),
        )
    ]
    tuning.run(tune)
    inner, outer = commands[1], commands[2]
    assert [tuning.result(number) for number in commands] == [
        "refused: nothing is paused with just these values",
        "paused; 1 recommendation withdrawn",
        "paused; 3 recommendations withdrawn",
        f"it is paused already, by command {inner}",
        "refused: nothing is paused with just these values; "
        f"command {outer} pauses the whole study: resume that",
        f"lifted: pause ({inner}) where n = 8; 1 context searched again; "
        f"command {outer} pauses the whole study",
        "refused: the study has no context feature 'm'; it has n",
        "refused: the study has no context feature 'm'; it has n",
        f"lifted: pause ({outer}); 3 contexts searched again",
    ]
    # All of it in one step, after which everything runs as before.
    assert {row.state for row in tuning.rows().values()} == {"active"}


def test_a_withdrawn_key_is_freed_though_a_proposal_lies_beside_it(tuning: Tuning) -> None:
    published(tuning, '"approve"')
    tune = tuning.start()
    proposal = tuning.said(8)
    tuning.command("approve", context_key=KEYS[8], recommendation_id=proposal.recommendation_id)
    tuning.run(tune)
    tuning.command("pause", context={"n": 8})
    tuning.run(tune)
    tuning.command("resume", context={"n": 8})
    tuning.run(tune)
    row = tuning.row(8)
    assert row.state == "withdrawn"
    assert row.proposal is not None
    tuning.outbox()
    tune = tuning.start()
    tuning.run(tune, days=7.1)
    assert sent(tuning) == {KEYS[8]: None}
    row = tuning.row(8)
    assert row.proposal is not None
    command = tuning.command(
        "approve",
        context_key=KEYS[8],
        recommendation_id=json.loads(row.proposal)["recommendation_id"],
    )
    tuning.run(tune)
    assert tuning.result(command) == f"published for {KEYS[8]}"
    assert tuning.row(8).state == "active"


def test_a_campaign_in_a_paused_context_waits(tuning: Tuning) -> None:
    published(tuning)
    tune = tuning.start()
    pause = tuning.command("pause", context={})
    begin = tuning.command("campaign", context={"n": 8}, jobs=4, rounds=1, round_size=2, repeats=1)
    tuning.run(tune)
    assert f"paused by command {pause}" in (tuning.result(begin) or "")
    assert tuning.said(8).state is State.WITHDRAWN
    tuning.command("resume", context={})
    tuning.run(tune)
    assert tuning.said(8).round == 0


def test_a_campaign_says_what_it_takes_the_place_of(tuning: Tuning) -> None:
    published(tuning)
    tune = tuning.start()
    sizes = {"jobs": 4, "rounds": 1, "round_size": 2, "repeats": 1}
    first = tuning.command("campaign", context={"n": 8}, **sizes)
    elsewhere = tuning.command("campaign", context={"n": 16}, **sizes)
    at_once = tuning.command("campaign", context={"n": 8}, **sizes)
    tuning.run(tune)
    begun = f"campaign begun in {KEYS[8]}"
    assert tuning.result(first) == begun
    assert tuning.result(elsewhere) == f"campaign begun in {KEYS[16]}"
    assert tuning.result(at_once) == f"{begun} in the place of one that had asked for nothing yet"
    wanted = [c for c in tuning.said(8).candidates if c.wanted]
    tuning.add([job(61, {"n": 8}, wanted[0].config, speed=100.0)])
    tuning.run(tune)
    later = tuning.command("campaign", context={"n": 8}, **sizes)
    tuning.run(tune)
    assert (
        tuning.result(later) == f"{begun} in the place of one that still missed 3 runs of round 0"
    )
    over = tuning.command("cancel", context_key=KEYS[8])
    after = tuning.command("campaign", context={"n": 8}, **sizes)
    tuning.run(tune)
    assert "4 runs were still missing" in (tuning.result(over) or "")
    assert tuning.result(after) == begun


def test_a_campaign_says_where_the_space_is_smaller_than_it_asks_for(tuning: Tuning) -> None:
    published(tuning)
    tune = tuning.start()
    fixed = tuning.command("pin", config={"y": "b", "z": True}, context={})
    sizes = {"jobs": 5, "rounds": 2, "round_size": 5, "repeats": 1}
    small = tuning.command("campaign", context={"n": 4}, **sizes)
    tuning.run(tune)
    assert tuning.result(small) == (
        f"campaign begun in {KEYS[4]}; no more than 4 configurations are feasible there: "
        "its rounds end where these do"
    )
    assert len([c for c in tuning.said(4).candidates if c.wanted]) == 4
    tuning.command("lift", number=fixed)
    large = tuning.command("campaign", context={"n": 16}, **sizes)
    tuning.run(tune)
    assert tuning.result(large) == f"campaign begun in {KEYS[16]}"


def test_what_has_ended_begins_nothing_and_can_still_be_cleared(tuning: Tuning) -> None:
    published(tuning)
    tune = tuning.start()
    pin = tuning.command("pin", config={"y": "b"}, context={})
    tuning.command("end")
    tuning.run(tune)
    refused = [
        tuning.command("campaign", context={"n": 8}, jobs=2, rounds=1, round_size=2, repeats=1),
        tuning.command("pin", config={"y": "a"}, context={}),
        tuning.command("forbid", config={"y": "a"}, context={}),
        tuning.command("pause", context={}),
    ]
    lift = tuning.command("lift", number=pin)
    tuning.run(tuning.start())
    assert {tuning.result(one) for one in refused} == {"refused: the study has ended"}
    assert (tuning.result(lift) or "").startswith(f"lifted: pin y = b ({pin})")
    tuning.publish(mode='"publish"', explore_share="0.4")
    tuning.run(tuning.start())
    saved = tuning.store.study_state("toy")
    assert saved is not None
    assert saved.state["orders"] == []
    assert tuning.said(8).round is None


# ── pins and forbidden configurations ────────────────────────────────────────────────────────


def test_a_pin_is_obeyed_in_the_same_step_and_after_restarts_and_lifted(tuning: Tuning) -> None:
    published(tuning)
    tune = tuning.start()
    tuning.run(tune)
    pin = tuning.command("pin", config={"y": "b"}, context={})
    tuning.time.pass_(seconds=1)
    assert tune.step()
    assert tuning.result(pin) == "in force; 3 recommendations broke it, replaced or withdrawn"
    for message in sent(tuning).values():
        assert message is not None
        assert message.state is State.ACTIVE
        assert values(message, "y") == {"b"}
        assert f"Limits here: pin {pin} (y = b)." in message.reason
        assert "They rule out the baseline." in message.reason
        assert "ann" not in message.reason
    (step,) = tuning.store.steps("toy", limit=1)
    assert step.detail["commands"] == [pin]
    tuning.add(random_jobs(60, first=61, seed=3))
    again = tuning.start()
    tuning.run(again)
    assert all(values(tuning.said(n), "y") == {"b"} for n in KEYS)
    lift = tuning.command("lift", number=pin)
    tuning.run(again)
    assert tuning.result(lift) == f"lifted: pin y = b ({pin}); 3 contexts searched again"
    assert all("c" in values(tuning.said(n), "y") for n in KEYS)
    assert tuning.result(tuning.command("lift", number=pin)) is None
    tuning.run(again)
    assert tuning.result(lift + 1) == f"refused: no order {pin} stands; there are: none"


def test_what_is_forbidden_together_may_be_apart(tuning: Tuning) -> None:
    published(tuning)
    tune = tuning.start()
    best = tuning.said(8).incumbent
    assert best is not None
    tuning.command("forbid", config=dict(best.config), context={"n": 8})
    tuning.run(tune)
    after = tuning.said(8).incumbent
    assert after is not None
    assert after.config != best.config
    assert tuning.said(16).revision == 1


def test_limits_that_make_no_sense_are_refused_in_words(tuning: Tuning) -> None:
    published(tuning)
    tune = tuning.start()

    def ask(kind: str, config: dict[str, Scalar], context: dict[str, Scalar]) -> int:
        return tuning.command(kind, config=config, context=context)

    commands = [
        ask("pin", {"x": 9}, {}),
        ask("forbid", {"w": 1}, {}),
        ask("pin", {}, {}),
        ask("pin", {"x": 5}, {}),
        ask("pin", {"x": 5}, {"n": 8}),
        ask("pin", {"x": 6}, {"n": 8}),
    ]
    tuning.run(tune)
    said = [tuning.result(number) or "" for number in commands]
    assert said[0] == "refused: x = 9 is outside the space: its values are 1, 2, 3, 4, 5, 6, 7, 8"
    assert said[1] == "refused: the study has no parameter 'w'; it has x, y, z"
    assert said[2] == "refused: it names no parameter"
    assert said[3].startswith(
        f"refused: it would leave nothing feasible in 1 of 3 active contexts: in {KEYS[4]}, "
        f"constraint 'fits' (x <= n) cannot be satisfied together with 'pin {commands[3]}' (x == 5)"
    )
    assert said[4].startswith("in force")
    assert f"'pin {commands[4]}'" in said[5]
    assert "'pin " in said[5].replace(f"'pin {commands[4]}'", "")


def test_a_forbidden_configuration_may_leave_nothing_and_that_is_said(tuning: Tuning) -> None:
    published(tuning)
    tune = tuning.start()
    commands = [tuning.command("forbid", config={"y": y}, context={"n": 4}) for y in "abc"]
    tuning.run(tune)
    assert "nothing is left to recommend in 1 active context" in (tuning.result(commands[2]) or "")
    message = sent(tuning)[KEYS[4]]
    assert message is not None
    assert message.state is State.WITHDRAWN
    assert f"'forbid {commands[0]}'" in message.reason
    assert tuning.row(8).state == "active"


def test_what_is_not_searched_in_the_step_is_withdrawn(tuning: Tuning) -> None:
    published(tuning)
    tune = tuning.start()
    tuning.run(tune)
    tuning.stop = lambda: True
    tune.stop = tuning.stop
    pin = tuning.command("pin", config={"y": "b"}, context={})
    tuning.time.pass_(seconds=1)
    assert tune.step()
    for message in sent(tuning).values():
        assert message is not None
        assert message.state is State.WITHDRAWN
        assert message.reason == f"It breaks a limit that an operator set: pin {pin} (y = b)."
    tune.stop = lambda: False
    tuning.run(tune)
    assert all(values(tuning.said(n), "y") == {"b"} for n in KEYS)


def test_limits_survive_a_generation_that_they_do_not_fit(tuning: Tuning) -> None:
    published(tuning)
    tune = tuning.start()
    pin = tuning.command("pin", config={"y": "b"}, context={})
    tuning.run(tune)
    tuning.publish(
        y='{ type = "category", values = ["a", "c"] }', config='{ x = 1, y = "a", z = false }'
    )
    tuning.run(tune)
    (line,) = tuning.lines.of("order does not fit")
    assert line["order"] == str(pin)
    assert "its values are 'a', 'c'" in line["problem"]
    assert all(values(tuning.said(n), "y") <= {"a", "c"} for n in KEYS)
    tuning.publish()
    tuning.run(tuning.start())
    assert all(values(tuning.said(n), "y") == {"b"} for n in KEYS)


def test_in_mode_approve_what_breaks_a_limit_is_withdrawn_and_another_proposed(
    tuning: Tuning,
) -> None:
    published(tuning, '"approve"')
    tune = tuning.start()
    proposal = tuning.said(8)
    tuning.command("approve", context_key=KEYS[8], recommendation_id=proposal.recommendation_id)
    tuning.run(tune)
    tuning.outbox()
    before = tuning.said(16)
    tuning.command("pin", config={"y": "b"}, context={})
    late = tuning.command(
        "approve", context_key=KEYS[16], recommendation_id=before.recommendation_id
    )
    tuning.run(tune)
    messages = sent(tuning)
    assert set(messages) == {KEYS[8]}
    assert tuning.row(8).state == "withdrawn"
    proposed = from_bytes((tuning.row(8).proposal or "").encode())
    assert values(proposed, "y") == {"b"}
    assert values(tuning.said(16), "y") == {"b"}
    assert (tuning.result(late) or "").startswith("refused: it breaks a limit")


# ── proposals ────────────────────────────────────────────────────────────────────────────────


def test_a_declined_proposal_is_not_made_again_before_there_is_something_else(
    tuning: Tuning,
) -> None:
    published(tuning, '"approve"')
    tune = tuning.start()
    proposal = tuning.said(8)
    decline = tuning.command(
        "decline", context_key=KEYS[8], recommendation_id=proposal.recommendation_id
    )
    tuning.run(tune)
    assert (tuning.result(decline) or "").startswith(f"declined for {KEYS[8]}")
    assert tuning.row(8).state == "declined"
    tune = tuning.start()
    tuning.command("campaign", context={"n": 8}, jobs=2, rounds=0, round_size=2, repeats=1)
    tuning.run(tune)
    assert tuning.row(8).state == "pending"  # something else
    cancel = tuning.command("cancel", context_key=KEYS[8])
    tuning.run(tune)
    assert tuning.result(cancel) == (
        f"campaign ended in {KEYS[8]}; 2 runs were still missing in its round"
    )
    gone = tuning.command(
        "approve", context_key=KEYS[8], recommendation_id=proposal.recommendation_id
    )
    none = tuning.command("cancel", context_key=KEYS[8])
    tuning.run(tune)
    assert "no longer what is proposed" in (tuning.result(gone) or "")
    assert tuning.result(none) == f"refused: no campaign is under way in {KEYS[8]}"


def test_the_same_advice_is_not_proposed_again_after_it_was_declined(tuning: Tuning) -> None:
    published(tuning, '"approve"')
    tune = tuning.start()
    proposal = tuning.said(8)
    tuning.command("decline", context_key=KEYS[8], recommendation_id=proposal.recommendation_id)
    tuning.run(tune)
    tuning.command("pause", context={"n": 8})
    tuning.run(tune)
    tuning.command("resume", context={"n": 8})  # makes it look again; nothing was learned since
    tuning.run(tune)
    assert tuning.heard.of(telemetry.StepCommitted)[-2].contexts_searched == 1 or (
        tuning.heard.of(telemetry.StepCommitted)[-1].contexts_searched == 1
    )
    assert tuning.row(8).state == "declined"


def test_a_proposal_outlives_a_renewal_and_a_restart(tuning: Tuning) -> None:
    published(tuning, '"approve"')
    tune = tuning.start()
    first = tuning.said(8)
    tuning.command("approve", context_key=KEYS[8], recommendation_id=first.recommendation_id)
    tuning.run(tune)
    tuning.add(random_jobs(40, first=61, seed=3))
    tuning.run(tune)
    proposal = tuning.row(8).proposal
    assert proposal is not None
    tuning.run(tune, days=3.6)
    assert tuning.row(8).revision == 2
    assert tuning.row(8).proposal == proposal


def test_observed_advice_is_published_as_soon_as_the_study_publishes(tuning: Tuning) -> None:
    published(tuning, '"observe"')
    assert {row.state for row in tuning.rows().values()} == {"observed"}
    tuning.publish()
    tuning.run(tuning.start())
    assert {row.state for row in tuning.rows().values()} == {"active"}


def test_what_ended_has_no_proposals(tuning: Tuning) -> None:
    published(tuning, '"approve"')
    tune = tuning.start()
    proposal = tuning.said(8)
    tuning.command("end")
    late = tuning.command(
        "approve", context_key=KEYS[8], recommendation_id=proposal.recommendation_id
    )
    tuning.run(tune)
    assert tuning.result(late) == "refused: the study has ended"
    assert {row.state for row in tuning.rows().values()} == {"dropped"}


# ── the same again ───────────────────────────────────────────────────────────────────────────


def life(tuning: Tuning, crash: pytest.MonkeyPatch | None) -> dict[str, str]:
    """A study's life under orders, in the same steps, with or without crashes."""
    tuning.publish()
    tune = tuning.start()
    first = 1
    given: dict[int, tuple[str, dict[str, Any]]] = {
        1: ("pin", {"config": {"y": "a"}, "context": {}}),
        2: ("forbid", {"config": {"x": 4, "z": True}, "context": {"n": 8}}),
        3: ("pause", {"context": {"n": 16}}),
        4: ("lift", {"number": 1}),
        5: ("resume", {"context": {}}),
    }
    for turn, size in enumerate((20, 30, 7, 60, 11, 40)):
        tuning.add(random_jobs(size, first=first, seed=first))
        first += size
        if turn in given:
            name, arguments = given[turn]
            tuning.command(name, **arguments)
        if crash is not None and turn:
            with crash_in(crash, "save_study_state"), pytest.raises(CrashError):
                tuning.run(tune)
            tuning.time.pass_(seconds=-10.1)
            tune = tuning.start()
        tuning.run(tune)
    return {key: row.value for key, row in tuning.rows().items()}


def test_orders_change_nothing_about_determinism(
    tuning: Tuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = life(tuning, None)
    with another(tmp_path) as crashing:
        assert life(crashing, monkeypatch) == calm
    assert json.loads(calm[KEYS[8]])["reason"].count("Limits here: forbid 2") == 1


COMMANDS = st.one_of(
    st.tuples(
        st.just("pause"), st.fixed_dictionaries({"context": st.sampled_from([{}, {"n": 8}])})
    ),
    st.tuples(
        st.just("resume"), st.fixed_dictionaries({"context": st.sampled_from([{}, {"n": 8}])})
    ),
    st.tuples(st.just("lift"), st.fixed_dictionaries({"number": st.integers(1, 6)})),
    st.tuples(
        st.sampled_from(["pin", "forbid"]),
        st.fixed_dictionaries(
            {
                "context": st.sampled_from([{}, {"n": 8}, {"n": 4}]),
                "config": st.sampled_from(
                    [{"x": 3}, {"x": 6, "y": "c"}, {"y": "c"}, {"y": "a"}, {"y": "b", "z": True}]
                ),
            }
        ),
    ),
)


@pytest.mark.slow
@settings(max_examples=15)
@given(
    orders=st.lists(st.lists(COMMANDS, max_size=3), min_size=1, max_size=4),
    mode=st.sampled_from(['"publish"', '"approve"']),
)
def test_nothing_that_runs_is_paused_or_breaks_a_limit(
    orders: list[list[tuple[str, dict[str, object]]]], mode: str
) -> None:
    with TemporaryDirectory() as folder:
        store = open_store(empty_store(Path(folder, "store.sqlite")))
        tuning = Tuning(store, Time(), Heard())
        tuning.publish(mode=mode, evaluations="40")
        tune = tuning.start()
        first = 1
        for commands in orders:
            tuning.add(random_jobs(12, first=first, seed=first))
            first += 12
            for name, arguments in commands:
                tuning.command(name, **arguments)
            tuning.time.pass_(seconds=11)
            while tune.step():
                _check(tuning)
        tune.close()


def _check(tuning: Tuning) -> None:
    saved = tuning.store.study_state("toy")
    standing = saved.state["orders"] if saved else []
    for row in tuning.store.recommendations("toy"):
        texts = [row.value] if row.state in ("active", "pending") else []
        texts += [row.proposal] if row.proposal else []
        for said in (from_bytes(text.encode()) for text in texts):
            for order in standing:
                n = order["context"].get("n")
                if n is not None and said.context["n"] != n:
                    continue
                assert order["kind"] != "pause"
                configs = [c.config for c in said.candidates]
                configs += [said.incumbent.config] if said.incumbent else []
                configs += [said.baseline] if said.baseline else []
                for config in configs:
                    hits = [config[name] == value for name, value in order["config"].items()]
                    assert all(hits) if order["kind"] == "pin" else not all(hits)


# ── what nobody runs ─────────────────────────────────────────────────────────────────────────


def profiling(tuning: Tuning, mode: str = '"publish"', patience_h: float = 48.0) -> TuneStage:
    """A campaign is asked for, whose first round waits so long."""
    published(tuning, mode)
    size = {"jobs": 3, "rounds": 1, "round_size": 2, "repeats": 1}
    tuning.command("campaign", context={"n": 8}, patience_h=patience_h, **size)
    return tuning.start()


def test_a_round_that_waits_in_vain_is_closed_and_the_next_begins(tuning: Tuning) -> None:
    tune = profiling(tuning)
    tuning.run(tune)
    tuning.run(tune, hours=30)
    wanted = [c for c in tuning.said(8).candidates if c.wanted]
    assert len(wanted) == 3
    tuning.add([job(61, {"n": 8}, wanted[0].config, speed=100.0)])
    tuning.run(tune, hours=30)  # a run ended in between: it waits anew
    tuning.run(tune, hours=30)
    assert tuning.said(8).round == 0
    tune = tuning.start()
    tuning.run(tune, hours=30)
    assert tuning.said(8).round == 1
    (line,) = tuning.lines.of("round closed")
    assert (line["context"], line["runs_given_up"]) == (KEYS[8], 2)


def test_patience_without_end(tuning: Tuning) -> None:
    """More than there is time for: the round waits, and the study is tuned."""
    published(tuning)
    tune = tuning.start()
    tuning.command(
        "campaign", context={"n": 8}, jobs=3, rounds=1, round_size=2, repeats=1, patience_h=1e300
    )
    tuning.run(tune)
    tuning.run(tune, hours=24 * 365)
    assert tuning.said(8).round == 0


def test_a_round_that_nobody_sees_does_not_wait_in_vain(tuning: Tuning) -> None:
    tune = profiling(tuning, '"approve"', patience_h=1.0)
    for _ in range(4):
        tuning.run(tune, hours=10)
    assert tuning.said(8).round == 0
    assert tuning.lines.of("round closed") == []


def test_a_round_waits_on_through_restarts(tuning: Tuning) -> None:
    tune = profiling(tuning)
    tuning.run(tune)
    tuning.run(tune)
    for _ in range(2):
        tuning.run(tuning.start(), hours=25)
    assert tuning.said(8).round == 1


def test_a_round_does_not_wait_while_it_is_paused(tuning: Tuning) -> None:
    tune = profiling(tuning)
    tuning.run(tune)
    tuning.run(tune, hours=30)
    tuning.command("pause", context={"n": 8})
    tuning.run(tune)
    tuning.run(tune, days=5)
    tuning.command("resume", context={"n": 8})
    tuning.run(tune)
    tuning.run(tune, hours=30)
    assert tuning.said(8).round == 0
    assert tuning.lines.of("round closed") == []
    tuning.run(tune, hours=49)
    assert tuning.said(8).round == 1


def test_a_context_without_jobs_is_let_go_without_waiting_for_a_renewal(tuning: Tuning) -> None:
    tuning.settings = TuneSettings(active_days=1.0)
    published(tuning)
    tune = tuning.start()
    tuning.run(tune, hours=20)
    assert sent(tuning) == {}
    tuning.run(tune, hours=6)
    messages = sent(tuning)
    assert len(messages) == 3
    for message in messages.values():
        assert message is not None
        assert message.reason == "No job in this context for 1 day."
    tuning.run(tune, hours=6)
    assert sent(tuning) == {}


def test_a_proposal_for_a_context_without_jobs_is_dropped(tuning: Tuning) -> None:
    tuning.settings = TuneSettings(active_days=1.0)
    published(tuning, '"approve"')
    tuning.run(tuning.start(), days=1.2)
    assert {row.state for row in tuning.rows().values()} == {"dropped"}
