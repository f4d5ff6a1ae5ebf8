"""``docs/paper.md``: written from the results alone. What it concludes, their intervals carry."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paper.bars import PAPER, PAPER_GAIN, PAPER_JOBS, behind, leads, results
from benchmarks.paper.intervals import Interval, interval, verdict
from benchmarks.paper.pictures import LABELS, draw
from benchmarks.paper.tables import LANGUAGE_MODELS, SIMULATED

__all__ = ["page", "write"]

Found = Mapping[str, Any]
FIGURES = {"tau": "τ", "r": "r", "rho": "ρ", "r_log": "r of logarithms"}
QUESTIONS = {
    "random": "random",
    "time": "older to newer",
    "scale": "smaller to larger",
    "hardware": "other hardware",
}
MARK = "<!-- Written by python -m benchmarks.paper. Do not edit. -->"

CODE = (
    ("Section 3, the system around jobs", "history, predictor, searcher, launched jobs",
     "`tunerd/stages/`, `tunerd/core/tuner.py`"),
    ("Section 3, launching the best predicted", "a random start, then rounds",
     "`tunerd/core/decisions/campaign.py`"),
    ("A.1.1, search space", "one categorical choice per hyper-parameter",
     "`tunerd/core/space/`"),
    ("A.1.1, predictor", "ensemble of networks with one hidden layer, dropout, AMSGrad",
     "`tunerd/core/predictors/neural_ensemble.py`"),
    ("A.1.1, margin ranking loss", "mean of max(0, margin − sign · (f(a) − f(b)))",
     "`tunerd/core/estimators/networks.py`, `_gradients`"),
    ("A.1.1, REINFORCE", "gradient of the mean reward under a categorical policy",
     "`tunerd/core/searchers/reinforce.py`, `policy.py`"),
    ("A.1.1, searches from several seeds", "their best, merged",
     "`tunerd/core/searchers/base.py`, `CachedScorer.merged`"),
    ("A.1.2, predictor for language models", "gradient boosted trees",
     "`tunerd/core/predictors/boosted_trees.py`"),
    ("A.2.1, ads space", "strategy per layer, local batch, share of memory",
     "`benchmarks/paper/ads.toml`, `tunerd/lab/simulation/fsdp.py`"),
    ("Figures 2b, 3, 4: τ, r, ρ", "rank and linear correlations",
     "`tunerd/core/scores.py`, `benchmarks/paper/intervals.py`"),
    ("Figure 3, splits", "random, by time, by scale",
     "`tunerd/lab/evaluation/splits.py`"),
)  # fmt: skip


def write(found: Found, folder: Path) -> Path:
    """Write ``paper.md`` and its pictures into a folder. Returns the page's path."""
    made = draw(found, folder / "paper")
    file = folder / "paper.md"
    file.write_text(page(found, made), encoding="utf-8")
    return file


def page(found: Found, pictures: Sequence[str]) -> str:
    """The page, with those pictures that there are."""
    sections = (
        _head(found),
        _summary(found),
        _figure2a(found, pictures),
        _figure2b(found, pictures),
        _figure3(found, pictures),
        _figure4(found, pictures),
        _open(found, pictures),
        _ablations(found, pictures),
        _code(),
    )
    return "\n\n".join(block for section in sections for block in section) + "\n"


# ── words ────────────────────────────────────────────────────────────────────────────────────


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _said(value: Interval | Sequence[float], digits: int = 3, sign: str = "") -> str:
    mean, low, high = (math.nan if one is None else one for one in value[:3])
    if not math.isfinite(mean):
        return "n/a"
    if not math.isfinite(low) or not math.isfinite(high):
        return f"{mean:{sign}.{digits}f}"
    return f"{mean:{sign}.{digits}f} ({low:{sign}.{digits}f} … {high:{sign}.{digits}f})"


def _over(values: Iterable[float | None]) -> Interval:
    return interval([one for one in values if one is not None])


def _picture(pictures: Sequence[str], name: str, text: str) -> Iterator[str]:
    if name in pictures:
        yield f"![{text}](paper/{name}.svg)"


def _label(table: str) -> str:
    return f"{LABELS.get(table, table)} (`{table}`)"


# ── sections ─────────────────────────────────────────────────────────────────────────────────


