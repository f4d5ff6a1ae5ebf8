"""The example in ``docs/import.md`` does what the page says."""

import re
from pathlib import Path

from tunerd.core.study_file import parse_study
from tunerd.lab.tables.files import open_table
from tunerd.lab.tables.mapping import read_mapping, read_observations

PAGE = (Path(__file__).parents[3] / "docs" / "import.md").read_text()
STUDY = """
schema = 1
name = "page"
[objective]
metric = "tokens_per_second"
goal = "maximize"
[guards]
peak_memory_gib = { max = 76 }
[context]
gpu = { type = "category" }
n_gpus = { type = "int" }
[parameters]
tp = { type = "int", values = [1, 2, 4, 8] }
precision = { type = "category", values = ["bf16", "fp8"] }
"""


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)
    return str(found)


def test_the_mapping_on_the_page_reads_the_table_on_the_page(tmp_path: Path) -> None:
    table, mapping = tmp_path / "old-jobs.csv", tmp_path / "last-year.toml"
    table.write_text(block("csv"))
    mapping.write_text(block("toml"))
    study = parse_study(STUDY)
    history = read_observations(study, read_mapping(mapping, study), [open_table(table)])
    first, second, third = history.observations
    assert history.unusable == {}
    assert (first.job_id, first.status, second.status, third.status) == (
        *("4711", "succeeded"),
        *("out_of_memory", "cancelled"),
    )
    assert first.context == {"gpu": "A100", "n_gpus": 128}
    assert first.config == {"tp": 8, "precision": "bf16"}
    assert first.metrics == {"tokens_per_second": 25_900, "peak_memory_gib": 60}
    assert third.context["gpu"] == "H100"
    assert first.finished_at.isoformat() == "2025-03-01T13:00:00+00:00"
