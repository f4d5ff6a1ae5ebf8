"""What the daemon measures: backlogs, and the numbers that jobs are launched with."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.stages.fakes import FakeStream
from tests.stages.tuning import TOPIC, Tuning, tamper
from tunerd import telemetry
from tunerd.events import from_bytes
from tunerd.metrics.exporter import MetricsExporter
from tunerd.service.gauges import MOST_CONTEXTS, GaugeSampler

NAME = "tunerd_recommended_parameter"


@pytest.fixture
def recommended(tuning: Tuning) -> Tuning:
    """Recommendations are out in three contexts."""
    tuning.learned()
    return tuning


def sampler(tuning: Tuning) -> GaugeSampler:
    """As the daemon has it, with a tuner process of 7 bytes."""
    return GaugeSampler(
        store=tuning.store,
        stream=cast(Any, FakeStream()),
        guards={},
        topic=TOPIC,
        ingest=None,
        tuner=cast(Any, SimpleNamespace(resident_bytes=7)),
        is_away=lambda _: False,
        hear=tuning.heard.hear,
        note=lambda _subject, _problem: None,
        now=tuning.time.now,
    )


def measured(tuning: Tuning, gauges: GaugeSampler) -> telemetry.StudyBacklog:
    """What one look says of the study."""
    tuning.heard.reports.clear()
    assert list(gauges.measure()) == []
    (told,) = tuning.heard.of(telemetry.StudyBacklog)
    return told


def launched(tuning: Tuning) -> dict[str, dict[str, float]]:
    """The numbers of what the topic holds, by context."""
    numbers = {}
    for key, row in tuning.rows().items():
        message = from_bytes(row.value.encode())
        config = message.incumbent.config if message.incumbent else message.baseline or {}
        numbers[key.partition("|")[2]] = {
            name: float(value)
            for name, value in config.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
    return numbers


def test_the_numbers_of_what_most_jobs_are_launched_with(recommended: Tuning) -> None:
    told = measured(recommended, sampler(recommended))
    assert told.recommended == launched(recommended)
    assert set(told.recommended) == {"n=4", "n=8", "n=16"}
    assert all(numbers.keys() == {"x"} for numbers in told.recommended.values())  # y, z: no numbers
    assert (told.sequence, told.waiting) == (60, 0)
    assert recommended.heard.of(telemetry.TunerMemory)[0].resident_bytes == 7


def test_they_are_those_of_the_messages_that_hold_now(recommended: Tuning) -> None:
    gauges = sampler(recommended)
    before = measured(recommended, gauges).recommended
    recommended.command("pause", context={"n": 4})
    recommended.run(recommended.start())
    after = measured(recommended, gauges).recommended
    assert after == {name: numbers for name, numbers in before.items() if name != "n=4"}
    recommended.command("resume", context={"n": 4})
    recommended.command("pin", context={"n": 8}, config={"x": 2})
    recommended.run(recommended.start())
    again = measured(recommended, gauges).recommended
    assert set(again) == set(before)
    assert again["n=8"] == {"x": 2.0}


def test_prometheus_has_a_series_for_each(recommended: Tuning) -> None:
    exporter = MetricsExporter()
    exporter.hear(telemetry.StudyLoaded(study="toy", sequence=60))
    told = measured(recommended, sampler(recommended))
    exporter.hear(told)
    lines = exporter.render()[0].decode().splitlines()
    shown = {line for line in lines if line.startswith(f"{NAME}{{")}
    assert shown == {
        f'{NAME}{{context="{context}",parameter="x",study="toy"}} {numbers["x"]}'
        for context, numbers in told.recommended.items()
    }


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE recommendations SET value = half(value) WHERE context_key = ?",
        "UPDATE recommendations SET value = '{}' WHERE context_key = ?",
        "UPDATE recommendations SET value = 'null' WHERE context_key = ?",
        "UPDATE recommendations SET value = CAST(spoilt(value) AS TEXT) WHERE context_key = ?",
    ],
)
def test_a_damaged_row_has_no_numbers_and_the_others_have_theirs(
    recommended: Tuning, damage: str
) -> None:
    expected = launched(recommended)
    tamper(recommended.store, damage, recommended.key(8))
    told = measured(recommended, sampler(recommended))
    assert told.recommended == {name: v for name, v in expected.items() if name != "n=8"}


def test_of_several_instances_one_shows_a_study(recommended: Tuning) -> None:
    """Also where its tuner process, cut off or new, has said nothing of what it lost."""
    exporter = MetricsExporter()
    exporter.hear(telemetry.StudyLoaded(study="toy", sequence=60))
    members = SimpleNamespace(studies=frozenset({"toy"}))
    gauges = replace(sampler(recommended), members=cast(Any, members), hear=exporter.hear)

    def shown() -> bool:
        assert list(gauges.measure()) == []
        return 'study="toy"' in exporter.render()[0].decode()

    assert shown()
    members.studies = frozenset()
    assert not shown()
    members.studies = frozenset({"toy"})
    exporter.hear(telemetry.StudyLoaded(study="toy", sequence=60))
    assert shown()


def test_there_are_so_many_contexts_at_most(recommended: Tuning) -> None:
    rows = list(recommended.rows().values())
    with recommended.store.transaction() as tx:
        for number in range(MOST_CONTEXTS):
            row = rows[number % len(rows)]
            tx.save_recommendation(
                replace(row, context_key=f"toy|n={100 + number}", issued_at=recommended.time.now())
            )
    told = measured(recommended, sampler(recommended))
    assert len(told.recommended) == MOST_CONTEXTS


def test_a_context_without_its_signal_has_the_numbers_of_the_hour(recommended: Tuning) -> None:
    """Only while the plan holds. Afterwards there is no series, and KEDA falls back."""
    gauges, now_s = sampler(recommended), recommended.time.now().timestamp()
    quantiles = {"low": 3.0, "median": 4.0, "high": 5.0}

    def plan(*sizes: int, published: bool = True) -> None:
        windows = [
            {"start_s": now_s + 3600 * i, "end_s": now_s + 3600 * (i + 1), **quantiles}
            | {"key": recommended.key(size), "contexts": {}, "lowest": 2.0, "highest": 6.0}
            | {"others": {"wait": [6.0, 7.0, 8.0, 5.0, 9.0]}}
            for i, size in enumerate(sizes)
        ]
        stands = {"key": "toy|n=~", "sent_s": 0.0, "hours": []} if published else None
        signal: dict[str, object] = {"signal": "n", "context": {}, "state": "active", "why": ""}
        signal |= {"methods": {}, "windows": windows, "past": [], "published": stands}
        document = {"feature": "n", "signals": [signal]}
        with recommended.store.transaction() as tx:
            tx.save_forecast_plan("toy", document, recommended.time.now())

    plan(4, 16)
    exact = launched(recommended)
    told = measured(recommended, gauges)
    assert told.recommended == {**exact, "n=~": exact["n=4"]}
    assert told.foreseen == {
        "n=~": {
            "n": {"0.1": 3.0, "0.5": 4.0, "0.9": 5.0},
            "wait": {"0.1": 6.0, "0.5": 7.0, "0.9": 8.0},
        }
    }
    plan(3)  # nothing is recommended there: what the context has itself is no less true
    recommended.time.pass_(seconds=61.0)
    own = recommended.store.recommendation("toy", recommended.key(4))
    assert own is not None
    with recommended.store.transaction() as tx:
        tx.save_recommendation(replace(own, context_key="toy|n=~"))
    assert measured(recommended, sampler(recommended)).recommended["n=~"] == exact["n=4"]
    with recommended.store.transaction() as tx:
        tx.save_recommendation(replace(own, context_key="toy|n=~", state="withdrawn"))
    plan(4, 16)
    recommended.time.pass_(seconds=3601.0)
    assert measured(recommended, gauges).recommended["n=~"] == exact["n=16"]
    exporter = MetricsExporter()
    exporter.hear(telemetry.StudyLoaded(study="toy", sequence=60))
    exporter.hear(measured(recommended, gauges))
    shown = exporter.render()[0].decode()
    for feature in ("n", "wait"):
        labels = f'context="n=~",feature="{feature}",quantile="0.9"'
        assert f"tunerd_foreseen_signal{{{labels}" in shown
    plan(4, 16, published=False)
    recommended.time.pass_(seconds=61.0)
    told = measured(recommended, gauges)
    assert (told.recommended, told.foreseen) == (exact, {})
    exporter.hear(told)
    assert "tunerd_foreseen_signal{" not in exporter.render()[0].decode()
