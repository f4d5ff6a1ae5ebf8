"""``tunerd recover`` where the topic or the store is not as it should be."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Installation, Said
from tests.events.test_recommendation import KEY, example
from tunerd.events import to_bytes

Tunerd = Callable[..., Said]


def test_what_others_wrote_on_the_topic_is_left_alone(
    tunerd: Tunerd, installation: Installation
) -> None:
    stream = installation.folder / "tunerd-data" / "stream"
    stream.mkdir()
    published = json.loads(to_bytes(example()))
    foreign = [{"hello": 1}, {**published, "schema": "tunerd.recommendation/2"}, "text"]
    late = {**published, "revision": 6}  # by a daemon that was started before anything was taken up
    lines = [{"key": KEY, "value": value} for value in (published, late, None, *foreign)]
    file = stream / "tunerd.recommendations.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + "hello\n")
    said = tunerd("recover", "--settings", installation.file)
    assert said.code == 0
    assert said.err.count("not a recommendation") == 3
    assert said.out.endswith(
        "1 of 1 keys on the topic are newer than the store and were taken up.\n"
    )
    with installation.open_store() as store:
        row = store.recommendation("llm", KEY)
        assert row is not None
        assert row.revision == 7


def test_a_store_that_was_not_restored(tunerd: Tunerd, tmp_path: Path) -> None:
    (tmp_path / "tunerd.toml").write_text("")
    said = tunerd("recover", "--settings", tmp_path / "tunerd.toml")
    assert said.code == 2
    assert "restore the backup first" in said.err
