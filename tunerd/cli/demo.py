"""``tunerd demo``."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunerd.cli.options import json_option, tell_json
from tunerd.cli.progress import left

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tunerd.lab.demo import DemoProgress, DemoResult, DemoRun

__all__ = ["demo"]


@click.command()
@click.option(
    "--study",
    type=click.Choice(["ads-fsdp", "llm-pretrain"]),
    default="ads-fsdp",
    show_default=True,
    help="Which of the shipped studies to tune.",
)
@click.option("--jobs", type=click.IntRange(10), default=300, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option(
    "--rate",
    type=click.FloatRange(0.1),
    default=4.0,
    show_default=True,
    help="Jobs that end per second.",
)
@click.option(
    "--stream",
    type=click.Choice(["jsonl", "kafka"]),
    default="jsonl",
    show_default=True,
    help="A folder of files, or a broker.",
)
@click.option(
    "--bootstrap", metavar="HOST:PORT", help="The broker.  [default for kafka: 127.0.0.1:9092]"
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="New folder for everything that it writes.  [default: tunerd-demo-TIME here]",
)
@json_option
def demo(
    study: str,
    jobs: int,
    seed: int,
    rate: float,
    stream: str,
    bootstrap: str | None,
    folder: Path | None,
    as_json: bool,
) -> int:
    """Tune a simulated cluster and show what was gained.

    Starts a daemon and a simulated cluster as separate processes over a real stream. Takes less
    than two minutes; everything that it wrote stays in a folder that it names.
    """
    if bootstrap is not None and stream != "kafka":
        raise click.UsageError("--bootstrap goes with --stream kafka")
    # The time of day names a folder for a person, on the wall clock of that person.
    where = folder or Path(f"tunerd-demo-{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    if where.exists():
        raise click.UsageError(f"--folder: {where} exists; name a new one")
    from rich.console import Console

    from tunerd.errors import DemoError
    from tunerd.lab.demo import DemoRun, plot

    broker = (bootstrap or "127.0.0.1:9092") if stream == "kafka" else None
    run = DemoRun(where.absolute(), study, jobs, seed, rate, broker)
    # For a program, standard output has the result alone.
    console = Console(stderr=as_json)
    try:
        result = _run_and_show(run, console)
    except DemoError as error:
        raise click.ClickException(str(error)) from None
    plot(result, result.folder / "demo.png")
    if as_json:
        tell_json(result.dump())
    else:
        _tell(result, console)
    return 0


COLUMNS = (
    ("gain", "of the best that repeats have confirmed over the baseline, measured without noise"),
    ("tau", "rank correlation (Kendall) of the last predictions with what came: 1 perfect, 0 none"),
    ("followed", "jobs that ran what tunerd advised"),
    ("failed", "jobs that did not run, out of memory as a rule; most of this space does not run"),
)
"""What the demo shows while jobs run."""


def _run_and_show(run: "DemoRun", console: "Console") -> "DemoResult":
    from rich.live import Live

    seconds = run.jobs / run.rate
    console.print(
        f"Tuning [bold]{run.study.name}[/bold] on a simulated cluster: {run.jobs} jobs, "
        f"{run.rate:g} a second, seed {run.seed}, in {_short(run.folder)}",
        soft_wrap=True,
    )
    for name, what in COLUMNS:
        console.print(f"  [bold]{name:9}[/bold] {what}", highlight=False, soft_wrap=True)
    took = left(seconds, 0.5).removeprefix(", ").removesuffix(" left")
    console.print(f"It takes {took}, and some seconds to start and to end.", highlight=False)
    if not console.is_terminal:
        return run.run(lambda progress: _print_now_and_then(progress, run, console))
    with Live(console=console, refresh_per_second=8) as live:
        return run.run(lambda progress: live.update(_table(progress, run)))


def _print_now_and_then(progress: "DemoProgress", run: "DemoRun", console: "Console") -> None:
    if progress.done % 40 == 0 and len(progress.curve) == progress.done:
        tau = "-" if progress.tau is None else f"{progress.tau:.2f}"
        rest = _left(progress, run)
        console.print(
            f"{progress.done:4} of {progress.jobs} jobs   gain {progress.gained:+.1%}   "
            f"tau {tau}   followed {progress.following}   failed {progress.failed}{rest}",
            highlight=False,
            soft_wrap=True,
        )


def _left(progress: "DemoProgress", run: "DemoRun") -> str:
    return left(progress.done / run.rate, progress.done / progress.jobs)


def _table(progress: "DemoProgress", run: "DemoRun") -> "Table":
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    unit = run.study.objective.unit
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", justify="right", min_width=18)
    table.add_column(min_width=44)
    bar = ProgressBar(total=progress.jobs, completed=progress.done, width=36)
    table.add_row("", bar)
    table.add_row("jobs done", f"{progress.done} of {progress.jobs}{_left(progress, run)}")
    table.add_row("baseline", f"{progress.baseline:,.6g} {unit}")
    table.add_row("best so far", f"{progress.best:,.6g} {unit}")
    table.add_row("gain", f"[bold green]{progress.gained:+.1%}[/bold green]")
    table.add_row("tau", "not yet" if progress.tau is None else f"{progress.tau:.2f}")
    table.add_row("followed", f"{progress.following}")
    lately = f"{progress.failed_lately} of the last {len(progress.failures)}"
    table.add_row("failed", f"{progress.failed}, {lately}")
    return table


def _tell(result: "DemoResult", console: "Console") -> None:
    from rich.table import Table

    from tunerd.lab.demo import LATELY, in_one_sentence

    table = Table(title=f"After {result.jobs} jobs ({result.seconds:.0f} s), without noise")
    table.add_column("")
    table.add_column(f"{result.metric} ({result.unit})", justify="right")
    table.add_column("tunerd against it", justify="right")
    table.add_column("failed", justify="right")
    of = f"of {result.jobs}"
    lately = f", last {LATELY}: {result.failed_lately}" if result.jobs > LATELY else ""
    sweep = f"{result.sweep_failed} of {result.sweep_jobs}"
    for name, value, gain, failed in (
        ("hand sweep", result.baseline, result.gain_over_baseline, sweep),
        ("random search", result.random, result.gain_over_random, f"{result.random_failed} {of}"),
        ("tunerd", result.tunerd, None, f"{result.failed} {of}{lately}"),
    ):
        against = "" if gain is None else f"{gain:+.1%}"
        table.add_row(name, f"{value:,.6g}", against, failed, style="" if against else "bold")
    console.print(table)
    folder = _short(result.folder)
    topic = folder / "stream" / "tunerd.recommendations.jsonl"
    console.print("Where to look next:", style="bold")
    for what, where in (
        ("the plot", folder / "demo.png"),
        ("what was recommended, and why", topic if (topic).exists() else folder / "daemon.log"),
        ("what the daemon did", folder / "daemon.log"),
        ("the study", folder / "studies" / f"{result.study}.toml"),
        ("the same for a person", f"tunerd status --settings {folder / 'tunerd.toml'}"),
    ):
        console.print(f"  {what:30} {where}", highlight=False, soft_wrap=True)
    console.print(f"\n{in_one_sentence(result)}", highlight=False)


def _short(path: Path) -> Path:
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
