"""``tunerd derive`` on a store that a tuner has filled."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import Installation, Said
from tests.cli.learned import Learning
from tests.stages.tuning import random_jobs

Tunerd = Callable[..., Said]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Learning]:
    """Made once: what a test changes it puts back."""
    made = Learning.within(tmp_path_factory.mktemp("derived"))
    made.tuning.publish()
    stage = made.tuning.start()
    for first in (1, 31, 61):
        made.tuning.add(random_jobs(30, first=first, seed=first))
        made.tuning.run(stage)
    yield made
    made.close()


@pytest.mark.slow
def test_the_same_bit_for_bit(tunerd: Tunerd, learned: Learning) -> None:
    for row in learned.tuning.rows().values():
        said = tunerd("derive", row.recommendation_id, "--settings", learned.file)
        assert (said.code, said.err) == (0, "")
        assert "The same, bit for bit." in said.out
        for part in ("build", "study", "orders", "history", "evidence", "model"):
            assert part in said.out


@pytest.mark.slow
def test_for_a_program(tunerd: Tunerd, learned: Learning) -> None:
    told = tunerd("derive", "--study", "toy", "--settings", learned.file, "--json").json
    assert told["schema"] == "tunerd.derivation/1"
    assert told["same"] is True
    assert told["said"] == told["derived"]
    assert (told["differences"], told["stands"]) == ([], [])
    latest = max(learned.tuning.rows().values(), key=lambda row: row.issued_at)
    assert told["sequence"] == json.loads(latest.value)["made_from"]["sequence"]


@pytest.mark.slow
def test_what_a_build_kept_otherwise_is_not_read(tunerd: Tunerd, learned: Learning) -> None:
    kept = learned.store.derivation(learned.tuning.row(8).recommendation_id)
    assert kept is not None
    with learned.store.transaction() as tx:
        basis = {name: value for name, value in kept.basis.items() if name != "states"}
        tx.save_derivation(replace(kept, basis=basis))
    said = tunerd("derive", kept.recommendation_id, "--settings", learned.file)
    with learned.store.transaction() as tx:
        tx.save_derivation(kept)
    assert said.code == 1
    assert "does not read what was kept then: it wants 'states'" in " ".join(said.out.split())


@pytest.mark.slow
def test_what_stands_in_the_store_is_compared_too(tunerd: Tunerd, learned: Learning) -> None:
    row = learned.tuning.row(8)
    with learned.store.transaction() as tx:
        changed = row.value.replace('"share":0.', '"share":0.0')
        assert changed != row.value
        tx.save_recommendation(replace(row, value=changed))
    said = tunerd("derive", row.recommendation_id, "--settings", learned.file)
    assert said.code == 1
    assert "What stands in the store" in said.out
    with learned.store.transaction() as tx:
        tx.save_recommendation(row)
    assert tunerd("derive", row.recommendation_id, "--settings", learned.file).code == 0


@pytest.mark.slow
def test_a_renewal_is_the_same_recommendation(tunerd: Tunerd, learned: Learning) -> None:
    before = learned.tuning.row(8)
    learned.tuning.run(learned.tuning.made[-1], days=4)
    after = learned.tuning.row(8)
    assert after.revision > before.revision
    assert after.recommendation_id == before.recommendation_id
    assert tunerd("derive", after.recommendation_id, "--settings", learned.file).code == 0


def test_a_difference_is_shown_with_its_likely_reason(tunerd: Tunerd, learned: Learning) -> None:
    kept = learned.store.derivation(learned.tuning.row(16).recommendation_id)
    assert kept is not None
    basis = {**kept.basis, "build": {**kept.basis["build"], "numpy": "1.0"}}
    message = {**kept.message, "reason": "Because."}
    with learned.store.transaction() as tx:
        tx.save_derivation(replace(kept, basis=basis, message=message))
    said = tunerd("derive", kept.recommendation_id, "--settings", learned.file)
    with learned.store.transaction() as tx:
        tx.save_derivation(kept)
    assert said.code == 1
    for part in ("numpy 1.0 →", "reason", "Because.", "likely reason: build"):
        assert part in said.out


def test_what_is_wrong_is_said(
    tunerd: Tunerd, learned: Learning, installation: Installation
) -> None:
    def fails(*words: object, settings: Path = learned.file) -> str:
        said = tunerd("derive", *words, "--settings", settings)
        assert said.code == 2
        return said.err

    assert learned.tuning.row(8).recommendation_id in fails("r-0")
    assert "--study" in fails()
    assert "--study" in fails("r-0", "--study", "toy")
    assert "knows: toy" in fails("--study", "toi")
    assert "said nothing yet" in fails("--study", "llm", settings=installation.file)


@pytest.mark.slow
def test_one_that_was_kept_without_what_it_takes_says_so(tunerd: Tunerd, learned: Learning) -> None:
    row = learned.tuning.row(4)
    old = "r-00000000000000000000"
    with learned.store.transaction() as tx:
        tx.save_recommendation(replace(row, recommendation_id=old))
    said = tunerd("derive", old, "--settings", learned.file)
    with learned.store.transaction() as tx:
        tx.save_recommendation(row)
    assert (said.code, "not kept" in said.err) == (2, True)
