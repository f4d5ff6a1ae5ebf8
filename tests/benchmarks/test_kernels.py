"""The table that is measured here and not read."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks import kernels
from benchmarks.tables import read_table
from tunerd.core.observation import Status
from tunerd.core.study_file import parse_study


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc): kernels not measured")
def test_a_table_of_kernels_is_one_that_benchmarks_read(tmp_path: Path) -> None:
    assert kernels.main([str(tmp_path), "--configurations", "3"]) == 0
    table = read_table(kernels.NAME, tmp_path)
    study = parse_study(table.study)
    assert [p.name for p in study.parameters] == list(kernels.GRID)
    assert len(table.observations) == 3 * len(kernels.SIZES)
    ran = [one for one in table.observations if one.status is Status.SUCCEEDED]
    assert ran
    assert all(one.metrics["gflops"] > 0.01 for one in ran)
    tiny = float(np.finfo(np.float64).tiny)
    assert tiny / 2 > 0  # what was loaded left this process's arithmetic as it is


def test_without_a_compiler_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kernels.main([str(tmp_path)]) == 2
    assert "no C compiler" in capsys.readouterr().err
