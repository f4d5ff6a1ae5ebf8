"""The demo with real programs: what it would run is sound, and is measured by what it prints."""

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tunerd.core.study_file import parse_study
from tunerd.exec.fill import fill, placeholders
from tunerd.exec.metrics import parse_metrics

DEMO = Path(__file__).parent.parent / "examples" / "real" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo_real", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo_real"] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
def test_what_it_tunes_starts_from_the_programs_own_defaults(
    demo: ModuleType, tmp_path: Path
) -> None:
    program = demo.compress(tmp_path)
    study = parse_study(program.study(3.9))
    baseline = study.baseline({})
    assert baseline is not None
    assert set(placeholders(program.command)) == set(baseline)
    assert len(parse_metrics(program.options()[1::2])) == len(program.metrics)
    run = demo.Demo(tmp_path, 1.0, 1)
    default = run._measure(program, program.plain)
    same = run._measure(program, fill(program.command, baseline, {}).arguments)
    assert default["mb_per_s"] > 0
    assert same["ratio"] == pytest.approx(default["ratio"], rel=0.001)
