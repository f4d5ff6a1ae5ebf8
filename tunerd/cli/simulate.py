"""``tunerd simulate``."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunerd.cli.historical_jobs import old_jobs
from tunerd.cli.options import (
    json_option,
    settings_option,
    study_argument,
)
from tunerd.cli.progress import Show, progress, track
from tunerd.errors import MisconfiguredError, ValidationProblem

if TYPE_CHECKING:
    from rich.console import Console

    from tunerd.lab.evaluation.closed_loop import BenchmarkPlan, Optimizer, RegretCurve
    from tunerd.lab.evaluation.loop_results import OptimizerResult, SimulationResult
    from tunerd.lab.evaluation.tabular import TabularBenchmark

__all__ = ["simulate"]

SHOWN = (1, 2, 3, 5, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300, 500, 1000)
"""Numbers of jobs in the table on the terminal."""

_file = click.Path(path_type=Path)


@click.command()
@study_argument()
@click.argument("files", type=_file, nargs=-1)
@click.option("--jobs", type=click.IntRange(1), default=60, show_default=True, help="In each loop.")
@click.option("--batch", type=click.IntRange(1), default=5, show_default=True, help="Side by side.")
@click.option(
    "--start",
    type=click.IntRange(0),
    default=15,
    show_default=True,
    help="Random jobs at the beginning; with 0 tunerd chooses from the first one on.",
)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="How many.")
@click.option("--searcher", help="Instead of the study's.")
@click.option("--predictor", help="Instead of the study's.")
@click.option(
    "--history",
    type=click.Choice(["none", "others"]),
    default="none",
    show_default=True,
    help="What is known beforehand: nothing, or the jobs of all other contexts.",
)
@click.option(
    "--unknown",
    metavar="FEATURE",
    help="With --history others: only of contexts that differ in this feature.",
)
@click.option(
    "--follow",
    type=click.Choice(["shares", "campaign"]),
    default="campaign",
    show_default=True,
    help="Jobs follow the shares of everyday recommendations, or the rounds of a campaign.",
)
@click.option(
    "--min-configs",
    type=click.IntRange(2),
    default=40,
    show_default=True,
    help="Configurations that a context needs to take part.",
)
@click.option("--mapping", type=_file, help="TOML file with what the columns mean, else [mapping].")
@json_option
@click.option(
    "--plots", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Regret curves"
)
@settings_option
def simulate(
    study: str,
    files: Sequence[Path],
    jobs: int,
    batch: int,
    start: int,
    seeds: int,
    searcher: str | None,
    predictor: str | None,
    history: str,
    unknown: str | None,
    follow: str,
    min_configs: int,
    mapping: Path | None,
    as_json: bool,
    plots: Path | None,
    file: Path | None,
) -> int:
    """Let tunerd tune on old jobs: how soon does it find what is fast?

    STUDY is a study file, FILES are tables of old jobs; without any, STUDY is the name of a study
    and the jobs are those in the store.

    In each context with enough configurations tunerd asks for jobs, through the daemon's own
    code, and each returns one of the measured rows of its configuration. Regret is how far the
    best found is from the best there is. See docs/simulate.md.
    """
    from rich.console import Console

    from tunerd.lab.evaluation.closed_loop import BenchmarkPlan
    from tunerd.lab.evaluation.loop_results import loops, simulation
    from tunerd.lab.evaluation.optimizers import RandomOptimizer, TunerdOptimizer
    from tunerd.lab.evaluation.tabular import measured

    if unknown is not None and history == "none":
        raise click.UsageError("--unknown leaves contexts out of --history others")
    console = Console(stderr=True)
    old = old_jobs(study, files, mapping, file)
    for line in old.warnings():
        console.print(line, highlight=False, markup=False)
    player = TunerdOptimizer(searcher, predictor, follow)  # type: ignore[arg-type]
    player.study(old.study)
    plan = BenchmarkPlan(jobs, batch, start, tuple(range(seeds)), history, unknown)  # type: ignore[arg-type]
    table = measured(old.study, old.observations, min_configs)
    _check_contexts(table, min_configs, old.source, console)
    with progress() as tell:
        own, random = (
            loops(optimizer.name, list(_played(table, optimizer, plan, tell)), start)
            for optimizer in (player, RandomOptimizer())
        )
    result = simulation(table, plan, player, own, random, source=old.source, unusable=old.unusable)
    if plots is not None:
        _plot(plots, result, own)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(result)))
    else:
        _show(result, own, Console())
    return 0


def _check_contexts(
    table: "TabularBenchmark", min_configs: int, source: str, console: "Console"
) -> None:
    """Say which jobs take no part.

    Raises:
        MisconfiguredError: no context is left.
    """
    for why, count in table.left_out.items():
        these = "1 job takes" if count == 1 else f"{count:,} jobs take"
        console.print(f"{these} no part: {why}", highlight=False, markup=False)
    if not table.contexts:
        problem = f"no context has {min_configs} configurations; the most is {table.largest}"
        problem += ", and --min-configs says how many it takes"
        raise MisconfiguredError([ValidationProblem(source, problem)])


def _played(
    table: "TabularBenchmark", player: "Optimizer", plan: "BenchmarkPlan", tell: Show
) -> Iterator["RegretCurve"]:
    """The curves, as they are told."""
    from tunerd.lab.evaluation.closed_loop import play_all

    total = len(table.contexts) * len(plan.seeds)
    yield from track(play_all(table, player, plan), player.name, total, tell)


def _plot(folder: Path, told: "SimulationResult", own: "OptimizerResult") -> None:
    from tunerd.lab.evaluation.loop_plots import plot_contexts, plot_means
    from tunerd.report.formatting import plural

    known = "nothing known" if told.history == "none" else "other contexts known"
    title = f"{told.study}: {plural(len(told.configurations), 'context')}, {known}"
    plot_means([own, told.random], title, told.start, folder / "regret.png")
    plot_contexts([own, told.random], title, told.start, folder / "regret_by_context.png")


def _show(told: "SimulationResult", own: "OptimizerResult", console: "Console") -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=_title(told), title_justify="left")
    table.add_column("jobs", justify="right")
    for curve in (own, told.random):
        table.add_column(f"regret, {curve.optimizer}", justify="right")
        table.add_column("95 %", justify="right", style="dim")
    for n in dict.fromkeys([*(n for n in SHOWN if n < told.jobs), told.jobs]):
        cells = []
        for curve in (own, told.random):
            low, high = curve.regret_band[str(n)]
            # A single loop has no spread: its band has no width, which would look like certainty.
            band = f"{low:.1%} to {high:.1%}" if len(curve.curves) > 1 else "–"
            cells += [f"{curve.mean_regret[str(n)]:.2%}", band]
        table.add_row(str(n), *cells)
    console.print(table)
    for curve in (own, told.random):
        near = curve.jobs_to_5_percent
        after = (
            f"more than {told.jobs} jobs"
            if near.median is None
            else f"{near.median:g} of {told.jobs} jobs"
        )
        line = f"{curve.optimizer}: within 5 % of the best after {after} (median)"
        console.print(f"{line}, {near.share_reached:.0%} of loops got there", highlight=False)
    if own.seconds_per_suggestion is not None:
        seconds = f"{own.seconds_per_suggestion:.3f} s per suggestion"
        if told.history != "none":
            seconds += f", {own.seconds_to_begin:.2f} s to learn what was known"
        console.print(seconds, highlight=False)


def _title(told: "SimulationResult") -> str:
    known = "from nothing" if told.history == "none" else "all other contexts known"
    if told.unknown is not None:
        known = f"contexts with another {told.unknown} known"
    from tunerd.report.formatting import plural

    contexts, seeds = plural(len(told.configurations), "context"), plural(len(told.seeds), "seed")
    start = f"{plural(told.start, 'random job')}, then {told.batch} a round"
    return f"{told.study}: {contexts}, {seeds}, {known}; {start}"