def _head(found: Found) -> Iterator[str]:
    yield MARK
    yield "# The paper, made anew"
    yield (
        "tunerd is the system of *CubicML: Automated ML for Large ML Systems Co-design with ML"
        " Prediction of Performance* (arXiv 2409.04585), made into a service. The paper's data are"
        " Meta's own. So each experiment is made again here, on public tables where there are any"
        " and on a simulated cluster where there are none. Each section says which."
    )
    yield "```sh no-run\npython -m benchmarks.paper            # everything\n\
python -m benchmarks.paper --quick    # little of everything, three minutes\n\
python -m benchmarks.paper --render   # this page, from the results that are kept\n```"
    missing = found["planned"] - len(found["tasks"])
    incomplete = f" {missing} of {found['planned']} tasks did not run." if missing > 0 else ""
    cpu = sum(one["cpu"] for one in found["tasks"].values())
    size = {"full": "", "quick": " It was a quick run: read its figures as a smoke test."}
    yield (
        f"This page is of tunerd {found['tunerd']}, Python {found['python']}, {found['machine']};"
        f" {len(found['tasks'])} tasks, {cpu / 60:.0f} minutes of processor time on two processes."
        f"{incomplete}"
        f"{size.get(found['size'], ' It was a tiny run, for a test.')}"
        " Everything is seeded: the same machine gives the same figures again. Brackets hold 95 %"
        " intervals: Student's over seeds, a bootstrap over jobs and draws on tables. What the page"
        " concludes is what these intervals carry; *level* means that zero lies inside."
    )


def _summary(found: Found) -> Iterator[str]:
    rows: list[list[str]] = []
    campaigns = results(found, "figure2a", "campaign")
    if campaigns:
        for who in ("paper", "tunerd"):
            gain = _over(one[who]["gains"][-1] for one in campaigns)
            rows.append(
                [
                    f"Figure 2a: gain over the human's baseline, {LABELS[who]}",
                    f"+{PAPER_GAIN} %",
                    f"{_said(gain, 1, '+')} %",
                    "simulated",
                ]
            )
    for one in _splits(found, "random"):
        figures = one["figures"]["boosted_trees"]
        rows.append(
            [
                f"Figure 3, random split: {_label(one['question']['table'])}",
                "τ .88, r .97, ρ .97",
                ", ".join(f"{FIGURES[name]} {figures[name][0]:.3f}" for name in PAPER),
                _kind(one["question"]["table"]),
            ]
        )
    for title, curves, kind in _curves(found):
        passed = _passes(curves)
        rows.append(
            [
                f"Figure 4, jobs until r and ρ are above .95: {title}",
                f"about {PAPER_JOBS}",
                passed,
                kind,
            ]
        )
    if rows:
        yield "## At a glance"
        yield _table(["experiment", "paper", "here", "data"], rows)


def _kind(table: str) -> str:
    return "simulated" if table in SIMULATED else "measured"


def _splits(found: Found, what: str, part: str = "figure3") -> list[Mapping[str, Any]]:
    asked = [
        one
        for one in results(found, part, "split")
        if one["question"]["what"] == what and "figures" in one
    ]
    order = {name: i for i, name in enumerate(LANGUAGE_MODELS)}
    return sorted(
        asked,
        key=lambda one: (
            order.get(one["question"]["table"], 9),
            one["question"]["table"],
            int(one["question"]["known"] or 0),
        ),
    )


