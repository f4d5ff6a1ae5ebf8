"""States that are saved by their fields, and the layout that follows from these."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.core.tuning import Inline, study
from tunerd.core.conformal import ConformalBands
from tunerd.core.decisions.campaign import Campaign, PendingRuns
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.drift import DriftMonitor
from tunerd.core.evidence.gain_calibration import PredictedGain
from tunerd.core.evidence.paired_tests import PairedTest
from tunerd.core.evidence.uplift import UntestedIncumbents
from tunerd.core.observation import FeasibilityLabel, Value
from tunerd.core.recommendation import Kind
from tunerd.core.saved_state import SavedState, layout_of
from tunerd.core.tuner import PARTS, Tuner


class Inner(SavedState):
    """A state within another."""

    size: int
    name: str = ""


class Outer(SavedState):
    """A state with states."""

    inner: Inner
    more: dict[str, Inner] = msgspec.field(default_factory=dict)
    some: list[Inner] = msgspec.field(default_factory=list)


WHOLE = Outer(Inner(1), {"a": Inner(2, "two")}, [Inner(3)])


def kept(state: SavedState) -> Any:
    return json.loads(json.dumps(state.dump()))


def test_what_was_saved_comes_back() -> None:
    assert Outer.load(kept(WHOLE)) == WHOLE


@pytest.mark.parametrize(
    ("place", "key", "value", "told"),
    [
        ((), "other", 1, "unknown field `other`"),
        ((), "some", None, "array"),
        (("inner",), "size", "1", "inner.size"),
        (("more", "a"), "size", 1.5, "int"),
        (("more", "a"), "sizes", 1, "unknown"),
        ((), "more", ..., "more is missing"),
        (("inner",), "name", ..., "name is missing"),
        (("more", "a"), "name", ..., "name is missing"),
        (("some", 0), "name", ..., "name is missing"),
        (("some", 0), "size", ..., "required field `size`"),
    ],
)
def test_what_was_saved_otherwise_is_told(
    place: tuple[Any, ...], key: str, value: Any, told: str
) -> None:
    state = part = kept(WHOLE)
    for name in place:
        part = part[name]
    if value is ...:
        del part[key]
    else:
        part[key] = value
    with pytest.raises(ValueError, match=told):
        Outer.load(state)


def test_a_field_of_any_state_within_makes_the_layout() -> None:
    def layout(**inner: Any) -> str:
        bases = (SavedState,)
        state = msgspec.defstruct("Within", inner.items(), bases=bases)
        whole = msgspec.defstruct("Whole", [("of", dict[str, state])], bases=bases)  # type: ignore[valid-type]
        return layout_of(whole)

    assert layout(size=int) == layout(size=int)
    assert len({layout(size=int), layout(size=float), layout(sizes=int), layout()}) == 4


def full() -> ContextState:
    at = datetime(2026, 11, 1, 12, 30, 0, 5, tzinfo=UTC)
    state = ContextState({"n": 8, "gpu": "H100", "x": None, "f": 1.0}, last_job_at=at)
    configs: list[dict[str, Value]] = [{"x": 1}, {"x": 1}, {"x": [1, 2]}]
    for sequence, config in enumerate(configs, 1):
        name = f"c-{config['x']}"
        state.evidence.add(name, config, 0.5, FeasibilityLabel.YES, unasked=True, sequence=sequence)
    state.evidence.begin_again(2, 0.25)
    state.introduction.incumbent = "c-1"
    state.introduction.duels["c-2"] = PairedTest(3)
    state.introduction.uplift.earlier["c-0"] = 0.25
    state.introduction.uplift.untested = UntestedIncumbents("c-0", 0.125, {"c-1": 2})
    state.campaign = Campaign(0, 2, 4, asks=[PendingRuns("c-2", {"x": 2}, 1)])
    state.promised["c-2"] = PredictedGain(None, 1.0, Kind.EXPLORE, "c-1")
    state.rhythm.add(at)
    return state


def test_a_whole_context_comes_back() -> None:
    assert ContextState.load(kept(full())) == full()


def test_leads_are_read_as_an_earlier_version_kept_them() -> None:
    state = kept(full())
    leads = state["introduction"].pop("uplift")
    flat = {"ahead": leads["ahead"], "leads": leads["earlier"], "untested": leads["untested"]}
    state["introduction"] |= flat
    assert ContextState.load_other(state) == (full(), [])


def test_whatever_a_tuner_saves_by_its_fields_makes_the_layout() -> None:
    parts = vars(Tuner(study(), Inline())).values()
    states = {type(part) for part in parts if isinstance(part, SavedState)}
    assert {ConformalBands, DriftMonitor} < states
    assert states == set(PARTS.values())
