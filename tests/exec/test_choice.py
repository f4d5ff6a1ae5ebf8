"""What a program gets: the recommendation, else the fallback, else the baseline; in which words."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.exec.conftest import BASELINE, KEY, Place, message
from tunerd.client import Recommendations
from tunerd.errors import MisconfiguredError
from tunerd.exec.fill import FORMATS, fill, placeholders

SHOW = ("--", "echo", "{level}", "{threads}", "{mode}")
OTHER = {"level": 9, "threads": 2, "mode": "fast"}
SHOWN = b"9 2 fast\n"


def test_without_a_recommendation_it_is_the_baseline(place: Place) -> None:
    assert place.run(*SHOW).stdout == b"3 1 very small\n"
    event = place.event()
    assert (event["config"], event["recommendation_id"]) == (BASELINE, None)
    assert event["context"] == {"file": "a"}


def test_the_recommendation_of_the_context_is_followed_and_told(place: Place) -> None:
    place.recommend(message(OTHER))
    assert place.run(*SHOW).stdout == SHOWN
    event = place.event()
    assert (event["config"], event["recommendation_id"]) == (OTHER, "r1")
    assert event["labels"]["kind"] == "incumbent"


def test_else_the_one_of_the_empty_context(place: Place) -> None:
    place.recommend(message(OTHER, key="zip"))
    assert place.run(*SHOW).stdout == SHOWN


def test_what_has_expired_is_not_followed(place: Place) -> None:
    place.recommend(message(OTHER, valid="2001-01-01T00:00:00Z"))
    assert place.run(*SHOW).stdout == b"3 1 very small\n"


def test_while_the_stream_is_away_the_last_known_one_is_followed(place: Place) -> None:
    place.recommend(message(OTHER))
    place.run("--", "true")
    place.stream.rename(place.stream.with_name("elsewhere"))
    done = place.run(*SHOW)
    assert done.stdout == SHOWN
    assert b"does not exist" in done.stderr


def test_or_a_file_that_was_given(place: Place) -> None:
    place.stream.rmdir()
    file = place.folder / "copy.jsonl"
    file.write_text(json.dumps({"key": KEY, "value": message(OTHER)}) + "\n")
    assert place.run("--offline", file, *SHOW).stdout == SHOWN
    saved = place.folder / "saved"  # whatever it is called
    recommendations = Recommendations.follow_jsonl(place.folder, "copy")
    recommendations.poll()
    recommendations.save(saved)
    assert place.run("--offline", saved, *SHOW).stdout == SHOWN


def test_a_broker_that_is_away_stops_nothing(place: Place) -> None:
    (place.folder / "tunerd.toml").write_text(
        '[stream]\nkind = "kafka"\n[stream.kafka]\nbootstrap_servers = "127.0.0.1:9"\n'
    )
    done = place.run("--", "sh", "-c", "echo {level}; exit 5")
    assert (done.returncode, done.stdout) == (5, b"3\n")
    assert b"127.0.0.1:9" in done.stderr
    assert len(place.spool) == 1


def test_a_changed_study_and_changed_settings_count_at_once(place: Place) -> None:
    study = place.folder / "studies" / "zip.toml"
    place.run(*SHOW)
    study.write_text(study.read_text().replace("level = 3", "level = 5"))
    assert place.run(*SHOW).stdout == b"5 1 very small\n"
    study.rename(study.with_name("renamed.toml"))
    assert place.run(*SHOW).stdout == b"5 1 very small\n"
    (place.folder / "tunerd.toml").write_text('data_dir = "other"\n')
    assert b"other/stream does not exist" in place.run(*SHOW).stderr


def test_where_nothing_is_configured_nothing_is_started(tmp_path: Path) -> None:
    place = Place(tmp_path)
    done = place.run("--", "touch", "started")
    assert done.returncode == 125
    assert not (tmp_path / "started").exists()
    for way in (b"tunerd exec --local", b"tunerd run", b"TUNERD_SETTINGS"):
        assert way in done.stderr


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("--study", "zap"), "did you mean 'zip'?"),
        (("--context", "fiel=a"), "did you mean 'file'?"),
        (("--metric", "speed"), "NAME=REGEX"),
        (("--metric", "speed=("), "unterminated"),
        (("--metric", "speed=a"), "has 0 groups"),
        (("--metric", "speed:p101=(1)"), "p101 should be one of"),
        (("--cause", "oom=x"), "STATUS=REGEX"),
        (("--write", "config.xml"), "should be one of toml"),
        (("--fill", "only"), "TEMPLATE=TARGET"),
        (("--default", "level"), "NAME=VALUE"),
        (("--no-such-option",), "No such option"),
    ],
)
def test_own_mistakes_have_an_exit_code_of_their_own(
    place: Place, change: tuple[str, ...], says: str
) -> None:
    done = place.run(*change, "--", "touch", "started")
    assert done.returncode == 125, done.stderr
    assert says in done.stderr.decode()
    assert not (place.folder / "started").exists()


def test_a_name_that_nothing_is_called_starts_nothing(place: Place) -> None:
    done = place.run("--", "echo", "{levle}")
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"did you mean {level}?" in done.stderr


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(MisconfiguredError) as error:
        fill(["{a}", "{b}"], {"c": 1}, {}, write=["x.ini"], templates=["y"])
    assert len(error.value.problems) == 4


def test_braces_of_other_languages_are_left_alone() -> None:
    arguments = [
        "{}",
        '{"a": 1}',
        "${level}",
        "{{level}}",
        "{ print }",
        "a{1,2}",
        "{level}x{level}",
    ]
    filled = fill(arguments, {"level": 3}, {})
    assert filled.arguments == [
        *("{}", '{"a": 1}', "${level}", "{level}", "{ print }", "a{1,2}", "3x3"),
    ]
    assert placeholders(arguments) == ["level"]


def test_values_are_no_shell_and_are_not_filled_again() -> None:
    filled = fill(["{a}"], {"a": "{b}; rm -rf $(x)", "b": 1}, {})
    assert filled.arguments == ["{b}; rm -rf $(x)"]


CONFIG: dict[str, Any] = {
    "level": 3,
    "rate": 1e-05,
    "share": 0.83,
    "fast": True,
    "mode": 'it\'s "a" b: #\\ $HOME ü\x7f',
    "word": "true",
    "list": ["FULL", "NO"],
}


def test_files_hold_what_was_chosen() -> None:
    assert tomllib.loads(FORMATS["toml"](CONFIG)) == CONFIG
    assert yaml.safe_load(FORMATS["yaml"](CONFIG)) == CONFIG
    assert json.loads(FORMATS["json"](CONFIG)) == CONFIG


def test_a_shell_reads_the_env_file_as_it_was_chosen(tmp_path: Path) -> None:
    file = tmp_path / "made.env"
    file.write_text(FORMATS["env"](CONFIG))
    script = 'set -a; . ./made.env; printf "%s|" "$level" "$rate" "$fast" "$mode" "$list"'
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f'3|1e-05|true|{CONFIG["mode"]}|["FULL", "NO"]|'


def test_hydra_overrides_quote_what_is_no_word() -> None:
    filled = fill(["{hydra}", "lr={rate}"], CONFIG, {})
    assert filled.arguments[:4] == ["level=3", "rate=1e-05", "share=0.83", "fast=true"]
    assert filled.arguments[5:] == ["word='true'", "list=[FULL,NO]", "lr=1e-05"]
    assert filled.arguments[4].startswith("mode='it\\'s")


def test_the_environment_and_files_reach_the_program(place: Place) -> None:
    (place.folder / "conf.in").write_text("level {level}\nfor $x {{ {unknown} }}\n")
    script = (
        "import json, os, sys\n"
        "print(os.environ['TUNERD_PARAM_MODE'], json.loads(os.environ['TUNERD_CONFIG'])['level'])\n"
        "print(open(sys.argv[1]).read(), sys.argv[1] == os.environ['TUNERD_CONFIG_FILE'])\n"
        "print(open('conf').read(), os.path.exists('own.yaml'))\n"
    )
    done = place.run(
        *("--write", "own.yaml", "--write", "json", "--fill", "conf.in=conf"),
        *("--", sys.executable, "-c", script, "{config_file}"),
    )
    text = done.stdout.decode()
    assert text.startswith("very small 3\n"), done.stderr
    assert '"mode": "very small"\n}\n True\n' in text
    assert text.endswith("level 3\nfor $x {{ {unknown} }}\n True\n")
    assert list((place.folder / "tmp").iterdir()) == []  # temporary files go


def test_what_the_baseline_omits_may_be_given(place: Place) -> None:
    study = place.folder / "studies" / "zip.toml"
    study.write_text(study.read_text().replace(", threads = 1", ""))
    done = place.run(*SHOW)
    assert done.returncode == 125
    assert b"{threads}" in done.stderr
    done = place.run("--default", "threads=2", "--default", "level=9", *SHOW)
    assert done.stdout == b"3 2 very small\n"


def test_derived_values_are_filled_in(place: Place) -> None:
    study = place.folder / "studies" / "zip.toml"
    study.write_text(study.read_text() + '[derived]\nboth = "level * threads"\n')
    place.recommend(message(OTHER))
    assert place.run("--", "echo", "{both}").stdout == b"18\n"
    assert place.event()["config"] == OTHER


def test_a_dry_run_prints_the_command_and_starts_nothing(place: Place) -> None:
    done = place.run("--dry-run", "--", "echo", "{mode}")
    assert done.stdout == b"echo 'very small'\n"
    assert not place.events()
    assert not place.spool


@pytest.mark.parametrize("rank", ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"])
def test_of_many_ranks_the_first_reports(place: Place, rank: str) -> None:
    for number in "210":
        place.run("--", "true", env={rank: number})
    assert len(place.events()) == 1


def test_ranks_of_a_slurm_step_are_one_job(place: Place) -> None:
    slurm = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3", "SLURM_RESTART_COUNT": "1"}
    place.run("--", "true", env=slurm)
    event = place.event()
    assert (event["job_id"], event["attempt"]) == ("77.3", 2)
