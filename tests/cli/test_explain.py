"""``tunerd explain`` on a store that a tuner has filled."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from tests.cli.conftest import Installation, Said
from tests.cli.learned import Learning
from tests.core.tuning import TEXT
from tests.stages.tuning import random_jobs
from tunerd.core.study_file import parse_study

Tunerd = Callable[..., Said]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Learning]:
    """Made once: nothing here changes it."""
    made = Learning.within(tmp_path_factory.mktemp("learned"))
    made.tuning.publish()
    stage = made.tuning.start()
    for first in (1, 41):
        made.tuning.add(random_jobs(40, first=first, seed=first))
        made.tuning.run(stage)
    yield made
    made.close()


@pytest.mark.slow
def test_what_matters_overall(tunerd: Tunerd, learned: Learning) -> None:
    said = tunerd("explain", "toy", "--settings", learned.file)
    assert (said.code, said.err) == (0, "")
    for part in ("toy: speed, by boosted_trees after 80 jobs", "context itself", "SHAP"):
        assert part in said.out
    permuted = tunerd("explain", "toy", "--settings", learned.file, "--method", "permutation")
    assert "shuffled among the jobs of a context" in permuted.out


@pytest.mark.slow
def test_for_a_program(tunerd: Tunerd, learned: Learning) -> None:
    command = ("explain", "toy", "--settings", learned.file, "--json", "--jobs", "20")
    told = tunerd(*command).json
    assert told["schema"] == "tunerd.explanation/1"
    assert told["overall"]["jobs"] <= 20
    assert told["recommendation"] is None
    assert {one["name"] for one in told["overall"]["matters"]} >= {"x", "y", "z", "n"}
    assert tunerd(*command).json == told


@pytest.mark.slow
def test_how_well_new_jobs_are_told_stands_beside(tunerd: Tunerd, learned: Learning) -> None:
    """Its error and τ are of jobs that it has learned; ``tunerd status`` has those of new ones."""
    where = ("--settings", learned.file)
    (study,) = tunerd("status", *where, "--json").json["studies"]
    told = tunerd("explain", "toy", *where, "--json").json["overall"]
    live = {"jobs": study["scores"]["observations"], "kendall_tau": study["scores"]["kendall"]}
    assert told["beforehand"] == live | {"imported": False}
    text = " ".join(tunerd("explain", "toy", *where).out.split())
    assert "jobs that it has learned, so new ones are told less well" in text
    assert f"predicted before they were learned, τ is {live['kendall_tau']:.3f}." in text
    assert "chance" not in text


@pytest.mark.slow
def test_of_noise_it_says_that_nothing_is_known(tunerd: Tunerd, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    made = Learning.within(tmp_path)
    made.tuning.publish()
    made.tuning.add(
        [
            structs.replace(one, history=True, metrics={"speed": float(np.exp(rng.normal(0, 0.1)))})
            for one in random_jobs(300)
        ]
    )
    made.tuning.run(made.tuning.start())
    made.close()
    told = tunerd("explain", "toy", "--settings", made.file, "--json").json["overall"]
    assert told["beforehand"]["imported"] is True
    assert told["kendall_tau"] > 0.3
    assert told["beforehand"]["kendall_tau"] < 0.1
    text = " ".join(tunerd("explain", "toy", "--settings", made.file).out.split())
    assert "imported jobs, predicted before they were learned, τ is" in text
    assert "chance would do as well" in text


@pytest.mark.parametrize("by", ["id", "context"])
def test_one_recommendation(tunerd: Tunerd, learned: Learning, by: str) -> None:
    said = learned.tuning.said(8)
    which = (
        ("--context", "n=8") if by == "context" else ("--recommendation", said.recommendation_id)
    )
    command = ("explain", "toy", "--settings", learned.file, *which)
    told = tunerd(*command, "--json").json
    found = told["recommendation"]
    assert found["recommendation_id"] == said.recommendation_id
    assert (found["against"], told["model"]["same"]) == ("incumbent", True)
    assert len(found["candidates"]) == len(said.candidates)
    for one, candidate in zip(found["candidates"], said.candidates, strict=True):
        assert sum(change["score"] for change in one["changes"]) == pytest.approx(one["score"])
        assert one["feasible"] == pytest.approx(candidate.feasible, abs=1e-4)
        assert said.incumbent is not None
        changed = {k for k, v in candidate.config.items() if said.incumbent.config[k] != v}
        assert {change["parameter"] for change in one["changes"]} == changed
    text = tunerd(*command).out
    assert "n\N{THIN SPACE}" not in text
    assert "against the incumbent by the model alone" in " ".join(text.split())
    assert "→" in text


@pytest.mark.slow
def test_a_model_that_is_not_kept_is_replaced_by_the_present_one(
    tunerd: Tunerd, learned: Learning, tmp_path: Path
) -> None:
    row = learned.tuning.row(8)
    for part in learned.file.parent.glob("store.sqlite*"):
        shutil.copy(part, tmp_path)
    copy = Learning.within(tmp_path)
    made = learned.tuning.said(8).made_from.model
    assert made is not None
    with copy.store.transaction() as tx:
        tx.save_recommendation(replace(row, value=row.value.replace(made, "sha256:gone")))
    copy.close()
    which = ("--settings", copy.file, "--context", "n=8")
    assert tunerd("explain", "toy", *which, "--json").json["model"]["same"] is False
    assert "cannot be read any more" in tunerd("explain", "toy", *which).out


def test_one_that_no_longer_stands(tunerd: Tunerd, learned: Learning) -> None:
    standing = {row.recommendation_id for row in learned.tuning.rows().values()}
    old = [one for _, one, _ in learned.store.derivable("toy") if one not in standing]
    assert old
    which = ("--settings", learned.file, "--recommendation", old[0])
    told = tunerd("explain", "toy", *which, "--json").json
    assert told["recommendation"]["state"] == "earlier"
    assert told["recommendation"]["recommendation_id"] == old[0]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_as_a_plot(tunerd: Tunerd, learned: Learning, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"why.{ending}"
    for more in ((), ("--context", "n=8")):
        said = tunerd("explain", "toy", "--settings", learned.file, "--plot", file, *more)
        assert (said.code, str(file) in said.out.replace("\n", "")) == (0, True)
        assert file.stat().st_size > 5_000


def test_what_is_wrong_is_said(tunerd: Tunerd, learned: Learning) -> None:
    def fails(*words: object) -> str:
        said = tunerd("explain", *words)
        assert said.code != 0
        return said.err

    mine = ("--settings", learned.file)
    assert "it knows: toy" in fails("toi", *mine)
    assert learned.tuning.said(8).recommendation_id in fails(
        "toy", *mine, "--recommendation", "r-0"
    )
    assert "nothing is recommended in toy|n=9" in fails("toy", *mine, "--context", "n=9")
    assert "no context feature 'm'" in fails("toy", *mine, "--context", "m=9")
    assert ".png" in fails("toy", *mine, "--plot", "why.bmp")
    assert "either" in fails("toy", *mine, "--context", "n=8", "--recommendation", "r-0")


def test_a_model_of_another_version_is_learned_anew_first(
    tunerd: Tunerd, learned: Learning
) -> None:
    saved = learned.store.study_state("toy")
    assert saved is not None
    for layout, code in ((1, 1), (saved.state["layout"], 0)):
        with learned.store.transaction() as tx:
            state = saved.state | {"layout": layout}
            tx.save_study_state("toy", state, epoch=saved.epoch, now=saved.saved_at)
        said = tunerd("explain", "toy", "--settings", learned.file)
        wants = "another version of tunerd learned toy; `tunerd run` learns it anew"
        assert (said.code, wants in said.err) == (code, code == 1)


@pytest.mark.slow
def test_shap_values_are_for_boosted_trees(tunerd: Tunerd, tmp_path: Path) -> None:
    other = Learning.within(tmp_path)
    new = parse_study(TEXT.replace('"boosted_trees"', '"gaussian_process"'))
    other.store.publish_generation(
        "toy", new.content_hash, new.text, "test", other.tuning.time.now(), force=True
    )
    other.tuning.add(random_jobs(20))
    other.tuning.run(other.tuning.start())
    other.close()
    mine = ("--settings", other.file, "--method")
    said = tunerd("explain", "toy", *mine, "shap")
    assert (said.code, said.out) == (2, "")
    (line,) = [one for one in said.err.splitlines() if one.startswith("Error: ")]
    for part in ("boosted_trees", "gaussian_process", "permutation"):
        assert part in line
    assert tunerd("explain", "toy", *mine, "permutation").code == 0
    assert "shap is for boosted_trees" in " ".join(tunerd("explain", "--help").out.split())


def test_a_study_without_a_model_says_what_it_waits_for(
    tunerd: Tunerd, installation: Installation
) -> None:
    said = tunerd("explain", "llm", "--settings", installation.file)
    assert (said.code, "no model yet" in said.err) == (1, True)
    assert "running?" not in said.err  # nothing waits to be learned
