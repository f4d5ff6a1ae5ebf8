"""What the paper's figures are held against."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.paper.intervals import interval
from benchmarks.paper.tables import LANGUAGE_MODELS, SIMULATED
from benchmarks.yardsticks.comparison import Difference, found_worse

__all__ = ["DEFAULT", "PAPER", "hold", "leads", "results"]

PAPER = {"tau": 0.88, "r": 0.97, "rho": 0.97}
"""Figure 3, random split."""
PAPER_GAIN = 10.3
PAPER_JOBS = 150
ENOUGH = 500
"""Rows that a table needs for the bar."""
DEFAULT = "lightgbm"

Found = Mapping[str, Any]


def results(found: Found, part: str, what: str) -> list[Mapping[str, Any]]:
    """Results of a part's tasks, in the order of their seeds and tables."""
    tasks = [one for one in found["tasks"].values() if (one["part"], one["what"]) == (part, what)]
    tasks.sort(key=lambda one: (one["seed"], one["table"], one["extra"]))
    return [one["result"] for one in tasks]


def leads(found: Found, ours: str, theirs: str) -> Iterator[tuple[Mapping[str, Any], list[float]]]:
    """Every question that was asked of both, with the lead of ours in τ."""
    for part in ("figure3", "open"):
        for one in results(found, part, "split"):
            lead = one.get("leads", {}).get(ours, {}).get(theirs)
            if lead is not None:
                yield one["question"], lead["tau"]


def behind(found: Found, ours: str, theirs: str) -> list[str]:
    """Questions on which ours is behind beyond luck, luck among all of them counted."""
    asked = list(leads(found, ours, theirs))
    compared = [Difference(m, low, high, 2, 2, p) for _, (m, low, high, p) in asked]
    worse = found_worse(compared)
    return [
        f"{question['table']} {question['split']} {question['known']}".strip()
        for (question, _), bad in zip(asked, worse, strict=True)
        if bad
    ]


def hold(found: Found) -> list[str]:
    """Print the figures that have a bar. Returns what was missed."""
    missed: list[str] = []
    best = None
    for one in results(found, "figure3", "split"):
        question = one["question"]
        if question["what"] != "random" or "figures" not in one or question["table"] in SIMULATED:
            continue
        told = {name: one["figures"]["boosted_trees"][name][0] for name in PAPER}
        shown = ", ".join(f"{name} {value:.3f}" for name, value in told.items())
        print(f"  {question['table']}, {one['rows']} rows, random split: {shown}")
        enough = one["rows"] >= ENOUGH and question["table"] in LANGUAGE_MODELS
        if enough and all(told[name] >= bar for name, bar in PAPER.items()):
            best = question["table"]
    if any(one["question"]["what"] == "random" for one in results(found, "figure3", "split")):
        _bar(missed, "τ, r, ρ of the paper on a random split", best or "nowhere", best is not None)
    for ours in found["sizes"]["predictors"]:
        asked = list(leads(found, ours, DEFAULT))
        if asked:
            where = behind(found, ours, DEFAULT)
            text = "; ".join(where) or f"nowhere of {len(asked)} questions"
            _bar(missed, f"{ours} behind default LightGBM", text, not where)
    gains = [one["paper"]["gains"][-1] for one in results(found, "figure2a", "campaign")]
    gains = [one for one in gains if one is not None]
    if gains:
        mean, low, high = interval(gains)
        print(f"  gain over the human's baseline: {mean:+.1f} % ({low:+.1f} … {high:+.1f});")
        print(f"  the paper: +{PAPER_GAIN} %")
    return missed


def _bar(missed: list[str], name: str, text: str, ok: bool) -> None:
    print(f"  {name}: {text}: {'ok' if ok else 'MISSED'}")
    if not ok:
        missed.append(f"{name}: {text}")
