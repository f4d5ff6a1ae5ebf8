"""Pictures of ``docs/paper.md``: small SVG files, made from the results alone."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.paper.bars import results
from benchmarks.paper.intervals import interval
from tunerd.core.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LABELS", "draw"]

GREY = "#757575"
COLOURS = ("#1565c0", "#ef6c00", "#2e7d32", "#6a1b9a", "#c62828", "#00838f")
ROUND_COLOURS = ("#9e9e9e", "#90caf9", "#1e88e5", "#0d47a1")
LABELS: Mapping[str, str] = {
    "vtrain_megatron": "Megatron-DeepSpeed",
    "llmfoundry_fsdp": "LLM Foundry, FSDP",
    "calculon_simulated_16k": "Calculon (simulated)",
    "pollux_dp": "Pollux",
    "trimtuner_ps": "TrimTuner",
    "boosted_trees": "boosted trees",
    "committee": "committee",
    "neural_ensemble": "neural ensemble",
    "lightgbm": "default LightGBM",
    "lightgbm_log": "LightGBM, log",
    "paper": "the paper's recipe",
    "tunerd": "tunerd campaign",
    "random": "random",
}
Found = Mapping[str, Any]


def draw(found: Found, folder: Path) -> list[str]:
    """Draw everything that there are results for. Returns the names of the pictures."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "tunerd",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "figure.facecolor": "white",
    }
    made = []
    folder.mkdir(parents=True, exist_ok=True)
    for name, of in PICTURES.items():
        with mpl.rc_context(style):
            figure = of(found)
            if figure is None:
                continue
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, dpi=110)
            pyplot.close(figure)
            made.append(name)
    return made


def _panels(
    columns: int, rows: int = 1, width: float = 4.0, height: float = 3.0
) -> "tuple[Figure, list[Axes]]":
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        rows,
        columns,
        figsize=(width * columns, height * rows),
        layout="constrained",
        squeeze=False,
    )
    return figure, list(axes.ravel())


def _of(table: str) -> str:
    return LABELS.get(table, table)


def _array(values: Sequence[Any]) -> FloatArray:
    return np.array([np.nan if v is None else v for v in values], np.float64)


def _band(axes: "Axes", x: Any, rows: FloatArray, label: str, colour: str) -> None:
    """Mean of (n, x) rows with Student's 95 % interval."""
    means = np.array([interval(column[np.isfinite(column)].tolist()) for column in rows.T])
    axes.plot(x, means[:, 0], color=colour, lw=1.5, label=label)
    axes.fill_between(x, means[:, 1], means[:, 2], color=colour, alpha=0.15, lw=0)


# ── ads ──────────────────────────────────────────────────────────────────────────────────────


