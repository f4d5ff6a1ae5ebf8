"""Files that are not what they seem, wherever tunerd reads one; and who may read what it makes."""

import gzip
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.core.tuning import TEXT
from tunerd.client import JobReporter, Recommendations
from tunerd.core.toml import load_toml
from tunerd.errors import MisconfiguredError, StreamUnavailableError
from tunerd.files import append_to, read_bytes
from tunerd.lab.tables.files import open_table
from tunerd.settings import load_settings
from tunerd.settings.studies import load_studies, passed_over
from tunerd.streams.base import StreamMessage, TopicContent, TopicSpec
from tunerd.streams.jsonl.stream import JsonlStream

STRANGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (os.mkfifo, "is a named pipe, not a file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
    "folder": (Path.mkdir, "is a folder, not a file"),
    "endless": (lambda path: _sparse(path, 1 << 34), "has more than 1,048,576 bytes"),
}


def _sparse(path: Path, size: int) -> None:
    path.touch()
    os.truncate(path, size)


@pytest.fixture
def quick() -> Iterator[None]:
    """Nothing hangs: whoever opened a pipe to read would wait for its other end."""
    begin = time.process_time()
    yield
    assert time.process_time() - begin < 3


def _study(path: Path) -> object:
    return load_studies(path.parent)


def _settings(path: Path) -> object:
    return load_settings(path, {}, check_studies=False)


def _secret(path: Path) -> object:
    settings = path.with_name("settings.toml")
    settings.write_text(f'[store]\nurl = "postgresql://a@b/c"\npassword_file = "{path}"')
    return load_settings(settings, {}, check_studies=False)


READERS = {"study": _study, "settings": _settings, "secret": _secret}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.usefixtures("quick")
def test_what_stands_where_a_file_should_be_is_told(tmp_path: Path, kind: str, reader: str) -> None:
    make, told = STRANGE[kind]
    make(tmp_path / "one.toml")
    if reader == "secret":
        told = told.replace("1,048,576", "65,536")
    with pytest.raises(MisconfiguredError, match=told):
        READERS[reader](tmp_path / "one.toml")


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.usefixtures("quick")
def test_a_table_that_is_no_file_is_told(tmp_path: Path, kind: str) -> None:
    make, told = STRANGE[kind]
    make(tmp_path / "jobs.csv")
    with pytest.raises(MisconfiguredError, match=told):
        open_table(tmp_path / "jobs.csv")


def test_a_link_to_a_study_is_read(tmp_path: Path) -> None:
    """As Kubernetes mounts them."""
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data/toy.toml").write_text(TEXT)
    (tmp_path / "toy.toml").symlink_to("..data/toy.toml")
    assert [one.name for one in load_studies(tmp_path)] == ["toy"]


