"""Pages from results: what ``docs/benchmarks.md`` says of predictors and closed loops.

::

    python -m benchmarks.report benchmarks/results/yardsticks          # print it
    python -m benchmarks.report benchmarks/results/yardsticks --publish
    python -m benchmarks.report benchmarks/results/some --publish --keep     # beside what was there
    python -m benchmarks.report                                        # what is published

``--publish`` keeps a summary of the results in ``benchmarks/published.jsonl`` and writes the page
below its mark; what stands above the mark is written by hand. With ``--keep`` what these results
do not tell stays as it was published, and is of an earlier state: say so above the mark.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.yardsticks.plan import MODES
from benchmarks.yardsticks.results import read_results
from benchmarks.yardsticks.summary import summary

__all__ = ["MARK", "PAGE", "PUBLISHED", "page", "published"]

PUBLISHED = Path(__file__).parent / "published.jsonl"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
MARK = "<!-- Below this line: python -m benchmarks.report. Do not edit. -->"

Said = Mapping[str, Any]

IDENTITY = [
    *("what", "table", "question", "known", "known_rows", "mode", "who"),
    *("figure", "ours", "theirs"),
]
"""By which two lines of a summary tell the same."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("results", nargs="?", type=Path, help="results.jsonl or its folder")
    parser.add_argument("--publish", action="store_true", help="keep a summary, write the page")
    parser.add_argument("--keep", action="store_true", help="and what the results do not tell")
    options = parser.parse_args(argv)
    if options.results is None:
        said = published()
    else:
        folder = options.results.is_dir()
        file = options.results / "results.jsonl" if folder else options.results
        said = summary(read_results(file))
        if options.keep:
            said = kept(published(), said)
    if options.publish:
        PUBLISHED.write_text("".join(json.dumps(one) + "\n" for one in said))
        by_hand = PAGE.read_text().partition(MARK)[0].rstrip()
        PAGE.write_text(f"{by_hand}\n\n{MARK}\n\n{page(said)}")
    else:
        print(page(said), end="")
    return 0


class _Plain(argparse.RawDescriptionHelpFormatter):
    pass


def published() -> list[dict[str, Any]]:
    """The summary that the page was made of, nothing before the first."""
    if not PUBLISHED.exists():
        return []
    return [json.loads(line) for line in PUBLISHED.read_text().splitlines()]


def kept(before: Sequence[Said], said: Sequence[Said]) -> list[dict[str, Any]]:
    """The lines of ``said``, in the places of those before that tell the same, and the others."""
    new = {_about(one): dict(one) for one in said}
    for one in _of(before, "run"):
        run = new.setdefault(_about(one), dict(one))
        run |= {most: max(run[most], one[most]) for most in ("cells", "seeds")}
        run["versions"] = dict(sorted((one["versions"] | run["versions"]).items()))
    return [new.pop(_about(one), dict(one)) for one in before] + list(new.values())


def _about(one: Said) -> tuple[Any, ...]:
    return tuple(one.get(name) for name in IDENTITY)


def page(said: Sequence[Said]) -> str:
    """Markdown of a summary (:func:`benchmarks.yardsticks.summary.summary`)."""
    parts = [*_head(said), *_predictions(said), *_leads(said), *_loops(said), *_checks(said)]
    return "\n\n".join(parts) + "\n"


def _of(said: Iterable[Said], what: str) -> list[Said]:
    return [one for one in said if one["what"] == what]


def _head(said: Sequence[Said]) -> Iterator[str]:
    for run in _of(said, "run"):
        yield "## Yardsticks"
        libraries = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
        quick = " A quick run, on little of everything: not to be compared." if run["quick"] else ""
        yield f"{run['cells']} cells, {run['seeds']} seeds of closed loops.{quick} {libraries}."


# ── predictions ──────────────────────────────────────────────────────────────────────────────


def _predictions(said: Sequence[Said]) -> Iterator[str]:
    found = _of(said, "prediction")
    if not found:
        return
    yield "### Predicting"
    yield (
        "Kendall's τ within contexts (of at least eight jobs), weighted by jobs; then the regret,"
        " in per cent, of the best of the first five of a context by prediction; the area under"
        " the curve of the probability to run, where anything failed. The best are bold."
    )
    names = list(dict.fromkeys(one["who"] for one in found))
    for table in dict.fromkeys(one["table"] for one in found):
        mine = [one for one in found if one["table"] == table]
        for title, figure, shown, larger in (
            ("τ", lambda one: one["tau"], _tau, True),
            ("regret of five, %", lambda one: one["regret_at"]["5"], _percent, False),
            ("AUC of what runs", lambda one: one["auc"], _tau, True),
        ):
            rows = list(_rows(mine, names, figure, shown, larger=larger))
            if rows:
                yield f"**`{table}`**: {title}"
                yield _table(["asked", "known", *names], rows)


def _rows(
    found: Sequence[Said], names: Sequence[str], figure: Any, shown: Any, *, larger: bool
) -> Iterator[list[str]]:
    questions = dict.fromkeys((one["question"], one["known"], one["known_rows"]) for one in found)
    for question, known, known_rows in questions:
        values = {
            one["who"]: figure(one)
            for one in found
            if (one["question"], one["known"], one["known_rows"]) == (question, known, known_rows)
        }
        there = [value for value in values.values() if value is not None]
        if not there:
            continue
        best = max(there) if larger else min(there)
        amount = f"{known} ({known_rows})" if known != str(known_rows) else known
        yield [
            question,
            amount,
            *(_best(values.get(name), best, shown) for name in names),
        ]


def _best(value: float | None, best: float, shown: Any) -> str:
    text: str = shown(value)
    return f"**{text}**" if value is not None and text == shown(best) else text


