"""What the README and the examples show works as it stands there."""

import json
import re
import subprocess
import sys
from pathlib import Path

from tunerd.core.study_file import parse_study
from tunerd.settings import load_settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)
    return str(found)


def test_the_study_is_one() -> None:
    study = parse_study(block("toml"))
    assert study.mode == "observe"
    assert [parameter.name for parameter in study.parameters] == [
        "tp",
        "micro_batch",
        "hbm_reserved",
    ]


def test_the_scheduler_runs(tmp_path: Path) -> None:
    stream = tmp_path / "tunerd-data" / "stream"
    stream.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", block("python")], cwd=tmp_path, check=True)
    (line,) = (stream / "tunerd.jobs.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert event["config"] == {"tp": 1, "micro_batch": 1, "hbm_reserved": 0.8}


def test_the_example_settings_are_sound(tmp_path: Path) -> None:
    (tmp_path / "tunerd.toml").write_text((ROOT / "deploy" / "tunerd.toml").read_text())
    for secret in ("kafka-password", "store-password"):
        (tmp_path / secret).write_text("x\n")
    (tmp_path / "studies").mkdir()
    settings = load_settings(tmp_path / "tunerd.toml", {})
    assert settings.stream.kind == "kafka"