def _figure2a(found: Found, pictures: Sequence[str]) -> Iterator[str]:
    played = results(found, "figure2a", "campaign")
    facts = results(found, "figure2a", "space_facts")
    if not played or not facts:
        return
    about, sizes = facts[0], found["sizes"]
    yield "## Figure 2a: tuning the ads model"
    yield (
        "**Simulated.** The space is the paper's (A.2.1): a sharding strategy for each of eight"
        " groups of layers, the local batch size in steps of 32, the share of memory from .77 to"
        f" .85 in steps of .01. That makes {about['configurations']:,} configurations. The cluster"
        " is a cost model with noise; its constants are plausible, not measured. Model and cluster"
        f" are those of `tunerd demo` ({about['context']['n_gpus']} {about['context']['gpu']})."
        f" {100 * about['share_that_runs']:.0f} % of the space runs; the rest is out of memory."
    )
    yield (
        f"The human's baseline is the best of {about['human_jobs']} uniform configurations, swept"
        " strategy and batch first, then memory, without noise. The best configuration that a long"
        f" search of the cost model finds lies {about['possible_gain']:.1f} % above it: no more is"
        " known to be there."
    )
    total = sizes["random_jobs"] + 3 * sizes["round_size"]
    yield (
        f"Each of {len(played)} campaigns has {sizes['random_jobs']} random jobs and three rounds"
        f" of {sizes['round_size']}. *The paper's recipe* fits the neural ensemble, searches by"
        " REINFORCE from three seeds, and runs the best predicted first. *tunerd campaign* is the"
        " service's own: the default predictor (`committee`), and expected gain instead of the"
        f" plain prediction. *Random* launches {total} random jobs. Gains are without noise, of"
        " the job that measured best."
    )
    yield from _picture(
        pictures,
        "figure2a",
        "Left: best so far by jobs launched. Right: each job of one campaign, by round.",
    )
    names = ("paper", "tunerd", "random")
    rows = [
        [
            LABELS[name],
            *(_said(_over(one[name]["gains"][i] for one in played), 1, "+") for i in range(4)),
            f"{100 * np.mean([_share_that_ran(one[name]) for one in played]):.0f} %",
        ]
        for name in names
    ]
    yield _table(
        ["over the baseline, %", "random start", "round 1", "round 2", "round 3", "ran"], rows
    )
    for name in ("paper", "tunerd"):
        ends = [(one[name]["gains"][-1], one["random"]["gains"][-1]) for one in played]
        pairs = [(a, b) for a, b in ends if a is not None and b is not None]
        over = interval([100 * ((100 + a) / (100 + b) - 1) for a, b in pairs])
        gain = _over(one[name]["gains"][-1] for one in played)
        beside = verdict(gain[1] - PAPER_GAIN, gain[2] - PAPER_GAIN)
        word = {"ahead": "above", "behind": "below", "level": "level with"}[beside]
        share = 100 * gain[0] / about["possible_gain"] if about["possible_gain"] else math.nan
        against = {"ahead": "more than", "behind": "less than", "level": "level with"}
        yield (
            f"With *{LABELS[name]}* the gain over the human is {_said(gain, 1, '+')} %: {word}"
            f" the paper's +{PAPER_GAIN} %, and {share:.0f} % of what there is to win. That is"
            f" {against[verdict(over[1], over[2])]} what random search finds with as many"
            f" jobs ({_said(over, 1, '+')} % over it)."
        )
        stuck = [one for one in played if one[name]["gains"][-1] == one[name]["gains"][0]]
        if stuck:
            ran = ", ".join(f"{one[name]['ran']} of {len(one[name]['curve'])}" for one in stuck)
            yield (
                f"In {len(stuck)} of {len(played)} campaigns the rounds of *{LABELS[name]}* found"
                f" nothing better than the random start had; there {ran} jobs ran."
            )
    order = [value for one in played for value in one["paper"]["order"] if value is not None]
    if order:
        rank = interval(order)
        words = {
            "ahead": "The order within a round is better than chance",
            "behind": "The order within a round is worse than chance",
            "level": "The order within a round says nothing beyond chance",
        }
        yield (
            f"{words[verdict(rank[1], rank[2])]}: Spearman's ρ between predicted and measured is"
            f" {_said(rank, 2, '+')}. All that a round runs is among the best predicted."
        )
    yield (
        "The paper does not say how strong its human was. A gain over a person depends on the"
        " person: compare shares of what there is to win, not percentages across clusters."
    )


def _share_that_ran(played: Mapping[str, Any]) -> float:
    return float(played["ran"] / len(played["curve"]))


