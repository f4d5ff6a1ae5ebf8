"""``tunerd store export`` and ``load``."""

from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Installation, Said

Tunerd = Callable[..., Said]


def test_a_store_moves_to_another_installation(
    tunerd: Tunerd, installation: Installation, tmp_path: Path
) -> None:
    out, other = tmp_path / "moved.gz", tmp_path / "other" / "tunerd.toml"
    other.parent.mkdir()
    other.write_text(installation.file.read_text())
    said = tunerd("store", "export", "--out", out, "--settings", installation.file)
    assert said.code == 0, said.err
    assert said.out == f"Wrote {out}: 0 jobs in 0 contexts, 2 rows in all.\n"
    assert out.stat().st_mode & 0o777 == 0o600
    again = tunerd("store", "export", "--out", out, "--settings", installation.file)
    assert (again.code, "exists already" in again.err) == (2, True)
    said = tunerd("store", "load", out, "--settings", other)
    assert said.out.startswith("Took up llm: 0 jobs")
    said = tunerd("store", "load", out, "--settings", other)
    assert (said.code, "this one is not empty" in said.err) == (2, True)


def test_what_cannot_be(tunerd: Tunerd, installation: Installation, tmp_path: Path) -> None:
    gone = tmp_path / "no" / "folder.gz"
    said = tunerd("store", "export", "--out", gone, "--settings", installation.file)
    assert (said.code, "--out" in said.err) == (2, True)
    said = tunerd("store", "export", "lm", "--out", tmp_path / "x", "--settings", installation.file)
    assert (said.code, "there is no study 'lm'" in said.err) == (2, True)
    assert not list(tmp_path.glob("x*"))
    (tmp_path / "junk").write_bytes(b"\x1f\x8bjunk")
    said = tunerd("store", "load", tmp_path / "junk", "--settings", installation.file)
    assert (said.code, "damaged" in said.err) == (2, True)
