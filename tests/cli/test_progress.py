"""Progress where there is no terminal: a line now and then, with the time that is left."""

import pytest

from tunerd.cli.progress import _PlainProgress, left, progress, track


@pytest.mark.parametrize(
    ("seconds", "share", "said"),
    [
        (10.0, 0.5, ", about 10 s left"),
        (60.0, 0.25, ", about 3 min left"),
        (3600.0, 0.25, ", about 3.0 h left"),
        (30.0, 0.999, ", about 1 s left"),
        (0.5, 0.5, ""),
        (60.0, 0.0, ""),
        (60.0, 1.0, ""),
    ],
)
def test_what_is_left(seconds: float, share: float, said: str) -> None:
    assert left(seconds, share) == said


def test_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    lines = _PlainProgress(lambda: now)
    for second in range(45):
        now = float(second)
        lines.show("learning", second, 60)
    lines.show("searching", 3, 0)
    now = 60.0
    lines.show("searching", 3, 0)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "learning: 17%, about 50 s left",
        "learning: 33%, about 40 s left",
        "learning: 50%, about 30 s left",
        "learning: 67%, about 20 s left",
        "searching",
    ]


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as show:
        assert list(track("abc", "letters", 3, show)) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")