def _figure2a(found: Found) -> "Figure | None":
    played = results(found, "figure2a", "campaign")
    facts = results(found, "figure2a", "space_facts")
    if not played or not facts:
        return None
    human, best = facts[0]["human"], facts[0]["best"]
    figure, (left, right) = _panels(2, width=4.6, height=3.4)
    for name, colour in (("paper", COLOURS[0]), ("tunerd", COLOURS[1]), ("random", GREY)):
        length = min(len(one[name]["curve"]) for one in played)
        curves = np.array([_array(one[name]["curve"])[:length] for one in played])
        gains = 100 * (curves / human - 1)
        first = int(np.argmax(np.isfinite(gains).all(axis=0)))
        x = np.arange(first + 1, length + 1)
        _band(left, x, gains[:, first:], LABELS[name], colour)
    left.axhline(0, color="#424242", ls="--", lw=1)
    left.axhline(100 * (best / human - 1), color="#424242", ls=":", lw=1)
    left.axvline(found["sizes"]["random_jobs"], color=GREY, lw=0.8, ls=":")
    left.set(xlabel="jobs launched", ylabel="best so far over the human's baseline, %")
    left.set_ylim(-30, max(100 * (best / human - 1), 0) + 8)
    left.legend(loc="lower right")
    jobs = _array(played[0]["paper"]["jobs"]) / 1e3
    start, size = found["sizes"]["random_jobs"], found["sizes"]["round_size"]
    number = np.where(np.arange(len(jobs)) < start, 0, 1 + (np.arange(len(jobs)) - start) // size)
    for one in range(int(number.max(initial=0)) + 1):
        at = np.flatnonzero(number == one)
        label = "random" if one == 0 else f"round {one}"
        right.scatter(at + 1, jobs[at], s=8, color=ROUND_COLOURS[min(one, 3)], label=label)
    right.axhline(human / 1e3, color="#424242", ls="--", lw=1)
    right.set(xlabel="job (seed 1)", ylabel="thousand samples/s, as measured")
    right.legend(loc="lower right")
    return figure


def _figure2b(found: Found) -> "Figure | None":
    points = next((one["points"] for one in results(found, "figure2b", "accuracy")), None)
    if not points:
        return None
    figure, (axes,) = _panels(1, width=3.4, height=3.2)
    _against(axes, points)
    axes.set(xlabel="actual samples/s", ylabel="predicted")
    return figure


def _against(axes: "Axes", points: Sequence[Sequence[float]]) -> None:
    actual, told = np.array(points).T
    axes.scatter(actual, told, s=7, color=COLOURS[0], alpha=0.5, linewidths=0, rasterized=True)
    ends = [min(actual.min(), told.min()), max(actual.max(), told.max())]
    axes.plot(ends, ends, color="#424242", lw=0.8)
    axes.set(xscale="log", yscale="log")
    axes.minorticks_off()


def _figure4(found: Found) -> "Figure | None":
    drawn: list[tuple[str, Mapping[str, Mapping[str, Sequence[float]]]]] = []
    for who in ("neural_ensemble", "boosted_trees"):
        curves = _ads_curve(found, who)
        if curves:
            drawn.append((f"ads (simulated), {LABELS[who]}", curves))
    drawn += [
        (f"{_of(one['table'])}, boosted trees", one["figures"])
        for one in results(found, "figure4", "curve")
    ]
    if not drawn:
        return None
    figure, panels = _panels(3, width=3.5, height=3.4)
    for axes, name, shown in zip(
        panels, ("tau", "r", "rho"), ("Kendall's τ", "Pearson's r", "Spearman's ρ"), strict=True
    ):
        for (label, by_amount), colour in zip(drawn, COLOURS, strict=False):
            amounts = sorted(by_amount, key=int)
            means = [float(np.mean(by_amount[one][name])) for one in amounts]
            axes.plot([int(one) for one in amounts], means, color=colour, lw=1.4, label=label)
        axes.axhline(0.95, color="#424242", ls=":", lw=1)
        axes.axvline(150, color=GREY, ls=":", lw=0.8)
        axes.set(xlabel="jobs known", ylabel=shown, ylim=(0.4, 1.01))
    panels[2].legend(loc="lower right", fontsize=7)
    return figure


def _ads_curve(found: Found, who: str) -> dict[str, dict[str, list[float]]]:
    curves: dict[str, dict[str, list[float]]] = {}
    for one in results(found, "figure2b", "accuracy"):
        for amount, figures in one["figures"].get(who, {}).items():
            for name, value in figures.items():
                curves.setdefault(amount, {}).setdefault(name, []).append(value)
    return curves


# ── tables ───────────────────────────────────────────────────────────────────────────────────


def _asked(found: Found, part: str, what: str) -> list[Mapping[str, Any]]:
    return [
        one
        for one in results(found, part, "split")
        if one["question"]["what"] == what and "figures" in one
    ]


def _figure3(found: Found) -> "Figure | None":
    shown = [
        (title, one)
        for what, title in (("random", "random"), ("time", "older to newer"), ("scale", "larger"))
        for one in _asked(found, "figure3", what)
        if one["question"]["known"] in ("", "0")
        and one["question"]["table"] in ("vtrain_megatron", "llmfoundry_fsdp",
                                         "calculon_simulated_16k")
    ]  # fmt: skip
    if not shown:
        return None
    shown.sort(key=lambda pair: list(LABELS).index(pair[1]["question"]["table"]))
    columns = min(len(shown), 4)
    rows = -(-len(shown) // columns)
    figure, panels = _panels(columns, rows, width=2.6, height=2.6)
    for axes, (title, one) in zip(panels, shown, strict=False):
        _against(axes, one["points"])
        axes.set_title(f"{_of(one['question']['table'])}\n{title}", fontsize=8)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    figure.supxlabel("actual", fontsize=9)
    figure.supylabel("predicted", fontsize=9)
    return figure


def _by_known(found: Found, part: str, what: str) -> "Figure | None":
    asked = _asked(found, part, what)
    there = dict.fromkeys(one["question"]["table"] for one in asked)
    names = [name for name in LABELS if name in there] or list(there)
    if not names:
        return None
    figure, panels = _panels(len(names), width=2.6, height=2.8)
    for axes, name in zip(panels, names, strict=True):
        mine = sorted(
            (one for one in asked if one["question"]["table"] == name),
            key=lambda one: int(one["question"]["known"]),
        )
        x = np.arange(len(mine), dtype=np.float64)
        for i, who in enumerate(mine[0]["figures"]):
            tau = np.array([one["figures"][who]["tau"] for one in mine])
            reach = np.maximum(np.stack([tau[:, 0] - tau[:, 1], tau[:, 2] - tau[:, 0]]), 0)
            at = x + 0.06 * (i - 1.5)
            colour = COLOURS[i] if who not in ("lightgbm", "lightgbm_log") else GREY
            style = "--" if who == "lightgbm_log" else "-"
            axes.errorbar(
                at, tau[:, 0], reach, color=colour, lw=1.3, ls=style, capsize=2, label=LABELS[who]
            )
        axes.set_xticks(x, [one["question"]["known"] for one in mine])
        axes.set_title(_of(name), fontsize=8)
        axes.set_xlabel("own jobs known")
    panels[0].set_ylabel("Kendall's τ")
    panels[0].legend(loc="lower right", fontsize=7)
    return figure


# ── open questions and ablations ─────────────────────────────────────────────────────────────


def _few(found: Found) -> "Figure | None":
    played = results(found, "open", "few_jobs")
    if not played:
        return None
    figure, (axes,) = _panels(1, width=5.4, height=3.2)
    for i, name in enumerate(played[0]["regret"]):
        length = min(len(one["regret"][name]) for one in played)
        rows = np.array([_array(one["regret"][name])[:length] for one in played])
        colour = GREY if name == "random only" else COLOURS[i]
        _band(axes, np.arange(1, length + 1), rows, name, colour)
    axes.axhline(5, color="#424242", ls=":", lw=1)
    axes.set(xlabel="jobs launched", ylabel="% below the best", ylim=(0, 60))
    axes.legend()
    return figure


def _groups(found: Found) -> "Figure | None":
    asked = results(found, "open", "groups")
    if not asked:
        return None
    figure, panels = _panels(len(asked), width=3.4, height=2.2)
    for axes, one in zip(panels, asked, strict=True):
        means = {name: interval(two["tau"]) for name, two in one["groups"].items()}
        order = sorted(means, key=lambda name: means[name][0])
        axes.barh(order, [means[name][0] for name in order], color=COLOURS[0])
        axes.set_title(_of(one["table"]), fontsize=8)
        axes.set_xlabel("loss of τ when shuffled")
    return figure


def _searchers(found: Found) -> "Figure | None":
    asked = results(found, "ablations", "searches")
    if not asked:
        return None
    names = list(asked[0]["searchers"])
    budgets = list(asked[0]["searchers"][names[0]])
    figure, panels = _panels(len(budgets), width=3.4, height=2.6)
    for axes, calls in zip(panels, budgets, strict=True):
        losses = [
            interval([one["searchers"][name][calls]["loss"] for one in asked]) for name in names
        ]
        mean = np.array([one[0] for one in losses])
        reach = np.array([min(one[2] - one[0], 100.0) for one in losses])
        axes.barh(names[::-1], mean[::-1], xerr=reach[::-1], color=COLOURS[0], error_kw={"lw": 1})
        axes.set_title(f"{calls} predictions", fontsize=8)
        axes.set_xlim(left=0)
        if axes is not panels[0]:
            axes.set_yticklabels([])
    figure.supxlabel("% of the range below the best that is known", fontsize=9)
    return figure


PICTURES: Mapping[str, Callable[[Found], "Figure | None"]] = {
    "figure2a": _figure2a,
    "figure2b": _figure2b,
    "figure3": _figure3,
    "scale": lambda found: _by_known(found, "figure3", "scale"),
    "figure4": _figure4,
    "few": _few,
    "groups": _groups,
    "hardware": lambda found: _by_known(found, "open", "hardware"),
    "searchers": _searchers,
}
