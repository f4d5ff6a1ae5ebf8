"""``tunerd check`` and ``tunerd schema``."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.conftest import STUDY, Installation, Said
from tests.contracts.store_data import observation
from tunerd.core.study_file import parse_study

Tunerd = Callable[..., Said]

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_all_well(tunerd: Tunerd, installation: Installation) -> None:
    said = tunerd("check", "--settings", installation.file)
    assert (said.code, said.err) == (0, "")
    assert "llm: maximize speed (tokens/s), mode approve" in said.out
    assert "gpu, n_gpus" in said.out
    assert "6 before constraints" in said.out
    assert "nothing wrong" in said.out


@pytest.mark.parametrize(
    "rules",
    [{"never": "tp > 9"}, {"odd": "tp % 3 == 0 and pp == 2"}, {"a": "tp > pp", "b": "pp > tp"}],
)
def test_constraints_that_no_configuration_keeps(
    tunerd: Tunerd, installation: Installation, rules: dict[str, str]
) -> None:
    text = "".join(f'{name} = "{rule}"\n' for name, rule in rules.items())
    installation.study_file.write_text(STUDY + text)
    said = tunerd("check", "--settings", installation.file)
    assert said.code == 2
    assert f"llm: constraints: constraint '{next(iter(rules))}'" in said.err
    assert "nothing could be recommended" in said.err
    assert tunerd("check", installation.study_file).code == 2


def test_a_constraint_that_no_job_keeps(tunerd: Tunerd, installation: Installation) -> None:
    installation.study_file.write_text(STUDY + 'seldom = "n_gpus > 4096"\n')
    now = datetime.now(UTC)
    jobs = [
        observation(
            f"e{n}",
            study="llm",
            context={"gpu": "A", "n_gpus": 8},
            config={"tp": 1 + n % 2, "pp": 1},
        )
        for n in range(30)
    ]
    with installation.open_store() as store, store.transaction() as tx:
        tx.add_observations("llm", jobs, now)
    said = tunerd("check", "--settings", installation.file)
    assert said.code == 0
    assert "never true      seldom (n_gpus > 4096) holds in none of the latest 30 jobs" in said.out
    assert "fits (" not in said.out


def test_as_json(tunerd: Tunerd, installation: Installation) -> None:
    said = tunerd("check", "--settings", installation.file, "--json")
    assert said.code == 0
    assert said.json["ok"] is True
    (study,) = said.json["studies"]
    assert study["configurations"] == 6
    assert study["parameters"] == {"tp": 3, "pp": 2}
    assert study["content_hash"] == parse_study(STUDY).content_hash


def test_everything_wrong_at_once(tunerd: Tunerd, installation: Installation) -> None:
    installation.file.write_text("[http]\nprt = 1")
    installation.study_file.write_text(STUDY.replace("tp * pp", "tp * pq").replace("llm", "LLM"))
    said = tunerd("check", "--settings", installation.file)
    assert said.code == 2
    assert "http.prt" in said.err
    assert "llm.toml: name" in said.err
    assert "llm.toml: constraints.fits" in said.err
    said = tunerd("check", "--settings", installation.file, "--json")
    assert said.code == 2
    assert said.json["ok"] is False
    assert len(said.json["problems"]) >= 3


def test_study_files_alone(tunerd: Tunerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tunerd.toml").write_text("broken")  # nobody asked about it
    (tmp_path / "a.toml").write_text(STUDY)
    (tmp_path / "b.toml").write_text(STUDY.replace("maximize", "maximise"))
    assert tunerd("check", "a.toml").code == 0
    said = tunerd("check", "a.toml", "b.toml", "c.toml")
    assert said.code == 2
    assert "b.toml: objective.goal" in said.err
    assert "c.toml: cannot be read" in said.err


def test_feasible_in_a_context(tunerd: Tunerd, installation: Installation) -> None:
    def count(*context: str) -> Said:
        options = [part for one in context for part in ("--context", one)]
        return tunerd("check", installation.study_file, *options, "--json")

    assert count("gpu=H100", "n_gpus=2").json["studies"][0]["feasible"]["configurations"] == 3
    said = tunerd(
        "check", installation.study_file, "--context", "gpu=H100", "--context", "n_gpus=2"
    )
    assert "feasible here   3" in said.out
    wrong = count("gpu=H100", "ngpus=2", "gpu=A100")
    assert wrong.code == 2
    for part in ("did you mean 'n_gpus'?", "gpu is given twice", "missing: n_gpus"):
        assert part in wrong.err
    assert "n_gpus should be an integer" in count("gpu=~", "n_gpus=many").err


def test_it_says_which_way_a_search_goes(tunerd: Tunerd, installation: Installation) -> None:
    context = ("--context", "gpu=H100", "--context", "n_gpus=2")
    text = installation.study_file.read_text()
    assert (
        "search here     all are looked at"
        in tunerd("check", installation.study_file, *context).out
    )
    few = installation.study_file.with_name("few.toml")
    few.write_text(text + '\n[search]\nevaluations = 1\nseeds = [1]\nsearcher = "evolution"\n')
    said = tunerd("check", few, *context)
    assert "search here     evolution, 1 seed, at most 1 prediction" in said.out


def test_nothing_feasible_names_the_constraint(tunerd: Tunerd, installation: Installation) -> None:
    said = tunerd("check", installation.study_file, "--context", "gpu=~", "--context", "n_gpus=0")
    assert said.code == 0
    assert "feasible here   0" in said.out
    assert "fits" in said.out.split("feasible here")[1]


def test_a_folder_without_studies_is_said(tunerd: Tunerd, tmp_path: Path) -> None:
    (tmp_path / "tunerd.toml").write_text("")
    said = tunerd("check", "--settings", tmp_path / "tunerd.toml")
    assert said.code == 0
    assert "nothing to do" in said.out


@pytest.mark.parametrize("command", ["check", "reload"])
def test_what_looks_like_a_study_and_is_not_read_is_told(
    tunerd: Tunerd, installation: Installation, command: str
) -> None:
    other = installation.study_file.with_name("other.toml.txt")
    other.write_text(installation.study_file.read_text())
    said = tunerd(command, "--settings", installation.file)
    assert said.code == 0
    assert f"Note: {other} is not read" in said.err


@pytest.mark.parametrize("name", ["settings", "study", "job", "recommendation"])
def test_schemas(tunerd: Tunerd, name: str) -> None:
    said = tunerd("schema", name)
    assert said.code == 0
    schema = said.json
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert "properties" in schema or "$ref" in schema
    assert json.dumps(schema)


@pytest.mark.parametrize("name", ["settings", "metrics"])
def test_pages(tunerd: Tunerd, name: str) -> None:
    assert tunerd("schema", name, "--markdown").out == (DOCS / f"{name}.md").read_text()


def test_what_has_no_schema_says_so(tunerd: Tunerd) -> None:
    assert "--markdown" in tunerd("schema", "metrics").err
    assert tunerd("schema", "job", "--markdown").code == 2
