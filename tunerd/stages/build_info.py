"""What computes here: tunerd's own code, its libraries, the interpreter and the processor.

The same observations give the same recommendation bit for bit on the same build and kind of
processor. Each recommendation keeps what it was made by, so that a difference can be explained.
"""

import hashlib
import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import tunerd

__all__ = ["build", "whole_code"]

LIBRARIES = ("numpy", "scipy", "lightgbm", "torch", "optuna")
"""Those whose results reach a recommendation."""


@cache
def build() -> dict[str, str]:
    """Name and version of each part. Reads tunerd's code once: some milliseconds."""
    code = _digest(Path(tunerd.__file__).parent / "core")  # the pure core alone decides
    versions = {"tunerd": tunerd.__version__, "code": code, "python": platform.python_version()}
    for library in LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            continue
    return versions | {"processor": _processor(), "system": f"{sys.platform}/{platform.machine()}"}


@cache
def whole_code() -> str:
    """Digest of all of tunerd's code as it is on disk when this is first asked for."""
    return _digest(Path(tunerd.__file__).parent)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        if not path.is_file():
            continue  # an editor's lock is a link to nowhere
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())
