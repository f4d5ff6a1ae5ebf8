"""The report as a whole, and the words in it: what it says when there is little to say."""

import json
import math

import jsonschema
import msgspec
import pytest
from msgspec import structs

from tests.core.tuning import study
from tests.report.made import NOW, advised, material, told
from tests.report.world import world
from tunerd.core.evidence.prequential import PrequentialRecord
from tunerd.core.observation import Status, Value
from tunerd.report.compute import MOST_CONTEXTS, compute
from tunerd.report.formatting import (
    changes_text,
    context_label,
    number,
    percent,
    rounded,
    sentence,
    span,
    tick,
    value_text,
)
from tunerd.report.gather import CurrentRecommendation, ReportInputs
from tunerd.report.model import ReportInterval, StudyReport, report_json, report_schema


def reported(made: ReportInputs) -> StudyReport:
    """The report, which is JSON and valid by its own schema."""
    report = compute(made, NOW)
    text = report_json(report)
    assert msgspec.json.decode(text, type=StudyReport) == report
    jsonschema.validate(json.loads(text), report_schema())
    return report


def live(jobs: int = 200, **options: int) -> list[PrequentialRecord]:
    return world(1, **options).run(jobs)[0]


def failed(rows: list[PrequentialRecord]) -> list[PrequentialRecord]:
    """The same jobs, had none of them run."""
    return [
        structs.replace(
            one,
            outcome=structs.replace(
                one.outcome, score=None, ran=False, status=Status.OUT_OF_MEMORY
            ),
        )
        for one in rows
    ]


def test_a_month() -> None:
    report = reported(material(live(), recommendations=advised(5)))
    assert (report.study, report.mode, report.generation) == ("toy", "observe", 3)
    assert (report.counts.jobs, report.counts.contexts) == (200, 5)
    assert report.counts.following == {"unasked": 200}
    assert report.counts.gpu_hours == 2000.0
    assert report.would is not None
    assert report.would.verdict == "shown"
    assert report.would.gain is not None
    assert report.would.gain.value == pytest.approx(0.1, abs=0.06)
    assert report.headline == report.would.sentence
    assert "bear this out" in report.headline
    assert report.candidates is not None
    assert "Nobody knows" in report.candidates.sentence
    assert report.quality is not None
    assert report.fresh is not None
    assert report.fresh.jobs < report.quality.jobs == 200
    assert report.followed is None
    assert report.history is None
    assert [c.jobs for c in report.contexts] == sorted(c.jobs for c in report.contexts)[::-1]
    advice = report.contexts[0].advice
    assert advice is not None
    assert advice.candidate is not None
    assert (advice.candidate.gain, advice.candidate.feasible) == (0.3, 0.97)


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.8, "80% came true, and the rest is taken off."), (1.01, "101% came true.")],
)
def test_where_all_came_true_no_rest_is_taken_off(share: float, said: str) -> None:
    report = reported(material(live(configs=400, popular=200)))
    assert report.would is not None
    assert report.would.verdict == "likely"
    came = ReportInterval(share, share - 0.1, share + 0.1)
    assert sentence(structs.replace(report.would, came_true=came)).endswith(said)


def test_no_jobs_yet() -> None:
    report = reported(material())
    assert report.headline == "No jobs came in this time."
    assert (report.would, report.quality, report.contexts) == (None, None, [])


def test_no_model_yet() -> None:
    rows = [
        structs.replace(
            one,
            outcome=structs.replace(
                one.outcome, predicted=None, low=None, high=None, feasible=None, incumbent=None
            ),
        )
        for one in live(4)
    ]
    report = reported(material(rows))
    assert report.headline.startswith("Too few jobs with an objective")
    assert report.reliability is None


def test_all_failed() -> None:
    report = reported(material(failed(live(40))))
    assert report.counts.did_not_run == 40
    assert report.would is None
    assert report.reliability is not None
    assert (report.reliability.jobs, report.reliability.ran) == (40, 0)
    assert any("40 jobs did not run" in note for note in report.notes)


def test_everybody_runs_what_is_best() -> None:
    report = reported(material(live(popular=1)))
    assert report.would is None
    assert "nothing to gain that has been seen" in report.headline


def test_everybody_follows_and_most_try_something() -> None:
    """The headline said that these had run what is best."""
    report = reported(material(world(1, following=1.0, explore=0.8).run(200)[0]))
    assert report.would is None
    assert report.headline.startswith("Nearly all jobs followed what was recommended, ran the best")


@pytest.mark.slow
def test_a_thousand_contexts_are_told_by_the_fifty_with_most_jobs() -> None:
    report = reported(material(live(300, contexts=3), recommendations=advised(1000)))
    assert len(report.contexts) == MOST_CONTEXTS == 50
    assert report.contexts_total == 1000
    assert [one.jobs > 0 for one in report.contexts] == [True] * 3 + [False] * 47


