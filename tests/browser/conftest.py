"""A real browser: the system's Chromium, driven by Playwright.

Where there is none these tests are skipped, and the end of the run says so in a block that nobody
can miss; in CI (``CI=true``) they fail. ``TUNERD_TEST_CHROMIUM`` names another executable.
"""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Error, sync_playwright

from tests.needs import without
from tests.ui.conftest import empty, empty_site, hostile, hostile_site, site, world

__all__ = ["browser", "empty", "empty_site", "hostile", "hostile_site", "site", "world"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = os.environ.get("TUNERD_TEST_CHROMIUM") or next(
        (found for name in NAMES if (found := shutil.which(name))), None
    )
    if executable is None:
        without("real browser", f"no program called {', '.join(NAMES)} here")
    with sync_playwright() as playwright:
        # As root, as in many a CI, Chromium starts only without its sandbox.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        try:
            opened = playwright.chromium.launch(executable_path=executable, args=options)
        except Error as error:
            without("real browser", f"{executable} does not start: {error}")
        yield opened
        opened.close()
