"""What some tests need of the machine: without it they are skipped, loudly; in CI they fail."""

import importlib
import os
import shutil
from types import ModuleType
from typing import NoReturn

import pytest

__all__ = ["MISSING", "need_library", "need_program", "without"]

MISSING: dict[str, str] = {}
"""What was missing in this run, and why; the end of the run says so."""


def without(what: str, reason: str) -> NoReturn:
    """Skip this test for want of something; in CI, which must have everything, fail it."""
    text = f"no {what}: {reason}"
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(f"{text} (CI must have one)", pytrace=False)
    MISSING[what] = reason
    pytest.skip(text)


def need_library(name: str, extra: str = "peers") -> ModuleType:
    """A library that only an extra of tunerd brings."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        without(error.name or name, f"`make peers`, or pip install -e '.[{extra}]'")


def need_program(name: str, package: str) -> str:
    """Path of a program; ``package`` is the Debian package that has it."""
    return shutil.which(name) or without(name, f"on Debian, apt-get install {package}")