def test_followers_and_candidates_are_in_it() -> None:
    rows, _ = world(3, following=0.4, explore=0.5).run(300)
    report = reported(material(rows, of=study(mode='"publish"')))
    assert report.followed is not None
    assert report.followed.kept.gain is not None
    assert report.followed.kept.gain.value > 0
    assert report.candidates is not None
    assert report.candidates.tried > 10
    assert report.candidates.came is not None
    assert "tried a candidate" in report.candidates.sentence
    assert report.counts.following["followed"] == (
        report.followed.kept.jobs + report.followed.tried.jobs
    )


@pytest.mark.slow
def test_what_broke_a_guard_gained_nothing_however_fast() -> None:
    rows, _ = world(1, following=0.3).run(600)
    broke = [
        structs.replace(one, outcome=structs.replace(one.outcome, score=99.0, ran=False))
        if one.outcome.told_to_try
        else one
        for one in rows
    ]
    whole, without = reported(material(rows)), reported(material(broke))
    assert whole.candidates is not None
    assert whole.candidates.came is not None
    assert without.candidates is not None
    assert (without.candidates.tried_ran, without.candidates.came) == (0, None)
    assert without.followed is not None
    assert without.followed.tried.gain is None
    assert without.would is not None
    assert without.would.gain is not None
    assert abs(without.would.gain.value) < 1.0


def test_imported_jobs_have_a_section_of_their_own() -> None:
    past = [structs.replace(one, history=True) for one in live(100)]
    report = reported(material([], history=past, history_total=400))
    assert (report.counts.jobs, report.would, report.quality) == (0, None, None)
    assert "Of 400 imported jobs, 100 were predicted" in report.headline
    assert report.history is not None
    assert (report.history.jobs, report.history.left_out, report.history.predicted) == (
        400,
        300,
        100,
    )
    assert report.history.quality is not None
    assert report.history.quality.jobs == 100


def test_what_a_reader_must_keep_in_mind_is_noted() -> None:
    rows = [
        structs.replace(one, outcome=structs.replace(one.outcome, gpu_hours=None)) if i % 2 else one
        for i, one in enumerate(live())
    ]
    notes = reported(material(rows, live_total=1000, unlearned=7)).notes
    assert notes[0] == (
        "Only the latest 200 jobs of this time were looked at; 800 earlier ones were left out."
    )
    assert notes[1].startswith("7 jobs in the store are not learned yet")
    assert any("GPU-hours are those of 100 of 200 jobs" in note for note in notes)


@pytest.mark.parametrize("goal", ["maximize", "minimize"])
def test_a_gain_is_positive_whatever_the_goal(goal: str) -> None:
    report = reported(material(live(), of=study(goal=f'"{goal}"')))
    assert report.would is not None
    assert report.would.gain is not None
    assert report.would.gain.value > 0
    assert report.would.gpu_hours is not None
    assert report.would.gpu_hours.value > 0


def test_a_recommendation_that_is_nearly_empty() -> None:
    bare = told("toy|n=0", {"n": 0}, candidates=(), incumbent=None, baseline=None)
    report = reported(
        material(live(20), recommendations={"toy|n=0": CurrentRecommendation("withdrawn", bare)})
    )
    advice = next(c.advice for c in report.contexts if c.key == "toy|n=0")
    assert advice is not None
    assert (advice.state, advice.incumbent, advice.candidate) == ("withdrawn", None, None)


# -- words ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0423, "+4.2%"),
        (-0.0423, "−4.2%"),
        (12.3, "+1230%"),
        (None, "–"),
        (math.nan, "–"),
        (0.0, "+0.0%"),
        (-0.0004, "+0.0%"),
    ],
)
def test_percent(value: float | None, text: str) -> None:
    assert percent(value) == text


@pytest.mark.parametrize(
    ("value", "text", "rough", "short"),
    [
        (0, "0", "0", "0"),
        (3.14159, "3.142", "3.14", "3.14159"),
        (412.71, "412.7", "413", "412.71"),
        (56555.4, "56,555", "56,600", "56,555.4"),
        (-2.5, "−2.500", "−2.50", "−2.5"),
        (92.8, "92.80", "92.8", "92.8"),
        (1.75e13, "1.75e13", "1.75e13", "1.75e13"),
    ],
)
def test_numbers(value: float, text: str, rough: str, short: str) -> None:
    assert (number(value), rounded(value), tick(value)) == (text, rough, short)


def test_what_a_configuration_changes() -> None:
    before: dict[str, Value] = {"x": 1, "layers": ["A", "A", "B"], "z": True}
    after: dict[str, Value] = {"x": 1, "layers": ["B", "B", "B"], "z": False}
    assert changes_text(after, before) == "layers=B×3 (was A×2, B)  z=false (was true)"
    assert changes_text(before, before) == "the same"
    assert changes_text({"x": 1.5}, {}) == "x=1.5"
    assert value_text(175_000_000) == "175,000,000"


def test_contexts_are_named_by_their_values() -> None:
    assert context_label("s|gpu=H100|n=8", {"gpu": "H100", "n": 8}) == "gpu\u00a0H100, n\u00a08"
    assert context_label("s|gpu=A%7CB|n=~", {}) == "gpu\u00a0A|B, n\u00a0–"
    assert context_label("s", {}) == "any"
    assert span(ReportInterval(0.1, None, None)) == "–"
