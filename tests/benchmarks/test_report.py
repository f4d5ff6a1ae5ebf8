from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.report import MARK, PAGE, kept, page, published


def prediction(who: str, tau: float | None, regret: float | None) -> dict[str, Any]:
    return {
        "what": "prediction",
        "table": "t",
        "question": "random",
        "known": "5%",
        "known_rows": 20,
        "rows": 380,
        "who": who,
        "tau": tau,
        "regret_at": {"5": regret},
        "auc": None,
    }


def test_the_published_page_is_what_the_published_summary_says() -> None:
    if not (said := published()):
        pytest.skip("nothing is published yet")
    assert PAGE.read_text().partition(MARK)[2].strip() == page(said).strip()


def test_the_best_are_bold_and_what_cannot_be_said_is_left_open() -> None:
    said = [prediction("a", 0.5, 0.02), prediction("b", 0.75, 0.01), prediction("c", None, None)]
    text = page(said)
    assert "| random | 5% (20) | 0.500 | **0.750** | n/a |" in text
    assert "| random | 5% (20) | 2.00 | **1.00** | n/a |" in text
    assert "AUC of what runs" not in text.split("**`t`**", 1)[1]


def test_what_is_written_by_hand_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hand, kept = tmp_path / "benchmarks.md", tmp_path / "published.jsonl"
    hand.write_text(f"# By hand\n\nText.\n\n{MARK}\n\nold\n")
    monkeypatch.setattr(report, "PAGE", hand)
    monkeypatch.setattr(report, "PUBLISHED", kept)
    results = tmp_path / "results.jsonl"
    results.write_text(
        '{"cell":"loop/t/none/random/seed 0","kind":"loop","table":"t","question":"none",'
        '"known":"","who":"random","repeats":1,"seed":0,"rows":0,"contexts":0,"versions":{},'
        '"plan":{"jobs":20,"start":15,"batch":5},"curves":{"c":'
        + str([0.5] * 15 + [0.01] * 5)
        + '},"seconds_per_suggestion":null,"seconds_to_begin":0.0,"seconds":1,"cpu_s":1}\n'
    )
    assert report.main([str(results), "--publish"]) == 0
    text = hand.read_text()
    assert text.startswith(f"# By hand\n\nText.\n\n{MARK}\n\n## Yardsticks")
    assert "old" not in text
    assert "| random | 50.0 | 1.00 | **1.00** | 16 | 100% | – |" in text
    assert report.main([]) == 0, "what is published can be printed"
    assert report.main([str(tmp_path), "--publish"]) == 0
    assert hand.read_text() == text


def test_what_was_not_measured_again_stays_as_it_was() -> None:
    def run(cells: int, seeds: int, **versions: str) -> dict[str, Any]:
        return {"what": "run", "cells": cells, "seeds": seeds, "versions": versions}

    before = [
        run(9, 5, numpy="1", torch="2"),
        prediction("a", 0.1, None),
        prediction("b", 0.2, None),
    ]
    said = [run(2, 1, numpy="3"), prediction("b", 0.3, 0.01), prediction("c", 0.4, None)]
    assert kept(before, said) == [
        run(9, 5, numpy="3", torch="2"),
        prediction("a", 0.1, None),
        prediction("b", 0.3, 0.01),
        prediction("c", 0.4, None),
    ]
    assert kept([], said) == said