def test_a_study_in_capitals_is_read_and_what_only_looks_like_one_is_told(tmp_path: Path) -> None:
    for name in ("TOY.TOML", "a.toml.txt", "b.TML", "team/c.toml", "..data/d.toml", "e.toml~"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(TEXT)
    assert [one.name for one in load_studies(tmp_path)] == ["toy"]
    told = passed_over(tmp_path)
    assert [one.split(" is not read")[0] for one in told] == [
        str(tmp_path / name) for name in ("a.toml.txt", "b.TML", "team")
    ]
    assert passed_over(tmp_path / "gone") == []


def test_a_file_that_does_not_say_how_large_it_is_is_read_to_its_bound() -> None:
    with pytest.raises(OSError, match="has more than 3 bytes"):
        read_bytes(Path("/proc/self/status"), 3)


@pytest.mark.parametrize(
    "text",
    [
        ".".join("a" * 20_000) + " = 1",
        "[" + ".".join("a" * 20_000) + "]",
        "a = " + "[" * 20_000,
        "a = " + "{a=" * 20_000,
        "a = " + "[{a=" * 20_000,
        "\n".join(f"{'.'.join('a' * 33)}.b{number} = 1" for number in range(2_000)),
    ],
)
@pytest.mark.usefixtures("quick")
def test_toml_that_would_take_long_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        load_toml(text)


def test_what_looks_deep_within_strings_and_comments_is_not() -> None:
    dots = "a." * 100
    text = f'a = \'{dots}[[[\' # {dots}{"[" * 99}\nb = """\n{dots}\\"""{"{" * 99}"""\n'
    text += f"\"c.{dots}\" = '''\n{'[' * 99}'''\nd = [{'1.5, ' * 100}]\n"
    assert list(load_toml(text)) == ["a", "b", f"c.{dots}", "d"]


@pytest.mark.usefixtures("quick")
def test_a_file_of_another_kind_with_very_many_keys_is_refused_quickly(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text("".join(f"key{n} = {n}\n" for n in range(10_000)))
    with pytest.raises(MisconfiguredError, match="more mistakes; is this a study file at all"):
        load_studies(tmp_path)
    with pytest.raises(MisconfiguredError, match="there is no such key"):
        load_settings(tmp_path / "one.toml", {}, check_studies=False)


@pytest.mark.usefixtures("quick")
def test_a_line_without_an_end_ends_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"a,speed\n1,2\n")
        for _ in range(40):
            file.write(b"0" * (1 << 20))
    with pytest.raises(MisconfiguredError, match="line 3 is longer than 33,554,432 characters"):
        list(open_table(path).rows())


# -- folders of streams ---------------------------------------------------------------------

TOPICS = [
    TopicSpec("jobs", TopicContent.EVENT),
    TopicSpec("said", TopicContent.JSON, compacted=True),
]


def _stream(folder: Path, **more: int) -> JsonlStream:
    return JsonlStream(folder, TOPICS, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["said.jsonl", ".append.lock"])
def test_nothing_is_written_through_a_link_in_a_folder_of_streams(
    tmp_path: Path, name: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    stream = _stream(tmp_path / "stream")
    stream.ensure_topics()
    (tmp_path / "stream" / name).unlink(missing_ok=True)
    (tmp_path / "stream" / name).symlink_to(victim)
    with pytest.raises(StreamUnavailableError, match="symbolic link"):
        stream.sink().send([StreamMessage("said", b"key", b"{}")])
    assert victim.read_text() == "mine"
    with pytest.raises(OSError, match=r"symbolic link|regular"):
        os.close(append_to(tmp_path / "stream" / name))


def test_compacting_writes_through_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    stream = _stream(tmp_path / "stream", compact_bytes=500)
    stream.ensure_topics()
    (tmp_path / "stream/.said.jsonl.compacting").symlink_to(victim)
    stream.sink().send([StreamMessage("said", b"key", b'{"n": 1}')] * 50)
    assert victim.read_text() == "mine"
    assert (tmp_path / "stream/said.jsonl").read_text().count("\n") == 1


@pytest.mark.usefixtures("quick")
def test_pipes_and_links_among_the_events_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = _stream(tmp_path)
    stream.ensure_topics()
    (tmp_path / "secret").write_text("not for the rejected topic\n")
    (tmp_path / "jobs.jsonl.1").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "jobs.jsonl.2")
    (tmp_path / "jobs.jsonl.3").mkdir()
    (tmp_path / "jobs.jsonl").write_text('{"n": 1}\n')
    source = stream.source("jobs", "group", lambda *_: {})
    assert [one.value for one in source.poll(0, 10)] == [b'{"n": 1}']
    source.poll(0, 10)
    source.close()
    assert caplog.text.count("is no regular file") == 3


@pytest.mark.usefixtures("quick")
def test_the_client_waits_for_no_pipe_and_writes_through_no_link(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tunerd.recommendations.jsonl")
    with pytest.raises(OSError, match="not a regular file"):
        Recommendations.follow_jsonl(tmp_path).catch_up()
    (tmp_path / "tunerd.jobs.jsonl").symlink_to(tmp_path / "victim")
    reporter = JobReporter.jsonl(tmp_path)
    with pytest.raises(OSError, match="symbolic link"):
        reporter.report(
            study="toy", job_id="1", status="succeeded", context={}, config={}, metrics={}
        )
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("shared", [False, True])
def test_streams_are_for_their_owner_or_for_the_group_of_a_shared_folder(
    tmp_path: Path, shared: bool
) -> None:
    folder = tmp_path / "stream"
    if shared:
        folder.mkdir()
        folder.chmod(0o2770)
    old = os.umask(0o022)
    try:
        stream = _stream(folder)
        stream.ensure_topics()
        stream.cluster_id()
        stream.sink().send([StreamMessage("said", b"key", b"{}")])
    finally:
        os.umask(old)
    modes = {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}
    assert modes == {0o660 if shared else 0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == (0o2770 if shared else 0o700)


def test_many_who_append_at_once_make_one_file(tmp_path: Path) -> None:
    def append() -> None:
        descriptor = append_to(tmp_path / "one")
        os.write(descriptor, b"line\n")
        os.close(descriptor)

    threads = [threading.Thread(target=append) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "one").read_bytes() == b"line\n" * 20
