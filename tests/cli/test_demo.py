"""``tunerd demo``: what it promises and what it says, on few jobs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Said
from tunerd.lab.demo import DemoResult, in_one_sentence

Tunerd = Callable[..., Said]

RESULT = DemoResult(
    folder=Path("demo"),
    study="ads-fsdp",
    metric="qps",
    unit="samples/s",
    seed=1,
    jobs=300,
    seconds=83.0,
    baseline=100.0,
    tunerd=105.0,
    random=101.0,
    gain_over_baseline=0.05,
    gain_over_random=0.0396,
    kendall_tau=0.5,
    failed=82,
    failed_lately=9,
    random_failed=195,
    sweep_jobs=20,
    sweep_failed=4,
    n_gpus=256,
    config={},
    tunerd_curve=np.zeros(1),
    random_curve=np.zeros(1),
)


def test_the_sentence_says_what_was_won_against_what_and_at_which_cost() -> None:
    assert in_one_sentence(RESULT) == (
        "In 300 jobs, and without a sweep, tunerd found a configuration that is 5.0% better than "
        "what a person found in a sweep of 20 jobs, worth 13 more of 256 GPUs, and 4.0% better "
        "than random search over as many jobs; it cost 82 jobs that did not run while it tried "
        "new values, where random search lost 195."
    )


@pytest.mark.parametrize(("gain", "says"), [(0.0, "nothing that beats"), (-0.01, "nothing that")])
def test_nothing_that_was_won_is_said_too(gain: float, says: str) -> None:
    said = in_one_sentence(replace(RESULT, gain_over_baseline=gain))
    assert says in said
    assert "82 of the jobs failed" in said


@pytest.mark.slow
def test_it_explains_its_columns_and_ends_with_the_sentence(
    tunerd: Tunerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six seconds: two processes start, and the last word is waited for."""
    monkeypatch.chdir(tmp_path)
    said = tunerd("demo", "--jobs", 40, "--rate", 20, "--folder", "demo")
    assert said.code == 0, said.err
    for column in ("gain", "tau", "followed", "failed"):
        assert f"  {column:9} " in said.out
    assert "40 of 40 jobs" in said.out
    assert "random search" in said.out
    assert " ".join(said.out.split()).endswith(".")
    assert "In 40 jobs" in said.out.splitlines()[-2] + said.out.splitlines()[-1]
    assert (tmp_path / "demo" / "demo.png").exists()


def test_where_the_folder_exists_nothing_is_begun(tunerd: Tunerd, tmp_path: Path) -> None:
    said = tunerd("demo", "--folder", tmp_path, "--json")
    assert (said.code, said.out) == (2, "")
    assert "name a new one" in said.err
