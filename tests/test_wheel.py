"""A wheel has all that is needed: what it was unpacked to works outside of a checkout."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKED = ("pyproject.toml", "README.md", "LICENSE", "tunerd")


def test_a_wheel_works_outside_of_a_checkout(tmp_path: Path) -> None:
    source, wheels, site = tmp_path / "source", tmp_path / "wheels", tmp_path / "site"
    source.mkdir()
    for name in PACKED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    # Without isolation: what builds it is in this environment, and nothing is fetched.
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(wheels)]
    subprocess.run([sys.executable, "-m", "pip", *build, str(source)], check=True)
    (wheel,) = wheels.glob("tunerd-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)

    def files(folder: Path) -> set[Path]:
        return {
            path.relative_to(folder)
            for path in folder.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }

    assert files(site / "tunerd") == files(ROOT / "tunerd")
    shutil.rmtree(source)
    here, environment = tmp_path / "elsewhere", os.environ | {"PYTHONPATH": str(site)}
    here.mkdir()

    def run(*command: str) -> str:
        return subprocess.run(
            [sys.executable, *command],
            cwd=here,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout

    assert run("-c", "import tunerd; print(tunerd.__file__)").startswith(str(site))
    assert run("-m", "tunerd", "--version").startswith("tunerd")
    assert json.loads(run("-m", "tunerd", "schema", "job"))["$defs"]
    # The store's migrations and the simulator's studies are files beside the code.
    made = "from tunerd.store import open_store; open_store('sqlite:///s.sqlite').close()"
    run("-c", made)
    assert (here / "s.sqlite").exists()
