"""The report as a reader sees it: in a browser, narrow and wide, by day and by night.

Screenshots are left in the folder that ``SCREENSHOTS`` names, for people to look at.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page

from tests.report.test_page import REPORTS, made
from tunerd.report.model import ReportObjective, ReportPoint
from tunerd.report.page import page
from tunerd.report.plots import points_plot

Scheme = Literal["light", "dark"]

CONTRAST = """
() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0.99) return c;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!text || ["TITLE", "DESC", "title", "desc"].includes(element.tagName)) continue;
    if (!element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const ink = parse(element.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) poor.push(`${ratio.toFixed(2)} ${text.slice(0, 40)}`);
  }
  return poor;
}
"""
"""Text whose contrast is below WCAG's AA."""

SMALL = """
() => [...document.querySelectorAll("body *")]
  .filter((e) => e.getClientRects().length && [...e.childNodes].some(
    (n) => n.nodeType === 3 && n.textContent.trim()) && !["title", "desc"].includes(e.tagName))
  .filter((e) => parseFloat(getComputedStyle(e).fontSize) < 12)
  .map((e) => e.textContent.slice(0, 40))
"""

OUTSIDE = """
() => [...document.querySelectorAll("main svg text, main p, main td, main th, main dd")]
  .map((e) => [e.getBoundingClientRect(), e])
  .filter(([r, e]) => r.width && !e.closest(".scroll") &&
    (r.left < -1 || r.right > document.documentElement.clientWidth + 1))
  .map(([r, e]) => e.textContent.slice(0, 40))
"""


OVERLAP = """
() => [...document.querySelectorAll("svg.plot")].flatMap((svg) => {
  const shown = [...svg.querySelectorAll("text")].filter((e) => e.getClientRects().length)
    .map((e) => [e.getBoundingClientRect(), e.textContent]);
  return shown.flatMap(([a, one], i) => shown.slice(i + 1)
    .filter(([b]) => a.left < b.right + 2 && b.left < a.right + 2 &&
      a.top < b.bottom && b.top < a.bottom)
    .map(([b, other]) => `${svg.querySelector("title").textContent}: ${one} | ${other}`));
})
"""
"""Labels of a picture that lie on each other."""


LABELLED = """
() => [...document.querySelectorAll("svg.plot")].map((svg) =>
  [...svg.querySelectorAll("text.across")].filter((e) => e.getClientRects().length).length)
"""
"""How many labels each picture has below its horizontal axis."""


CUT = """
() => [...document.querySelectorAll(".scroll")]
  .filter((e) => e.scrollWidth > e.clientWidth + 1)
  .map((e) => e.textContent.trim().slice(0, 40))
"""
"""Tables that have to be scrolled sideways to be read."""


SCREENS: list[tuple[int, Scheme]] = [
    *((1280, "light"), (390, "dark")),
    *((1280, "dark"), (390, "light")),
]
"""Widths and colours, in two pairs that have each of both."""


def looks(names: Iterable[object]) -> list[tuple[tuple[int, Scheme], object]]:
    """Each page by one pair of screens, and the next one by the other: a width changes no colour
    and a scheme nothing else, so that a page has no more to show."""
    return [(one, name) for at, name in enumerate(names) for one in SCREENS[at % 2 * 2 :][:2]]


@dataclass
class Opened:
    """A report in a window."""

    page: Page
    said: list[str]
    asked: list[str]

    def look(self, script: str) -> Any:
        return self.page.evaluate(script)


@pytest.fixture(params=SCREENS[:2], ids=str)
def window(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Opened]:
    width, scheme = request.param
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=True
    )
    opened = Opened(context.new_page(), [], [])
    opened.page.on("console", lambda message: opened.said.append(message.text))
    opened.page.on("pageerror", lambda error: opened.said.append(str(error)))
    opened.page.on("request", lambda asked: opened.asked.append(asked.url))
    yield opened
    context.close()


@pytest.mark.parametrize(("window", "name"), looks(REPORTS), indirect=["window"], ids=str)
def test_the_page_is_readable(window: Opened, name: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(made(name)), encoding="utf-8")
    window.page.goto(file.as_uri())
    for closed in window.page.query_selector_all("details:not([open])")[:20]:
        closed.evaluate("e => e.open = true")
    keep_a_picture(window.page, name)
    assert window.said == []
    assert [url for url in window.asked if not url.startswith(("file:", "data:"))] == []
    size = window.look(
        "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert size[0] <= size[1], "the page scrolls sideways"
    assert window.look(OUTSIDE) == []
    assert window.look(CUT) == []
    assert window.look(OVERLAP) == []
    assert window.look(SMALL) == []
    assert window.look(CONTRAST) == []


def test_pictures_have_names_that_a_screen_reader_says(window: Opened, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(made("a month")), encoding="utf-8")
    window.page.goto(file.as_uri())
    for name in ("Predicted against actual", "Error over time", "What became of predicted"):
        assert window.page.get_by_role("img", name=name).count() == 1
    assert window.page.get_by_role("heading", level=1).inner_text() == "toy"
    assert window.page.get_by_role("table").count() >= 3
    assert window.page.get_by_role("row").count() > 10


def keep_a_picture(shown: Page, name: str) -> None:
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        size = shown.viewport_size
        assert size is not None
        scheme = shown.evaluate("() => matchMedia('(prefers-color-scheme: dark)').matches")
        file = f"{name.replace(' ', '-')}-{size['width']}-{'dark' if scheme else 'light'}.png"
        shown.screenshot(path=str(Path(folder) / file), full_page=True)


RANGES = (
    (1_000_000, 2_600_000),
    (123_456, 9_876_543),
    (100_000, 250_000),
    (0.000_12, 0.000_34),
    (0.001_2, 0.9),
    (3e-9, 7e6),
    (4e12, 5e12),
    (-2_000_000, 3_000_000),
    (1, 1_000_000_000),
    (41.7, 42.3),
)
"""Of an objective: wherever its numbers are long."""


def test_labels_of_long_numbers_do_not_lie_on_each_other(window: Opened, tmp_path: Path) -> None:
    plots = [
        points_plot(
            f"range-{i}",
            [
                ReportPoint(actual=low, predicted=high, held=True),
                ReportPoint(actual=high, predicted=low, held=True),
            ],
            ReportObjective(metric="metric", goal="maximize", unit="unit"),
        )
        for i, (low, high) in enumerate(RANGES)
    ]
    cards = "".join(f'<div class="card">{plot}</div>' for plot in plots)
    file = tmp_path / "report.html"
    shown = page(made("no jobs")).replace("</main>", f"{cards}</main>")
    file.write_text(shown, encoding="utf-8")
    size = window.page.viewport_size
    assert size is not None
    for width in (size["width"], 330):
        window.page.set_viewport_size({"width": width, "height": 900})
        window.page.goto(file.as_uri())
        keep_a_picture(window.page, f"labels {width}")
        assert window.look(OVERLAP) == []
        assert window.look(OUTSIDE) == []
        assert min(window.look(LABELLED)) >= 2