def _figure2b(found: Found, pictures: Sequence[str]) -> Iterator[str]:
    played = results(found, "figure2b", "accuracy")
    if not played:
        return
    sizes = found["sizes"]
    yield "## Figure 2b: how well ads jobs are predicted"
    yield (
        f"**Simulated.** {sizes['held_out']} held-out jobs of the same space, all of which ran;"
        f" {len(played)} training sets. The picture is one of them. r is that of the metric as it"
        " is measured."
    )
    yield from _picture(pictures, "figure2b", "Predicted against actual speed of held-out jobs")
    rows = []
    for who in played[0]["figures"]:
        for amount in played[0]["figures"][who]:
            told = [one["figures"][who][amount] for one in played]
            rows.append(
                [LABELS[who], amount]
                + [_said(_over(one[name] for one in told)) for name in ("tau", "r", "rho")]
            )
    yield _table(["", "jobs known", "τ", "r", "ρ"], rows)
    amount = min(played[0]["figures"]["boosted_trees"], key=lambda one: abs(int(one) - 150))
    lead = _over(
        one["figures"]["boosted_trees"][amount]["tau"]
        - one["figures"]["neural_ensemble"][amount]["tau"]
        for one in played
    )
    words = {
        "ahead": "rank these jobs better than the neural ensemble does",
        "behind": "rank these jobs worse than the neural ensemble does",
        "level": "and the neural ensemble rank these jobs equally well",
    }
    yield (
        f"With {amount} jobs boosted trees {words[verdict(lead[1], lead[2])]}: τ"
        f" {_said(lead, 3, '+')}. The paper uses the ensemble for ads and trees for language"
        " models."
    )


def _figure3(found: Found, pictures: Sequence[str]) -> Iterator[str]:
    asked = [one for what in QUESTIONS for one in _splits(found, what)]
    if not asked:
        return
    yield "## Figure 3: language models, three splits"
    yield (
        "**Measured, but for Calculon.** Gradient boosting (`boosted_trees`) as in the paper,"
        " tunerd's default (`committee`) and two peers: LightGBM as it comes, and LightGBM on the"
        " logarithm with small leaves for few rows. Figures are over all jobs together, as in the"
        " paper. Tables of other trainings stand below those of language models; the committee,"
        " which takes ten times as long, is not asked about them."
        " Only the tables that hold dates can be split by time. Calculon's rows are computed by an"
        " analytical model of up to 16,384 H100s; nobody measured them."
    )
    yield from _picture(pictures, "figure3", "Predicted against actual, by table and split")
    names = [*found["sizes"]["predictors"], "lightgbm", "lightgbm_log"]
    rows = []
    for one in asked:
        question = one["question"]
        title = QUESTIONS[question["what"]]
        if question["what"] == "scale":
            column, _, value = question["split"].removeprefix("above:").partition("=")
            title = f"{title}: {column} above {value}, {question['known']} of its jobs known"
        rows.append(
            [
                f"`{question['table']}`",
                title,
                f"{one['known_rows']:,.0f}, {one['asked']:,.0f}",
                *(_three(one["figures"].get(name)) for name in names),
            ]
        )
    head = ["table", "split", "jobs known, asked"]
    yield "τ / r / ρ:"
    yield _table([*head, *(LABELS[name] for name in names)], rows)
    yield from _beside_default(found)
    best = [
        one["question"]["table"]
        for one in _splits(found, "random")
        if one["question"]["table"] in LANGUAGE_MODELS
        and all(one["figures"]["boosted_trees"][name][1] >= bar for name, bar in PAPER.items())
    ]
    if best:
        listed = ", ".join(f"`{name}`" for name in best)
        yield (
            "With random splits the whole interval of each of τ, r and ρ lies at or above the"
            f" paper's .88, .97 and .97 on {listed}. Such splits are easy: neighbours of a job are"
            " known."
        )
    else:
        yield "On no table do the intervals of all three lie above the paper's .88, .97, .97."
    scale = _splits(found, "scale")
    if scale:
        yield "### From small to large, with a few jobs at the large scale"
        yield (
            "The paper says that a few jobs at the large scale are needed. The picture shows τ with"
            " 0, 5, 10 and 20 of them."
        )
        yield from _picture(pictures, "scale", "Kendall's τ by the number of large jobs known")
        yield from _few_help(scale)


def _three(figures: Mapping[str, Sequence[float]] | None) -> str:
    if figures is None:
        return "n/a"
    return " / ".join(f"{figures[name][0]:.3f}" for name in ("tau", "r", "rho"))


def _beside_default(found: Found) -> Iterator[str]:
    for ours in found["sizes"]["predictors"]:
        for theirs in ("lightgbm", "lightgbm_log"):
            asked = list(leads(found, ours, theirs))
            if not asked:
                continue
            ahead = sum(verdict(low, high) == "ahead" for _, (_, low, high, _) in asked)
            worse = behind(found, ours, theirs)
            where = "; ".join(f"`{one}`" for one in worse) or "nowhere"
            yield (
                f"`{ours}` beside {LABELS[theirs]}: of {len(asked)} questions, those below"
                f" included, ahead in τ on {ahead}; behind beyond luck: {where}."
            )


