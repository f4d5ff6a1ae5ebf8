"""The drift event: what it says, to programs and to people."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

import msgspec
import numpy as np
import pytest

from tests.core.drift.jobs import feed, jobs, study
from tunerd.core.decisions.drift_consequences import DriftConsequences, ReplacedIncumbent
from tunerd.core.drift import DriftMonitor
from tunerd.core.drift.alarms import Drift, DriftUpdate, Kind, Phase
from tunerd.events.drift import DriftEvent, drift_event, drift_schema, to_bytes

AT = datetime(2026, 11, 20, 10, tzinfo=UTC)
PAGE = (Path(__file__).parents[2] / "docs" / "drift.md").read_text()


def drift(kind: Kind = "speed", **more: object) -> Drift:
    plain = {"drift_id": "drift-1", "kind": kind, "since": 10, "since_at": AT}
    return Drift(**{**plain, "noticed": 14, "noticed_at": AT, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            drift(contexts=("watched|model=a",), moved=-0.5, level=2.0),
            "25% worse in watched|model=a, since job 10, 2026-11-20 10:00.",
        ),
        (drift(moved=None), "Another speed in the whole study, since"),
        (drift("ranks", parameter="tp"), "What tp did for speed is no longer so, since"),
        (
            drift("inputs", feature="model", value="b", moved=0.3),
            "Jobs with model = b, which there never were, since",
        ),
        (drift("inputs", parameter="tp", moved=0.4), "Other jobs than there were, by tp, since"),
        (drift("failures"), "More jobs fail than they should in the whole study, since"),
        (
            drift("failures", contexts=("watched|model=a",), moved=0.231),
            "More jobs fail than they should in watched|model=a, by 23% of all, since job 10",
        ),
    ],
)
def test_it_says_what_where_and_since_when(found: Drift, said: str) -> None:
    event = drift_event(study(), DriftUpdate("began", found, 14, AT))
    assert event.message.startswith(said)
    assert event.acted == (found.kind in ("speed", "ranks"))
    assert msgspec.json.decode(to_bytes(event), type=DriftEvent) == event
    assert Drift.load(json.loads(json.dumps(found.dump()))) == found


@pytest.mark.parametrize(
    ("found", "said", "again"),
    [
        (drift(moved=-0.5, level=2.0), "25% worse in the whole study", "changed again, seen"),
        (drift(moved=0.5, level=2.0), "25% better in the whole study", "changed again, seen"),
        (
            drift("ranks", parameter="tp"),
            "What tp did for speed is no longer so",
            "changed again, seen",
        ),
        (drift("inputs", parameter="tp", moved=0.4), "Other jobs than there were, by tp", "grew"),
        (drift("failures"), "More jobs fail than they should in the whole study", "grew"),
    ],
)
def test_what_was_known_and_rose_again_is_said_in_a_sentence(
    found: Drift, said: str, again: str
) -> None:
    """Of speed and ranks it may be the way back: that is not growing."""
    event = drift_event(study(), DriftUpdate("grew", found, 60, AT))
    assert event.message == f"{said}, since job 10, 2026-11-20 10:00; it {again} with job 60."


def test_it_says_what_was_given_up_since_and_what_is_asked_again() -> None:
    here, elsewhere = "watched|model=a", "watched|model=b"
    after = DriftConsequences(
        [
            ReplacedIncumbent(here, {"tp": 8}, 4.0, 1.0, 20, "2026-11-20T11:00:00+00:00"),
            ReplacedIncumbent(here, {"tp": 4}, 4.0, 1.0, 9, ""),  # before this change
            ReplacedIncumbent(elsewhere, {"tp": 2}, 4.0, 1.0, 20, ""),
        ],
        {here: [{"tp": 2}], elsewhere: [{"tp": 1}]},
    )
    found = drift(contexts=(here,), moved=-0.5, level=2.0)
    event = drift_event(study(), DriftUpdate("grew", found, 30, AT), after)
    assert [(one.config, one.before, one.now) for one in event.given_up] == [({"tp": 8}, 4.0, 1.0)]
    assert [(one.context_key, one.configs) for one in event.asked_again] == [(here, ({"tp": 2},))]
    assert "tp = 8, which gave 4 before a change and 1 since" in event.message
    assert f"Asked again in {here}: tp = 2." in event.message
    assert elsewhere not in event.message
    assert msgspec.json.decode(to_bytes(event), type=DriftEvent) == event
    over = drift_event(study(), DriftUpdate("over", found, 40, AT, "It is usual now."), after)
    assert (len(over.given_up), over.asked_again) == (1, ())
    assert DriftConsequences.load(json.loads(json.dumps(after.dump()))) == after


@pytest.mark.slow
@pytest.mark.parametrize(("above", "share"), [(0.0, None), (2.0, -0.15)])
def test_what_lies_on_both_sides_of_0_moves_by_its_unit_and_not_by_a_share(
    above: float, share: float | None
) -> None:
    usual = float(np.random.default_rng(1).normal(0.0, 1.0, 6)[0])  # of the context that moves
    slower = jobs(
        900,
        seed=1,
        effect=lambda number, context, _tp, _precision: -0.3 * (number >= 700 and not context),
        shift=above - usual,
    )
    found = feed(DriftMonitor.of(study()), {}, slower)
    event = drift_event(study(), found[0])
    assert event.kind == "speed"
    if share is None:
        assert event.size is None
        assert re.match(
            r"speed worse by 0\.[23]\d* in watched\|model=m0, since job 7", event.message
        )
    else:
        assert event.size == pytest.approx(share, abs=0.03)
        assert re.match(r"1\d% worse in watched\|model=m0, since job 7", event.message)
    assert msgspec.json.decode(to_bytes(event), type=DriftEvent) == event


@pytest.mark.slow
def test_its_size_is_a_share_of_what_was_there_right_before_it() -> None:
    """And not of a mean over longer times."""

    def twice(number: int, context: int, _tp: int, _precision: int) -> float:
        return -1.0 * ((number >= 700) + (number >= 760)) * (context == 0)

    stream = list(jobs(800, seed=1, effect=twice, shift=2.5))
    key = "watched|model=m0"
    scores = [
        (job.judged.sequence, job.judged.outcome.score or 0.0)
        for job in stream
        if job.judged.context_key == key
    ]
    usual = fmean(score for sequence, score in scores if sequence <= 700)
    found = [
        one for one in feed(DriftMonitor.of(study()), {}, stream) if one.drift.contexts == (key,)
    ]
    sizes = [drift_event(study(), one).size for one in found]
    assert sizes == [pytest.approx(-1.0 / level, rel=0.1) for level in (usual, usual - 1.0)]


@pytest.mark.parametrize("phase", ["began", "grew", "over"])
@pytest.mark.parametrize("parameter", [None, "tp"])
def test_a_value_that_a_job_brought_is_shown_and_not_obeyed(
    phase: Phase, parameter: str | None
) -> None:
    """A terminal would take its title and colours from it, a log another line."""
    name = "\x1b]0;mine\x07\x1b[31mRED\n" + "é" * 500
    where = {"parameter": parameter} if parameter else {"feature": "model"}
    found = drift("inputs", **where, value=name, moved=0.3)
    event = drift_event(study(), DriftUpdate(phase, found, 14, AT, "It is usual now."))
    assert event.message.isprintable()
    assert len(event.message) < 200
    assert "RED�ééé" in event.message
    assert event.value == name
    assert msgspec.json.decode(to_bytes(event), type=DriftEvent) == event


def test_the_end_says_why() -> None:
    over = DriftUpdate("over", drift(moved=-0.1, level=1.0), 60, AT, "Predictions hold again.")
    event = drift_event(study(), over)
    assert event.message == "10% worse in the whole study: over. Predictions hold again."
    assert event.event_id != drift_event(study(), DriftUpdate("began", over.drift, 14, AT)).event_id
    assert event.drift_id == "drift-1"


def test_the_page_shows_one_and_the_schema_requires_all_fields() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert msgspec.json.decode(example.encode(), type=DriftEvent).kind == "speed"
    definition = drift_schema()["$defs"]["DriftEvent"]
    assert list(definition["properties"]) == list(json.loads(example))
    added = {
        "given_up",
        "asked_again",
        "signal",
    }  # a reader of the first edition does not know them
    assert set(definition["required"]) == set(definition["properties"]) - added
