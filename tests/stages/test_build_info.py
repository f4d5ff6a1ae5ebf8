"""Of what code a build is."""

import shutil
from pathlib import Path

import pytest

import tunerd
from tunerd.stages import build_info, shared_search


@pytest.mark.parametrize("file", ["stages/provenance.py", "core/tuner.py", "store/search_tasks.py"])
def test_searches_of_other_code_are_of_another_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """Their results may be others."""

    def made_by() -> str:
        for kept in (build_info.build, build_info.whole_code, shared_search.made_by):
            kept.cache_clear()
        return shared_search.made_by()

    before = made_by()
    code = Path(tunerd.__file__).parent
    shutil.copytree(code, tmp_path / "tunerd", ignore=lambda *_: ["__pycache__", "static"])
    monkeypatch.setattr(tunerd, "__file__", str(tmp_path / "tunerd/__init__.py"))
    assert made_by() == before
    with (tmp_path / "tunerd" / file).open("a") as changed:
        changed.write("# otherwise\n")
    assert made_by() != before
    monkeypatch.undo()
    assert made_by() == before


def test_a_link_to_nowhere_is_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such are the locks of some editors."""
    (tmp_path / "tuner.py").write_text("")
    monkeypatch.setattr(tunerd, "__file__", str(tmp_path / "__init__.py"))
    code = build_info.whole_code.__wrapped__
    before = code()
    (tmp_path / ".#tuner.py").symlink_to("somebody@somewhere.1")
    assert code() == before
