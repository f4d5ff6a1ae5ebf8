"""``tunerd reload``, and what ``status`` says of study files that were changed."""

from collections.abc import Callable

from tests.cli.conftest import STUDY, Installation, Said

Tunerd = Callable[..., Said]


def test_a_changed_file_holds_after_a_reload(tunerd: Tunerd, installation: Installation) -> None:
    where = ("--settings", installation.file)
    assert "file" not in tunerd("status", *where).out.split()
    installation.study_file.write_text(STUDY.replace('"approve"', '"publish"'))
    differs = "file      differs from what runs (mode): `tunerd reload` takes it up"
    assert differs in tunerd("status", *where).out
    (study,) = tunerd("status", *where, "--json").json["studies"]
    assert study["mode"] == "approve"
    assert study["file"]["state"] == "differs"
    assert study["file"]["changes"][0]["where"] == "mode"

    said = tunerd("reload", *where)
    assert said.out.splitlines() == [
        "llm: generation 2 (was 1), mode publish",
        "  mode  changed: approve → publish",
        "No daemon runs: the next `tunerd run` begins with this.",
    ]
    (study,) = tunerd("status", *where, "--json").json["studies"]
    assert (study["mode"], study["file"]["state"]) == ("publish", "same")
    assert "unchanged, generation 2" in tunerd("reload", *where).out

    installation.study_file.write_text(STUDY)  # what it said before counts as new, for it is asked
    told = tunerd("reload", *where, "--json").json
    assert told["studies"][0]["outcome"] == "changed"
    assert told["studies"][0]["generation"] == 3
    assert told["daemon"] is False


def test_files_that_come_go_and_are_wrong(tunerd: Tunerd, installation: Installation) -> None:
    where = ("--settings", installation.file)
    other = installation.study_file.with_name("other.toml")
    other.write_text(STUDY.replace('"llm"', '"other"'))
    assert "studies  other not taken up yet: `tunerd reload`" in tunerd("status", *where).out
    assert "other: generation 1 (new), mode approve" in tunerd("reload", *where).out

    other.unlink()
    assert "is gone, the study goes on without it" in tunerd("status", "other", *where).out
    told = tunerd("reload", *where).out
    assert "other: has no file" in told
    assert "`tunerd end other`" in told

    installation.study_file.write_text(STUDY.replace('"maximize"', '"maximise"'))
    assert "1 mistake in" in tunerd("status", *where).out
    said = tunerd("reload", *where)
    assert (said.code, said.out) == (2, "")
    assert "did you mean 'maximize'?" in said.err
    assert "generation 1" in tunerd("status", "llm", *where).out