def _few_help(asked: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = []
    for table in dict.fromkeys(one["question"]["table"] for one in asked):
        mine = {one["question"]["known"]: one for one in asked if one["question"]["table"] == table}
        for who in ("boosted_trees", "committee"):
            told = {
                n: one["figures"][who]["tau"] for n, one in mine.items() if who in one["figures"]
            }
            if "0" in told and "20" in told:
                apart = told["20"][1] > told["0"][2]
                rows.append(
                    [
                        f"`{table}`",
                        LABELS[who],
                        *(_said(told[n]) if n in told else "n/a" for n in ("0", "5", "10", "20")),
                        "yes" if apart else "not beyond the intervals",
                    ]
                )
    if rows:
        yield _table(["τ", "", "0", "5", "10", "20", "do 20 help?"], rows)


def _curves(found: Found) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Title, amount → figure → values by seed, kind of data."""
    played = results(found, "figure2b", "accuracy")
    for who in played[0]["figures"] if played else ():
        curves = {
            amount: {
                name: [one["figures"][who][amount][name] for one in played] for name in FIGURES
            }
            for amount in played[0]["figures"][who]
        }
        yield f"ads, {LABELS[who]}", curves, "simulated"
    for one in results(found, "figure4", "curve"):
        yield f"{_label(one['table'])}, boosted trees", one["figures"], _kind(one["table"])


def _passes(curves: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """The first amount from which on the intervals of r and ρ lie above .95."""
    amounts = sorted(curves, key=int)
    ok = [
        all(interval(curves[amount][name])[1] > 0.95 for name in ("r", "rho")) for amount in amounts
    ]
    for i, amount in enumerate(amounts):
        if all(ok[i:]):
            return f"{amount}" if i else f"{amount} or fewer"
    return f"more than {amounts[-1]}" if amounts else "n/a"


def _figure4(found: Found, pictures: Sequence[str]) -> Iterator[str]:
    curves = list(_curves(found))
    if not curves:
        return
    yield "## Figure 4: how many jobs a good prediction takes"
    yield (
        "The same held-out jobs, asked about with more and more jobs known, drawn anew for each"
        f" of {found['sizes']['seeds']} seeds. The dotted lines are .95 and the paper's 150 jobs."
    )
    yield from _picture(pictures, "figure4", "τ, r and ρ by the number of known jobs")
    rows = []
    for title, by_amount, _ in curves:
        amounts = sorted(by_amount, key=int)
        shown = [
            f"{amount}: " + ", ".join(f"{np.mean(by_amount[amount][k]):.3f}" for k in ("r", "rho"))
            for amount in amounts
        ]
        rows.append([title, "; ".join(shown), _passes(by_amount)])
    yield _table(["", "jobs: r, ρ", "both above .95 from"], rows)
    yield (
        "The last column is the first amount from which on both intervals lie above .95. r is that"
        " of the metric as measured, which one wrong large value can pull down; ρ is the figure"
        " that a search needs."
    )


def _open(found: Found, pictures: Sequence[str]) -> Iterator[str]:
    if not any(one["part"] == "open" for one in found["tasks"].values()):
        return
    yield "## What the paper leaves open"
    yield from _few(found, pictures)
    yield from _groups(found, pictures)
    yield from _hardware(found, pictures)
    yield "### Other workloads"
    yield (
        "Closed loops on other trainings (Pollux, TrimTuner) stand in"
        " [benchmarks](benchmarks.md#closed-loops), those two tables' splits above."
    )


def _few(found: Found, pictures: Sequence[str]) -> Iterator[str]:
    played = results(found, "open", "few_jobs")
    if played:
        yield "### How few profiled jobs suffice"
        yield (
            "**Simulated.** The paper's recipe in the ads space, begun with 10, 30 or 75 random"
            f" jobs, then rounds of 10; {len(played)} seeds. Three of four random jobs run out of"
            " memory. How many jobs until the best measured one is within 5 % of the best there"
            " is?"
        )
        yield from _picture(pictures, "few", "Per cent below the best, by jobs launched")
        rows = []
        for name in played[0]["jobs"]:
            jobs = [one["jobs"][name] for one in played]
            there = sorted(math.inf if one is None else one for one in jobs)
            median = there[len(there) // 2]
            shown = f"{median:.0f}" if math.isfinite(median) else "not reached"
            end = _over(one["regret"][name][-1] for one in played)
            rows.append(
                [name, shown, f"{sum(map(math.isfinite, there))} of {len(there)}", _said(end, 1)]
            )
        yield _table(["begun with", "median jobs to 5 %", "reached", "% below at the end"], rows)
    loops = results(found, "open", "loops")
    if loops:
        yield (
            "**On tables**, tunerd in closed loops from five random jobs, in every context with at"
            " least 40 configurations. With the jobs of other contexts known it takes fewer:"
            " [benchmarks](benchmarks.md#closed-loops) has that beside the peers."
        )
        rows = []
        for one in loops:
            for who in ("tunerd", "random"):
                jobs = one[who]["jobs"]
                there = sorted(math.inf if n is None else n for n in jobs)
                median = there[len(there) // 2] if there else math.inf
                rows.append(
                    [
                        f"`{one['table']}`",
                        LABELS.get(who, who) if who == "random" else "tunerd",
                        f"{median:.0f}" if math.isfinite(median) else "not reached",
                        f"{sum(map(math.isfinite, there))} of {len(there)}",
                    ]
                )
        yield _table(["table", "", "median jobs to 5 %", "runs that got there"], rows)


def _groups(found: Found, pictures: Sequence[str]) -> Iterator[str]:
    asked = results(found, "open", "groups")
    if not asked:
        return
    yield "### Which features carry the prediction"
    yield (
        "A group's values are shuffled among held-out jobs; the loss of τ is what the group"
        " carries. Groups that say the same share what they are worth, and a table that hardly"
        " varies a group cannot show it."
    )
    yield from _picture(pictures, "groups", "Loss of τ when a group of features is shuffled")
    rows = [
        [
            f"`{one['table']}`",
            group,
            _said(interval(figures["tau"]), 2),
            f"{np.mean(figures['error']):.0f}",
        ]
        for one in asked
        for group, figures in sorted(one["groups"].items(), key=lambda p: -np.mean(p[1]["tau"]))
    ]
    yield _table(["table", "group", "loss of τ", "rise of the error, %"], rows)
    said = []
    for one in asked:
        order = sorted(one["groups"], key=lambda name: -float(np.mean(one["groups"][name]["tau"])))
        said.append(f"{order[0]} carries most and {order[-1]} least on `{one['table']}`")
    yield "; ".join(said).capitalize() + "."


def _hardware(found: Found, pictures: Sequence[str]) -> Iterator[str]:
    tables = _splits(found, "hardware", "open")
    played = results(found, "open", "hardware")
    if not tables and not played:
        return
    yield "### Other hardware and topology"
    if tables:
        yield (
            "**Measured.** One kind of GPU (`llmfoundry_fsdp`) or of cluster (`vtrain_megatron`:"
            " one node, several nodes) is left out and asked about, with 0, 5 and 10 of its jobs"
            " known."
        )
        yield from _picture(pictures, "hardware", "τ on hardware that is left out, by own jobs")
        rows = [
            [f"`{one['question']['table']}`", one["question"]["known"]]
            + [_said(figures["tau"]) for figures in one["figures"].values()]
            for one in tables
        ]
        yield _table(["τ", "own jobs", *(LABELS[name] for name in tables[0]["figures"])], rows)
    if played:
        yield (
            f"**Simulated.** The ads space on A100, H100 and B200: two kinds known with"
            f" {played[0]['known']} jobs each, the third asked about; means over the three kinds,"
            f" {len(played)} seeds."
        )
        rows = []
        for who in played[0]["figures"]:
            for own in ("0", "5", "10"):
                told = [[kinds[own] for kinds in one["figures"][who].values()] for one in played]
                means = [
                    {name: float(np.mean([k[name] for k in kinds])) for name in ("tau", "error")}
                    for kinds in told
                ]
                tau, error = (_over(one[name] for one in means) for name in ("tau", "error"))
                rows.append([LABELS[who], own, _said(tau), _said(error, 0)])
        yield _table(["", "own jobs", "τ", "mean error, %"], rows)
        for who in played[0]["figures"]:
            gain, fall = (
                _over(
                    float(np.mean([sign * (k["10"][name] - k["0"][name]) for k in kinds.values()]))
                    for kinds in (one["figures"][who] for one in played)
                )
                for name, sign in (("tau", 1), ("error", -1))
            )
            order = {"ahead": "rises", "behind": "falls", "level": "stays"}[verdict(*gain[1:])]
            level = {"ahead": "falls", "behind": "rises", "level": "stays"}[verdict(*fall[1:])]
            yield (
                f"With ten own jobs τ of {LABELS[who]} {order} ({_said(gain, 3, '+')}), the error"
                f" {level} (by {_said(fall, 0)} points)."
            )


def _ablations(found: Found, pictures: Sequence[str]) -> Iterator[str]:
    losses = results(found, "ablations", "losses")
    searched = results(found, "ablations", "searches")
    if not losses and not searched:
        return
    yield "## Ablations"
    if losses:
        yield "### The loss and the ensemble"
        yield (
            f"**Simulated.** Networks alone, without the parts that tunerd adds, on the ads space;"
            f" {len(losses)} training sets of about 150 jobs. *Margin ranking* is what ships: a"
            " ranking loss and a little squared error, which pins the level down."
        )
        names = list(losses[0]["tau"])
        yield _table(
            ["loss, networks", "Kendall's τ"],
            [[name, _said(_over(one["tau"][name] for one in losses))] for name in names],
        )
        for a, b in (
            ("margin ranking, 5", "squared error, 5"),
            ("margin ranking, 5", "ranking alone, 5"),
            ("margin ranking, 5", "margin ranking, 1"),
        ):
            lead = _over(one["tau"][a] - one["tau"][b] for one in losses)
            yield f"{a} against {b}: {_said(lead, 3, '+')}, {verdict(lead[1], lead[2])}."
    if searched:
        yield "### Seeds and searchers"
        names = list(searched[0]["searchers"])
        budgets = list(searched[0]["searchers"][names[0]])
        listed = ", ".join(budgets[:-1]) + (" or " if len(budgets) > 1 else "") + budgets[-1]
        yield (
            f"**Simulated.** Everybody searches the same fitted ensemble with {listed}"
            f" predictions; {len(searched)} ensembles. The loss is the share of the range from the"
            " mean of random configurations to the best that anybody found, a much longer search"
            " included. The last column says what the configuration that was found with the most"
            " predictions is truly worth: a search is only as good as its predictor. Larger spaces"
            " stand in [searching](searching.md#what-it-finds)."
        )
        yield from _picture(pictures, "searchers", "Loss of each searcher, by predictions")
        rows = []
        for name in names:
            by_calls = [one["searchers"][name] for one in searched]
            lost = [_said(_over(one[n]["loss"] for one in by_calls), 1) for n in budgets]
            last = [one[budgets[-1]] for one in by_calls]
            there = [one["true_gain"] for one in last if one["true_gain"] is not None]
            seconds = f"{np.median([one['seconds'] for one in last]):.2g}"
            rows.append([name, *lost, seconds, _said(interval(there), 1, "+")])
        yield _table(
            [
                "loss in %, by predictions",
                *budgets,
                "processor s",
                "truly over the human, %",
            ],
            rows,
        )
        yield from _beside_reinforce(searched, names, budgets)


def _beside_reinforce(
    searched: Sequence[Mapping[str, Any]], names: Sequence[str], budgets: Sequence[str]
) -> Iterator[str]:
    """Who loses less or more than the paper's search, as far as the intervals tell."""
    ours = names[0]
    for calls in budgets:
        sorted_out: dict[str, list[str]] = {"ahead": [], "behind": [], "level": []}
        for name in names[1:]:
            lead = _over(
                one["searchers"][name][calls]["loss"] - one["searchers"][ours][calls]["loss"]
                for one in searched
            )
            sorted_out[verdict(lead[1], lead[2])].append(name)
        words = {"ahead": "ahead of", "behind": "behind", "level": "level with"}
        text = "; ".join(
            f"{words[key]} {', '.join(found)}" for key, found in sorted_out.items() if found
        )
        yield f"With {calls} predictions {ours} is {text}."


def _code() -> Iterator[str]:
    yield "## From the paper to the code"
    yield _table(["in the paper", "what", "here"], CODE)
    yield (
        "Where tunerd departs from the paper, [searching](searching.md) and"
        " [the notes on prediction](decisions/prediction.md) say why: a probability to run beside"
        " the predicted speed, an expected gain instead of the plain prediction, a committee of"
        " predictors as the default, and searches that remember what they have scored."
    )
