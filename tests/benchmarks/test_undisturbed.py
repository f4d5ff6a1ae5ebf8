"""Steps that were taken with restarts in between, taken once more without any."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.undisturbed import step_again
from tests.stages.sharing import Ticking, elsewhere, join, offer, settle
from tests.stages.tuning import NAME, Tuning, another, random_jobs, tamper


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[Tuning]:
    """A study whose tuner process was another one every few steps."""
    with another(tmp_path) as tuning:
        tuning.publish()
        for turn in range(4):
            stage = tuning.start()
            for part in range(3):
                first = 1 + 12 * (3 * turn + part)
                tuning.add(random_jobs(12, first=first, seed=first))
                tuning.run(stage)
        yield tuning


def test_the_same_is_recommended_undisturbed(restarted: Tuning, tmp_path: Path) -> None:
    again = step_again(restarted.store, NAME, tmp_path)
    assert again.keys == len(restarted.rows()) > 1
    assert again.steps == len(restarted.store.steps(NAME, limit=1000)) > 12
    assert again.differing == {}


def test_what_was_learned_otherwise_shows(restarted: Tuning, tmp_path: Path) -> None:
    tamper(
        restarted.store,
        """UPDATE observations SET metrics = '{"speed": 1.0}' WHERE sequence < 100""",
    )
    assert step_again(restarted.store, NAME, tmp_path).differing


def test_what_was_recommended_otherwise_shows(restarted: Tuning, tmp_path: Path) -> None:
    key = restarted.key(8)
    tamper(
        restarted.store,
        "UPDATE recommendations SET value = json_set(value, '$.revision', 99) "
        "WHERE context_key = ?",
        key,
    )
    assert step_again(restarted.store, NAME, tmp_path).differing == {key: ["revision"]}


def test_what_others_searched_is_recommended_undisturbed_too(tmp_path: Path) -> None:
    with another(tmp_path) as tuning:
        tuning.time = Ticking()
        tuning.publish()
        owner = join(tuning, "a")
        assert owner.stage.step()
        helper = join(tuning, "b")
        offer(tuning, owner, [helper])
        while helper.stage.step():
            pass
        tuning.add(random_jobs(28, first=73, sizes=[4]))  # learned before results are taken over
        settle(owner, [helper])
        shared = elsewhere(tuning.store.steps(NAME, limit=1000))
        assert len(shared) > 3
        again = step_again(tuning.store, NAME, tmp_path)
        assert again.keys > len(shared)
        assert again.differing == {}
        # And where their rows do not say so, it shows.
        tamper(tuning.store, "UPDATE tune_steps SET detail = json_remove(detail, '$.elsewhere')")
        assert step_again(tuning.store, NAME, tmp_path / "tampered").differing


def test_what_got_a_brief_look_gets_one_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many contexts wait, those that were never searched do."""
    monkeypatch.setattr("tunerd.stages.tune.BRIEF_ABOVE", 1)
    monkeypatch.setattr("tunerd.core.decisions.advisor.BRIEF", 4)
    with another(tmp_path) as tuning:
        tuning.publish()
        tuning.add(random_jobs(60))
        tuning.run(tuning.start())
        steps = tuning.store.steps(NAME, limit=1000)
        brief = [key for step in steps for key in step.detail.get("brief", ())]
        assert len(brief) == len({*brief}) > 1
        assert step_again(tuning.store, NAME, tmp_path).differing == {}
        tamper(tuning.store, "UPDATE tune_steps SET detail = json_remove(detail, '$.brief')")
        assert step_again(tuning.store, NAME, tmp_path / "tampered").differing
