"""Figures of the documentation that can be looked up in what they are about."""

import re
from pathlib import Path

from tunerd.cli.simulate import simulate
from tunerd.core.space import SearchSpace
from tunerd.core.study_file import parse_study

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "tunerd" / "lab" / "simulation" / "studies"


def page(name: str) -> str:
    return " ".join((ROOT / "docs" / name).read_text().split())


def feasible(study: str, **context: object) -> str:
    found = parse_study((STUDIES / f"{study}.toml").read_text())
    return f"{SearchSpace(found, context).size:,}"


def test_how_many_configurations_there_are_where() -> None:
    told = {"model_params": 7e10, "gpu": "H100", "n_gpus": 16_384, "seq_len": 8_192}
    counts = [feasible("llm-pretrain", **told, global_batch=n) for n in (8_192, 1_024, 32_768)]
    assert (
        f"has {counts[0]} on 16,384 H100 with a `global_batch` of 8,192. With one of 1,024 it has "
        f"{counts[1]}, and with one of 32,768 it has {counts[2]}"
    ) in page("searching.md")
    assert f"The ads study has {feasible('ads-fsdp')} everywhere" in page("searching.md")


def test_the_defaults_of_simulate() -> None:
    text = page("simulate.md")
    options = {one.name: one.default for one in simulate.params}
    named = re.findall(r"`--([a-z-]+)` \((\d+)\)", text)
    assert len(named) >= 4
    for name, value in named:
        assert options[name.replace("-", "_")] == int(value), name
    follow = text.partition("So `--follow` says")[2]
    assert re.findall(r"\*\*`(\w+)`\*\* \(default\)", follow) == [options["follow"]]
