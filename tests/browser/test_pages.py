"""The pages as a reader sees them: each over a small cluster, an empty store and a hostile one.

Screenshots are left in the folder that ``SCREENSHOTS`` names, for people to look at.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Page

from tests.browser.test_report import CONTRAST, OUTSIDE, OVERLAP, SCREENS, SMALL, looks
from tests.integration.daemons import Daemon, events
from tests.ui.conftest import Site, serving
from tests.ui.world import World
from tunerd.ui.render import context_url

STUDY = "/studies/toy"
PLACES = {
    "studies": "/",
    "study": STUDY,
    "ledger of all": "/ledger?days=30",
    "campaign": f"{STUDY}/contexts/n=24",
    "contexts": f"{STUDY}/contexts",
    "context": f"{STUDY}/contexts/n=16",
    "jobs": f"{STUDY}/jobs",
    "job": f"{STUDY}/jobs/60",
    "ledger": f"{STUDY}/ledger?days=30",
    "try": f"{STUDY}/try",
    "tried": f"{STUDY}/try?n=12",
    "importance": f"{STUDY}/importance",
    "waiting": "/studies/waiting",
    "quiet": "/studies/quiet",
    "no such study": "/studies/nope",
}


class Opened:
    """A window that remembers what it was told and what it asked for."""

    def __init__(self, page: Page, site: Site) -> None:
        self.page, self.site = page, site
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda asked: self.asked.append(asked.url))

    def go(self, path: str) -> None:
        """Open a page and wait until what a model is asked for is there."""
        self.page.goto(self.site.url + path)
        self.page.wait_for_function(
            "() => document.querySelector('h1').textContent !== 'In a moment' &&"
            " !document.querySelector('meta[http-equiv=refresh]')",
            timeout=60_000,
        )

    def whole(self, path: str) -> None:
        """… and the parts that are fetched after it."""
        self.go(path)
        for one in self.page.query_selector_all("[data-load]"):
            self.page.wait_for_function("e => e.querySelector('h2')", arg=one, timeout=60_000)

    def look(self, script: str) -> Any:
        return self.page.evaluate(script)

    def quiet(self) -> None:
        """Nothing went wrong, and nothing was asked for elsewhere."""
        wrong = [one for one in self.said if "404 (Not Found)" not in one]
        assert wrong == []
        elsewhere = (url for url in self.asked if not url.startswith((self.site.url, "data:")))
        assert list(elsewhere) == []


@pytest.fixture(params=SCREENS[:2], ids=str)
def window(browser: Browser, request: pytest.FixtureRequest, site: Site) -> Iterator[Opened]:
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    yield Opened(context.new_page(), site)
    context.close()


@pytest.fixture
def one_window(browser: Browser, site: Site) -> Iterator[Opened]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield Opened(context.new_page(), site)
    context.close()


def readable(window: Opened, name: str) -> None:
    keep_a_picture(window.page, name)
    for closed in window.page.query_selector_all("details:not([open])")[:20]:
        closed.evaluate("e => e.open = true")
    size = window.look(
        "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert size[0] <= size[1], "the page scrolls sideways"
    assert window.look(OUTSIDE) == []
    assert window.look(OVERLAP) == []
    assert window.look(SMALL) == []
    assert window.look(CONTRAST) == []


def accessible(page: Page) -> None:
    found = Axe().run(page).response["violations"]
    grave = [one for one in found if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in grave] == []


def keep_a_picture(page: Page, name: str) -> None:
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        size = page.viewport_size or {"width": 0}
        dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        file = f"page-{name}-{size['width']}-{'dark' if dark else 'light'}.png"
        page.screenshot(path=Path(folder) / file, full_page=True)


@pytest.mark.parametrize(("window", "name"), looks(PLACES), indirect=["window"], ids=str)
def test_every_page_is_readable_and_accessible(window: Opened, name: str) -> None:
    window.whole(PLACES[name])
    accessible(window.page)
    readable(window, name)
    window.quiet()


def test_an_explanation(window: Opened) -> None:
    context = window.site.json(f"{STUDY}/contexts/n=16")
    said = context["recommendations"][0]["recommendation_id"]
    window.whole(f"{STUDY}/recommendations/{said}")
    accessible(window.page)
    readable(window, "explanation")
    window.quiet()


@pytest.mark.parametrize("window", SCREENS[2:], indirect=True, ids=str)
def test_an_empty_store(window: Opened, empty_site: Site) -> None:
    window.site = empty_site
    window.go("/")
    assert "No study yet" in window.page.inner_text("main")
    accessible(window.page)
    readable(window, "empty")
    window.quiet()


@pytest.mark.parametrize(("window", "number"), looks(range(6)), indirect=["window"], ids=str)
def test_hostile_names_are_shown_and_do_nothing(
    window: Opened, hostile_site: Site, number: int
) -> None:
    window.site = hostile_site
    keys = [one["context_key"] for one in hostile_site.json(f"{STUDY}/contexts")["contexts"]]
    # The frame of each page once, and every name as a context and as a job.
    frames = ["/", STUDY, f"{STUDY}/contexts", f"{STUDY}/jobs", f"{STUDY}/ledger", f"{STUDY}/try"]
    dialogs: list[str] = []

    def dismissed(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    window.page.on("dialog", dismissed)
    for path in (frames[number], context_url("toy", keys[number]), f"{STUDY}/jobs/{number + 1}"):
        window.go(path)
        readable(window, f"hostile-{number}")
    accessible(window.page)
    assert dialogs == []
    window.quiet()


def test_without_scripts_everything_can_be_read(browser: Browser, site: Site) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for name, path in PLACES.items():
        page.goto(site.url + path)
        deadline = time.monotonic() + 60
        while "comes by itself" in (text := page.inner_text("body")) or "In a moment" in text:
            assert time.monotonic() < deadline, name
            page.wait_for_timeout(1100)  # the page asks again by itself
        assert len(text) > 100, name
    page.goto(f"{site.url}{STUDY}/contexts/n=16")
    page.get_by_role("link", name="What each change is expected to bring").click()
    page.wait_for_selector("text=Shapley values", timeout=60_000)
    context.close()


def test_the_keyboard_reaches_everything(one_window: Opened) -> None:
    one_window.go(f"{STUDY}/contexts")
    page = one_window.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("n 16")
    page.keyboard.press("Enter")
    page.wait_for_url("**search=n+16**")
    links = page.locator("tbody th a")
    assert links.all_inner_texts() == ["n\u00a016"]
    links.first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/contexts/n=16")
    one_window.quiet()


def test_columns_are_sorted_by_their_heads(one_window: Opened) -> None:
    one_window.go(f"{STUDY}/contexts")
    page = one_window.page
    for expected in ("descending", "ascending"):
        page.get_by_role("columnheader", name="jobs").first.get_by_role("link").click()
        page.wait_for_selector(f"th[aria-sort={expected}]")
    counts = [int(one) for one in page.locator("td[data-label=jobs]").all_inner_texts()]
    assert counts == sorted(counts)


def test_the_form_answers_and_its_address_can_be_shared(one_window: Opened) -> None:
    one_window.go(f"{STUDY}/try")
    page = one_window.page
    page.get_by_label("n", exact=True).fill("24")
    page.get_by_role("button", name="Recommend").click()
    page.wait_for_selector(".sides", timeout=60_000)
    assert page.url.endswith("/try?n=24")
    assert "nobody publishes it" in page.inner_text("main")
    page.get_by_label("n", exact=True).fill("many")
    page.get_by_role("button", name="Recommend").click()
    page.wait_for_selector("[role=alert]", timeout=60_000)
    assert "should be an integer" in page.inner_text("[role=alert]")
    one_window.quiet()


def test_a_person_acts(browser: Browser, world: World, tmp_path: Path) -> None:
    own, token = world.copy(tmp_path / "own"), "of-this-test-alone"
    with serving(own, token) as site:
        context = browser.new_context(viewport={"width": 390, "height": 900})
        opened = Opened(context.new_page(), site)
        opened.whole("/studies/waiting/contexts/n=8")
        page = opened.page
        page.get_by_text("Act", exact=True).click()
        page.get_by_label("What", exact=True).select_option("approve")
        page.get_by_label("Who you are").fill("ann")
        page.get_by_role("textbox", name="Why").fill("looked at it")
        page.get_by_label("Token").fill(token)
        accessible(page)
        readable(opened, "acting")
        page.get_by_role("button", name="Do it").click()
        page.wait_for_selector("text=is given")
        opened.quiet()
        context.close()
    with own.opened() as store:
        (command,) = store.commands("waiting")
    assert (command.command, command.who) == ("approve", "ann (page)")
    assert command.why == "looked at it"


def test_a_job_appears_within_two_seconds(browser: Browser, tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    try:
        daemon.start()
        daemon.send(events(19))
        daemon.learned(19)
        context = browser.new_context()
        opened = Opened(context.new_page(), Site(f"http://127.0.0.1:{daemon.port}", daemon.port))
        opened.go("/studies/toy/jobs")
        page = opened.page
        page.wait_for_selector(".live:visible")
        page.wait_for_selector("text=j19")
        daemon.send(events(1, first=20))
        daemon.learned(20)  # which takes as long as others want the cores
        page.wait_for_selector("text=j20", timeout=2_000)
        assert "ready" in page.inner_text(".health")
        opened.quiet()
        context.close()
    finally:
        daemon.end()