def _leads(said: Sequence[Said]) -> Iterator[str]:
    found = _of(said, "lead")
    if not found:
        return
    yield (
        "How far tunerd's predictors are ahead: mean over cells of the paired differences, every"
        " context alike, with 95 % bootstrap intervals over contexts and repeats; then in how many"
        " of how many cells it is ahead and behind by as much, which luck makes it in one of forty"
        " each. Positive is better for tunerd."
    )
    figures = {"kendall_tau": "τ", "regret_at.5": "regret of five, %", "auc": "AUC"}
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for one in found:
        scale = 100 if one["figure"].startswith("regret") else 1
        count = f"{one['ahead']}, {len(one['behind'])} of {one['cells']}"
        cell = f"{_interval(one, scale)}; {count}"
        rows.setdefault((one["ours"], one["theirs"]), {})[one["figure"]] = cell
    there = [name for name in figures if any(name in row for row in rows.values())]
    table = [[*who, *(row.get(name, "n/a") for name in there)] for who, row in rows.items()]
    yield _table(["ours", "peer", *(figures[name] for name in there)], table)
    yield from _worse(said, "committee")


# ── closed loops ─────────────────────────────────────────────────────────────────────────────


def _loops(said: Sequence[Said]) -> Iterator[str]:
    found = _of(said, "loop")
    if not found:
        return
    yield "### Closed loops"
    yield (
        "Regret in per cent after so many jobs, mean over contexts and seeds; the mean over all"
        " jobs after the start (area); median jobs to within 5 % of the best and the share of runs"
        " that got there; seconds per suggestion."
    )
    for mode in dict.fromkeys(one["mode"] for one in found):
        for table in dict.fromkeys(one["table"] for one in found if one["mode"] == mode):
            mine = [one for one in found if (one["mode"], one["table"]) == (mode, table)]
            jobs = [n for n in mine[0]["regret"] if mode == "others" or int(n) >= 15]
            jobs = ["5", "10", *jobs] if mode == "five" else jobs
            best = min(one["area"] for one in mine)
            rows = [
                [
                    one["who"],
                    *(_percent(one["regret"][n]) for n in jobs),
                    _best(one["area"], best, _percent),
                    "–" if one["jobs_to_5_percent"] is None else f"{one['jobs_to_5_percent']:g}",
                    f"{one['share_reached']:.0%}",
                    "–"
                    if one["seconds_per_suggestion"] is None
                    else f"{one['seconds_per_suggestion']:.2g}",
                ]
                for one in sorted(mine, key=lambda one: float(one["area"]))
            ]
            contexts = f"{mine[0]['contexts']} contexts, {mine[0]['runs']} runs"
            yield f"**`{table}`**, {MODES[mode]}: {contexts}"
            head = ["", *jobs, "area", "jobs to 5 %", "reached", "s"]
            yield _table(head, rows)
    yield from _loop_leads(said)


def _loop_leads(said: Sequence[Said]) -> Iterator[str]:
    found = _of(said, "loop lead")
    if not found:
        return
    yield (
        "How far tunerd's regret is ahead, in per cent of the best: mean over tables of the paired"
        " differences, with 95 % bootstrap intervals over contexts and seeds. Positive is better"
        " for tunerd; the tables on which a peer is ahead by as much are named, which luck makes it"
        " on one of forty."
    )
    for mode in dict.fromkeys(one["mode"] for one in found):
        mine = [one for one in found if one["mode"] == mode]
        figures = list(dict.fromkeys(one["figure"] for one in mine))
        cells = {(one["theirs"], one["figure"]): _lead(one) for one in mine}
        peers = dict.fromkeys(one["theirs"] for one in mine)
        yield f"{MODES[mode].capitalize()}:"
        rows = [[peer, *(cells.get((peer, name), "n/a") for name in figures)] for peer in peers]
        yield _table(["peer", *figures], rows)
    yield from _worse(said, "tunerd")


def _worse(said: Sequence[Said], ours: str) -> Iterator[str]:
    for one in _of(said, "worse"):
        if one["ours"] == ours:
            behind = "; ".join(one["behind"]) or "nowhere"
            yield (
                f"`{ours}` is significantly worse, luck among {one['comparisons']} single"
                f" comparisons counted (Benjamini and Hochberg 1995): {behind}."
            )


def _lead(one: Said) -> str:
    behind = f"; behind: {', '.join(one['behind'])}" if one["behind"] else ""
    return _interval(one, 100) + behind


def _checks(said: Sequence[Said]) -> Iterator[str]:
    found = _of(said, "check")
    if not found:
        return
    yield "### The yardsticks themselves"
    yield (
        "An oracle must get τ 1 and regret 0, a predictor taught shuffled outcomes τ 0 and the"
        " regret of a random order, up to noise."
    )
    rows = [
        [
            one["table"],
            one["who"],
            _tau(one["tau_overall"] if one["tau"] is None else one["tau"]),
            _percent(one["regret_at"]["5"]),
            _percent(one["random_regret_at"]["5"]),
        ]
        for one in found
    ]
    yield _table(["table", "", "τ", "regret of five, %", "random's"], rows)


# ── words ────────────────────────────────────────────────────────────────────────────────────


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _tau(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}".replace("-0.000", "0.000")


def _percent(value: float | None) -> str:
    if value is None:
        return "n/a"
    return f"{100 * value:.2f}" if value < 0.0995 else f"{100 * value:.1f}"


def _interval(one: Said, scale: float) -> str:
    low, high = ("∞" if one[end] is None else f"{scale * one[end]:+.3g}" for end in ("low", "high"))
    return f"{scale * one['mean']:+.3g} ({low} … {high})"


if __name__ == "__main__":
    sys.exit(main())
