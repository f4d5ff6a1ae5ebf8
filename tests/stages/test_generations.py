"""What a new generation takes over from the one before, through the tune stage."""

from collections.abc import Iterator

import pytest
from msgspec import structs

from tests.core.tuning import TEXT
from tests.stages.fakes import Heard, Time
from tests.stages.tuning import Tuning, random_jobs
from tunerd.core.observation import Observation
from tunerd.core.recommendation import Recommendation
from tunerd.core.study import Study, parse_study
from tunerd.events import from_bytes
from tunerd.store import Store

Changes = list[tuple[str, str]]

X = 'x = { type = "int", values = [1, 2, 3, 4, 5, 6, 7, 8] }'
N = 'n = { type = "int", scale = "log" }'
Z = 'z = { type = "bool" }'
UNRELATED: Changes = [("keep = 32", "keep = 31")]
RENAMED: Changes = [
    (X, X.replace("x =", "ex =").replace(" }", ', was = "x" }')),
    ("x <= n", "ex <= n"),
    ("config = { x", "config = { ex"),
]
CONTEXT_RENAMED: Changes = [(N, N.replace("n =", "gpus =").replace(" }", ', was = "n" }'))]
CONTEXT_RENAMED += [("x <= n", "x <= gpus")]
CONTEXT_ADDED: Changes = [(N, N + '\ngpu = { type = "category", absent = "A100" }')]
ADDED: Changes = [(Z, Z + '\nw = { type = "int", values = [1, 2], absent = 2 }')]


@pytest.fixture
def tuning(store: Store, time: Time, heard: Heard) -> Iterator[Tuning]:
    made = Tuning(store, time, heard)
    yield made
    for one in made.made:
        one._background.shutdown()


def changed(changes: Changes) -> Study:
    text = TEXT.replace("explore_share = 0.5", "explore_share = 0.1")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_study(text)


def publish(tuning: Tuning, changes: Changes) -> Study:
    new = changed(changes)
    tuning.store.publish_generation(
        "toy", new.content_hash, new.text, "test", tuning.time.now(), force=True
    )
    return new


def said(tuning: Tuning, study: Study) -> Recommendation:
    """About n = 8."""
    row = tuning.rows()[study.context_key({"n": 8})]
    assert row.state == "active"
    return from_bytes(row.value.encode())


def told(tuning: Tuning, study: Study) -> tuple[float, float]:
    """What is said of the incumbent, and the best that is predicted."""
    one = said(tuning, study)
    assert one.incumbent is not None
    best = [c.predicted.median for c in one.candidates if c.predicted is not None]
    return one.incumbent.median, max(best)


def slowed(count: int, change: int) -> list[Observation]:
    """Jobs of n = 8 that from one on take three times as long."""
    return [
        structs.replace(one, metrics={"speed": one.metrics["speed"] / 3})
        if one.metrics and one.sequence > change
        else one
        for one in random_jobs(count, sizes=(8,))
    ]


@pytest.mark.parametrize("changes", [UNRELATED, RENAMED, CONTEXT_RENAMED, ADDED])
def test_what_a_drift_taught_is_not_forgotten(tuning: Tuning, changes: Changes) -> None:
    """As history is learned anew: what ran before tells of another time."""
    before = publish(tuning, [])
    tune, jobs = tuning.start(), slowed(240, 200)
    for first in range(0, len(jobs), 20):
        tuning.add(jobs[first : first + 20])
        tuning.run(tune)
    known = told(tuning, before)
    after = publish(tuning, changes)
    tuning.run(tune)
    assert told(tuning, after) == pytest.approx(known, rel=0.15)
    # And so it is for the generation that comes after, and one that learns anew unasked.
    saved = tuning.store.study_state("toy")
    assert saved is not None
    with tuning.store.transaction() as tx:
        state = saved.state | {"layout": 1}
        tx.save_study_state("toy", state, epoch=saved.epoch, now=tuning.time.now())
    tuning.time.pass_(seconds=600)
    tuning.run(tuning.start())
    assert told(tuning, after) == pytest.approx(known, rel=0.15)
