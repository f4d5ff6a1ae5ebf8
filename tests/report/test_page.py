"""Page and terminal: what is in them, and that nothing from outside gets into the markup."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO

import pytest
from msgspec import structs
from rich.console import Console

from tests.core.tuning import study
from tests.report.made import NOW, advised, material, told
from tests.report.world import world
from tunerd.report.compute import compute
from tunerd.report.gather import CurrentRecommendation, ReportInputs
from tunerd.report.model import StudyReport
from tunerd.report.page import page
from tunerd.report.svg import linear_axis, log_axis, tag
from tunerd.report.terminal import show

EVIL = "<script>alert(1)</script>'\"&|=\x1b[2J\u202e"
VOID = {"meta", "link", "br"}


class Checked(HTMLParser):
    """Holds a page to closing what it opens; gathers what it needs from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.refers: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        told = dict(attrs)
        if "id" in told:
            self.ids.append(told["id"] or "")
        self.refers += [value or "" for name, value in attrs if name in ("src", "href")]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def month(**options: float) -> ReportInputs:
    rows, _ = world(1, **options).run(200)  # type: ignore[arg-type]
    failing = [
        structs.replace(
            one, outcome=structs.replace(one.outcome, ran=i % 5 > 0, feasible=0.3 + 0.15 * (i % 5))
        )
        for i, one in enumerate(rows)
    ]
    return material(failing, recommendations=advised(5))


REPORTS = {
    "a month": lambda: month(),
    "no jobs": lambda: material(),
    "one context": lambda: month(contexts=1),
    "followers": lambda: material(
        world(3, following=0.4, explore=0.5).run(300)[0], of=study(mode='"publish"')
    ),
    "imported": lambda: material(
        history=[structs.replace(one, history=True) for one in world(2).run(100)[0]]
    ),
    "many contexts": lambda: material(recommendations=advised(1000)),
}


def made(name: str) -> StudyReport:
    return compute(REPORTS[name](), NOW)


@pytest.mark.parametrize("name", REPORTS)
def test_the_page_is_whole_and_needs_nothing_else(name: str) -> None:
    text = page(made(name))
    checked = Checked(text)
    assert "script" not in checked.tags
    assert checked.refers == ["data:,"]
    assert len(checked.ids) == len(set(checked.ids))
    assert "http" not in re.sub(r'http-equiv="Content-Security-Policy"', "", text)
    assert checked.tags.count("h1") == 1
    assert len(text) < 400_000


def test_a_month_on_a_page() -> None:
    text = page(made("a month"))
    checked = Checked(text)
    # What became of differences, predicted against actual, error, did they run; five bars.
    assert checked.tags.count("svg") == 4 + 5
    assert text.count('role="img"') == 4 + 5
    assert text.count("<desc") == 4
    for said in (
        "Gain left on the table",
        "GPU-hours in it",
        "bear this out",
        "Did they run as often as predicted?",
        "What tunerd would recommend now",
        "best known",
        "Nobody knows",
    ):
        assert said in text


def test_nothing_from_outside_gets_into_the_markup() -> None:
    rows, _ = world(1).run(120)
    candidate = replace(told("k", {}).candidates[0], candidate_id=EVIL, config={EVIL: [EVIL, EVIL]})
    hostile = told(
        EVIL,
        {EVIL: EVIL},
        reason=EVIL,
        incumbent=None,
        baseline={EVIL: EVIL},
        candidates=(candidate,),
    )
    keys = {f"toy|n={c}": f"{EVIL}|n={EVIL}{c}" for c in range(5)}
    live = [structs.replace(one, context_key=keys[one.context_key]) for one in rows]
    known = study()
    evil = {key: CurrentRecommendation(EVIL, hostile) for key in keys.values()}
    report = compute(material(live, recommendations=evil, of=known), NOW)
    report = structs.replace(
        report,
        study=EVIL,
        objective=structs.replace(report.objective, metric=EVIL, unit=EVIL),
        tunerd=EVIL,
    )
    text = page(report)
    checked = Checked(text)
    assert "script" not in checked.tags
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert not {"\x1b", "\u202e"} & set(text)
    out = StringIO()
    show(report, Console(file=out, width=80))
    assert "<script>" in out.getvalue()
    assert not {"\x1b", "\u202e"} & set(out.getvalue())


def test_followers_alone_have_a_page() -> None:
    report = structs.replace(made("followers"), would=None, candidates=None)
    assert report.followed is not None
    text = page(report)
    assert "followers that kept to the best known" in text
    Checked(text)


def test_attributes_and_text_are_escaped() -> None:
    assert tag("text", "<&", x='"') == '<text x="&#34;">&lt;&amp;</text>'
    assert tag("line", x1=1.0, stroke_width=2, class_="a", y1=None) == (
        '<line x1="1" stroke-width="2" class="a"></line>'
    )


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (-0.3, 0.8), (5.0, 5.0), (0.0, 0.0), (1e-9, 2e-9), (-1e6, 3e9)]
)
def test_a_linear_axis_holds_its_values(low: float, high: float) -> None:
    axis = linear_axis(low, high)
    assert 0 <= axis.place(low) <= axis.place(high) <= 1
    assert 2 <= len(axis.ticks) <= 8
    assert all(0 <= axis.place(tick) <= 1 for tick in axis.ticks)


@pytest.mark.parametrize(
    ("low", "high"),
    [(1.0, 2.0), (1.0, 50.0), (3.0, 3.0), (1e-9, 1e12), (1.0, 1.7e308), (5e-324, 1.0)],
)
def test_a_logarithmic_axis_holds_its_values(low: float, high: float) -> None:
    axis = log_axis(low, high)
    assert 0 <= axis.place(low) <= axis.place(high) <= 1
    assert len(axis.ticks) <= 6
    assert all(0 <= axis.place(tick) <= 1 for tick in axis.ticks)


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [80, 200])
def test_the_terminal_is_readable(name: str, width: int) -> None:
    out = StringIO()
    report = made(name)
    show(report, Console(file=out, width=width, force_terminal=True, color_system=None))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(report.headline.split())[:40] in " ".join(out.getvalue().split())


def test_without_a_terminal_it_is_wider() -> None:
    out = StringIO()
    show(made("a month"), Console(file=out))
    text = out.getvalue()
    assert "\x1b" not in text
    assert "What tunerd would recommend" in text
    assert "… and" not in text
    out = StringIO()
    show(made("many contexts"), Console(file=out))
    assert "… and 990 contexts more" in out.getvalue()
