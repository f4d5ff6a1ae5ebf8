"""The paper's experiments, on little and on a table that was made up; and the page of the last
full run."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.paper import program, tables
from benchmarks.paper.bars import hold
from benchmarks.paper.intervals import Answers, compared, interval
from benchmarks.paper.page import page
from benchmarks.paper.pictures import PICTURES
from benchmarks.paper.sizes import QUICK, TINY
from tests.benchmarks.made_up import NAME, write_table

PARTS = ("figure2a", "figure3", "ablations")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of results: the ads space, and a made-up table in the place of a language model."""
    file = tmp_path_factory.mktemp("paper") / "results.json"
    data = write_table(tmp_path_factory.mktemp("data"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "LANGUAGE_MODELS", (NAME,))
        program.measure(file, TINY, data, PARTS, processes=1)
    return file


def test_a_small_run_makes_the_page_and_its_pictures(results: Path, tmp_path: Path) -> None:
    assert program.main(["--render", "--results", str(results), "--docs", str(tmp_path)]) == 0
    text = (tmp_path / "paper.md").read_text()
    for title in ("Figure 2a", "Figure 3", "Ablations", "From the paper to the code"):
        assert f"## {title}" in text
    assert "It was a tiny run" in text
    assert f"| `{NAME}` | older to newer |" in text
    for name in ("figure2a", "searchers", "scale"):
        assert f"](paper/{name}.svg)" in text
        assert (tmp_path / "paper" / f"{name}.svg").stat().st_size > 1_000
    assert "hardware.svg" not in text, "what was not run has no picture"
    assert "nan" not in text.split()


def test_a_run_goes_on_where_it_was_and_repeats_itself(results: Path) -> None:
    before = json.loads(results.read_text())
    task = "figure3/split/" + f"{NAME}/random random "
    del before["tasks"][task]
    results.write_text(json.dumps(before))
    data = write_table(results.parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "LANGUAGE_MODELS", (NAME,))
        wanted = program.planned(TINY, data, ["figure3"])
        program.measure(results, TINY, data, ["figure3"], processes=1)
    after = json.loads(results.read_text())
    assert {one.name for one in wanted} <= set(after["tasks"])
    for name, one in before["tasks"].items():
        assert after["tasks"][name]["result"] == one["result"], name


def test_results_of_one_size_are_not_taken_for_another(results: Path) -> None:
    with pytest.raises(SystemExit, match="size tiny"):
        program.measure(results, QUICK, results.parent, ["figure2a"])


def test_a_lead_and_its_interval_are_told_apart_from_luck() -> None:
    rng = np.random.default_rng(0)
    actual = rng.normal(size=200)
    told = {
        "ours": actual + 0.1 * rng.normal(size=200),
        "theirs": actual + 1.0 * rng.normal(size=200),
        "same": actual + 0.1 * rng.normal(size=200),
    }
    found = compared([Answers(actual, told, np.exp)], ["ours"], 300)
    leads = found["leads"]
    assert isinstance(leads, dict)
    _, low, high, _ = leads["ours"]["theirs"]["tau"]
    assert 0 < low < high
    _, low, high, _ = leads["ours"]["same"]["tau"]
    assert low < 0.02
    assert high > -0.02
    assert interval([1.0]) == (1.0, -np.inf, np.inf)


def test_who_is_behind_beyond_luck_misses_the_bar() -> None:
    def split(lead: list[float]) -> dict[str, object]:
        question = {"table": "t", "what": "scale", "split": "above:n=8", "known": "0"}
        leads = {"boosted_trees": {"lightgbm": {"tau": lead}}}
        return {"question": question, "figures": {}, "leads": leads, "rows": 600}

    def found(lead: list[float]) -> dict[str, object]:
        task = {"part": "figure3", "what": "split", "seed": 0, "table": "t", "extra": ""}
        sizes = {"predictors": ["boosted_trees"]}
        return {"tasks": {"a": task | {"result": split(lead)}}, "sizes": sizes}

    assert any("behind" in line for line in hold(found([-0.1, -0.12, -0.08, 1e-6])))
    assert not any("behind" in line for line in hold(found([-0.1, -0.3, 0.1, 0.3])))


def test_the_published_page_is_what_the_published_results_say() -> None:
    if not program.PUBLISHED.exists():
        pytest.skip("nothing is published yet")
    found = json.loads(program.PUBLISHED.read_text())
    folder = program.DOCS / "paper"
    there = [name for name in PICTURES if (folder / f"{name}.svg").exists()]
    assert (program.DOCS / "paper.md").read_text() == page(found, there)
