"""What the yardsticks hold to: themselves, the time they take, and whoever claims to be best."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.kit import Bars
from benchmarks.peers import OPTIMIZERS, PREDICTORS
from benchmarks.yardsticks.comparison import Cell as Pair
from benchmarks.yardsticks.comparison import (
    Difference,
    Values,
    difference,
    found_worse,
    mean_difference,
)
from benchmarks.yardsticks.plan import CHECKS, Cell

__all__ = [
    "against",
    "area_values",
    "hold_all",
    "loop_values",
    "predict_values",
    "worse_beyond_luck",
]

QUICK_S, WHOLE_S = 180.0, 2_700.0
CORES = 2
NEAR_ZERO = 0.05
"""As good as nothing, should chance put 0 just outside the interval."""
FIGURES = {"kendall_tau": True, "regret_at.5": False, "auc": True}
"""What predictors are compared by → whether larger is better."""
REGRETS = {"none": (20, 30, 40, 60), "five": (6, 10, 15, 20, 30, 40, 60), "others": (1, 3, 5, 10)}
"""Jobs after which optimizers are compared, by mode."""

Lines = Mapping[str, Mapping[str, Any]]


def hold_all(wanted: Sequence[Cell], lines: Lines, options: argparse.Namespace) -> int:
    """Print the bars; the exit code."""
    bars = Bars("yardsticks")
    found = {cell.name: lines[cell.name] for cell in wanted if cell.name in lines}
    _present(bars, wanted, found)
    _in_time(bars, found, options)
    _judges(bars, found)
    for name in options.best:
        _best(bars, name, found)
    return bars.end(options)


def _present(bars: Bars, wanted: Sequence[Cell], found: Lines) -> None:
    wrong = [
        f"{cell.name} ({found.get(cell.name, {}).get('error', 'missing')})"
        for cell in wanted
        if cell.name not in found or "error" in found[cell.name]
    ]
    bars.say("cells that cannot be asked of their table", _count(found, "n/a"))
    first = f": {wrong[0]}" if wrong else ""
    bars.hold(f"cells that are missing or failed{first}", len(wrong), not wrong, "0")


def _count(found: Lines, key: str) -> int:
    return sum(key in line for line in found.values())


def _in_time(bars: Bars, found: Lines, options: argparse.Namespace) -> None:
    """By what the cells took of a processor: a run in several parts, or on a machine that does
    other work too, is held to the same."""
    seconds = sum(line["cpu_s"] for line in found.values()) / CORES
    limit = QUICK_S if options.quick else WHOLE_S
    bars.hold("time on two cores", seconds, seconds <= limit, f"{limit:.0f} s", "s")


# ── the yardsticks themselves ────────────────────────────────────────────────────────────────


def _judges(bars: Bars, lines: Lines) -> None:
    nonsense = []
    for line in lines.values():
        if line["who"] in CHECKS and "values" in line:
            if line["who"] == "oracle":
                _oracle(bars, f"{line['table']}, oracle", line)
            else:
                _ranks_nothing(bars, f"{line['table']}, {line['who']}: τ", line)
                nonsense.append(line)
    for k in (1, 5):
        _chooses_at_random(bars, k, nonsense)


def _oracle(bars: Bars, title: str, line: Mapping[str, Any]) -> None:
    tau = line["overall"]["kendall_tau"]
    bars.hold(f"{title}: τ over all jobs", tau, tau > 1 - 1e-6, "1")
    taus = list(_pairs(line, "kendall_tau").values())
    if taus:
        bars.hold(f"{title}: lowest τ in a context", min(taus), min(taus) > 1 - 1e-6, "1")
    regrets = [r for k in (1, 3, 5, 10) for r in _pairs(line, f"regret_at.{k}").values()]
    if regrets:
        bars.hold(f"{title}: largest regret", abs(max(regrets)), max(regrets) == 0.0, "0")


def _ranks_nothing(bars: Bars, title: str, line: Mapping[str, Any]) -> None:
    taus = _pairs(line, "kendall_tau")
    if taus:
        found = difference(taus, dict.fromkeys(taus, 0.0), larger_is_better=True)
        bars.hold(
            title, found.mean, _is_nothing(found), f"0 ({found.low:+.3f} … {found.high:+.3f})"
        )


def _chooses_at_random(bars: Bars, k: int, lines: Sequence[Mapping[str, Any]]) -> None:
    """Over all tables: where most configurations do not run, the regret of the first is 1 again
    and again until it is not, and one table alone cannot tell."""
    pairs = [
        Pair(line["table"], regret, _pairs(line, f"random_regret_at.{k}"))
        for line in lines
        if (regret := _pairs(line, f"regret_at.{k}"))
    ]
    if pairs:
        found = mean_difference(pairs, larger_is_better=True)
        bar = f"0 ({found.low:+.3f} … {found.high:+.3f})"
        title = f"nonsense's regret of {k} above random's, mean over tables"
        bars.hold(title, found.mean, _is_nothing(found), bar)


def _is_nothing(found: Difference) -> bool:
    return found.low <= 0 <= found.high or abs(found.mean) < NEAR_ZERO


def _pairs(line: Mapping[str, Any], figure: str) -> Values:
    return {
        (context, int(repeat)): value
        for context, repeats in line.get("values", {}).get(figure, {}).items()
        for repeat, value in repeats.items()
        if value is not None
    }


# ── whoever claims to be best ────────────────────────────────────────────────────────────────


def predict_values(lines: Lines, figure: str) -> dict[tuple[str, str, str], dict[str, Values]]:
    """(table, question, known) → predictor → figure by context and repeat."""
    found: dict[tuple[str, str, str], dict[str, Values]] = {}
    for line in lines.values():
        if line["kind"] == "predict" and line["who"] not in CHECKS:
            cell = (line["table"], line["question"], line.get("amount") or line["known"])
            if pairs := _pairs(line, figure):
                found.setdefault(cell, {})[line["who"]] = pairs
    return found


def loop_values(lines: Lines, mode: str, jobs: int) -> dict[str, dict[str, Values]]:
    """Table → optimizer → regret after so many jobs, by context and seed."""
    return _curves(lines, mode, lambda curve: curve[min(jobs, len(curve)) - 1])


def area_values(lines: Lines, mode: str) -> dict[str, dict[str, Values]]:
    """Table → optimizer → mean regret from the first job after the start to the last."""
    from benchmarks.yardsticks.comparison import area

    first = {"none": 16, "five": 6, "others": 1}[mode]
    return _curves(lines, mode, lambda curve: area(curve, first, max(len(curve), first)))


def _curves(lines: Lines, mode: str, of: Any) -> dict[str, dict[str, Values]]:
    found: dict[str, dict[str, dict[tuple[str, int], float]]] = {}
    for line in lines.values():
        if line["kind"] == "loop" and line["question"] == mode and "curves" in line:
            mine = found.setdefault(line["table"], {}).setdefault(line["who"], {})
            for context, curve in line["curves"].items():
                mine[context, line["seed"]] = of(curve)
    return {table: dict(who) for table, who in found.items()}


def against(
    cells: Mapping[Any, Mapping[str, Values]], ours: str, theirs: str, *, larger_is_better: bool
) -> tuple[Difference, dict[Any, Difference]] | None:
    """How far ours is ahead of theirs: on the mean over cells, and in each. None where they never
    met. Cells are keyed by table, or by a tuple that begins with it."""
    pairs, single = [], {}
    for cell, who in cells.items():
        if ours in who and theirs in who:
            table = cell if isinstance(cell, str) else cell[0]
            try:
                single[cell] = difference(who[ours], who[theirs], larger_is_better=larger_is_better)
            except ValueError:
                continue  # no context in common
            pairs.append(Pair(table, who[ours], who[theirs]))
    if not pairs:
        return None
    return mean_difference(pairs, larger_is_better=larger_is_better), single


def worse_beyond_luck(lines: Lines, name: str) -> tuple[list[str], int]:
    """Single comparisons, a cell with a peer by a figure, in which a predictor of tunerd's, or
    ``tunerd`` in closed loops, is significantly worse, luck among all of them counted; and how
    many there are."""
    singles: dict[str, Difference] = {}
    for title, cells, larger in _figures(lines, name):
        for peer, _, single in _met(cells, name, larger):
            singles |= {f"{peer}, {_named(cell)}: {title}": one for cell, one in single.items()}
    worse = found_worse(list(singles.values()))
    return [title for title, bad in zip(singles, worse, strict=True) if bad], len(singles)


def _best(bars: Bars, name: str, lines: Lines) -> None:
    for title, cells, larger in _figures(lines, name):
        for peer, mean, single in _met(cells, name, larger):
            bars.hold(
                f"{name} ahead of {peer}: {title}",
                mean.mean,
                mean.better,
                f"above 0 ({mean.low:+.4f} … {mean.high:+.4f})",
            )
            worse = [_named(cell) for cell, one in single.items() if one.worse]
            shown = f": {', '.join(worse)}" if worse else ""
            # No bar: one in forty by luck alone.
            bars.say(f"cells in which {peer} is ahead by 95 %: {title}{shown}", len(worse))
    beyond, count = worse_beyond_luck(lines, name)
    for one in beyond:
        bars.say(f"{name} significantly behind {one}", "")
    bars.hold(f"{name} significantly worse, of {count} comparisons", len(beyond), not beyond, "0")


def _figures(
    lines: Lines, name: str
) -> Iterator[tuple[str, Mapping[Any, Mapping[str, Values]], bool]]:
    """What ``name`` is compared by: title, cells, whether larger is better."""
    if name == "tunerd":
        for mode, jobs in REGRETS.items():
            for n in jobs:
                yield f"{mode}, regret after {n} jobs", loop_values(lines, mode, n), False
            yield f"{mode}, area", area_values(lines, mode), False
    else:
        for figure, larger in FIGURES.items():
            yield figure, predict_values(lines, figure), larger


def _met(
    cells: Mapping[Any, Mapping[str, Values]], name: str, larger: bool
) -> Iterator[tuple[str, Difference, dict[Any, Difference]]]:
    """Peers that were asked the same: how far ``name`` is ahead, on the mean and in each cell."""
    for peer in dict.fromkeys([*PREDICTORS, *OPTIMIZERS]):
        found = against(cells, name, peer, larger_is_better=larger)
        if found is not None:
            yield peer, *found


def _named(cell: Any) -> str:
    return cell if isinstance(cell, str) else " ".join(cell)
