"""``tunerd demo``."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from tunerd.demo import Demo, Progress, Result

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
def demo(
    study: str,
    jobs: int,
    seed: int,
    rate: float,
    stream: str,
    bootstrap: str | None,
    folder: Path | None,
) -> int:
    """Tune a simulated cluster and show what was gained.

    Starts a daemon and a simulated cluster as separate processes over a real stream. Takes a
    minute or two; everything that it wrote stays in a folder that it names.
    """
    if bootstrap is not None and stream != "kafka":
        raise click.UsageError("--bootstrap goes with --stream kafka")
    # The time of day names a folder for a person, on the wall clock of that person.
    where = folder or Path(f"tunerd-demo-{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    if where.exists():
        raise click.UsageError(f"--folder: {where} exists; name a new one")
    from tunerd.demo import Demo, plot
    from tunerd.errors import DemoError

    broker = (bootstrap or "127.0.0.1:9092") if stream == "kafka" else None
    run = Demo(where.absolute(), study, jobs, seed, rate, broker)
    try:
        result = _run_and_show(run)
    except DemoError as error:
        raise click.ClickException(str(error)) from None
    plot(result, result.folder / "demo.png")
    _tell(result)
    return 0


def _run_and_show(run: "Demo") -> "Result":
    from rich.console import Console
    from rich.live import Live

    console = Console()
    console.print(
        f"Tuning [bold]{run.study.name}[/bold] on a simulated cluster: {run.jobs} jobs, "
        f"seed {run.seed}, in {run.folder}"
    )
    if not console.is_terminal:
        return run.run(_print_now_and_then)
    with Live(console=console, refresh_per_second=8) as live:
        return run.run(lambda progress: live.update(_table(progress, run)))


def _print_now_and_then(progress: "Progress") -> None:
    if progress.done % 40 == 0 and len(progress.curve) == progress.done:
        tau = "-" if progress.tau is None else f"{progress.tau:.2f}"
        click.echo(
            f"{progress.done:4} of {progress.jobs} jobs   gain {progress.gained:+.1%}   "
            f"tau {tau}   following {progress.following}   failed {progress.failed}"
        )


def _table(progress: "Progress", run: "Demo") -> "Table":
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    objective = run.study.objective
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", justify="right", min_width=18)
    table.add_column(min_width=44)
    bar = ProgressBar(total=progress.jobs, completed=progress.done, width=36)
    table.add_row("", bar)
    table.add_row("jobs done", f"{progress.done} of {progress.jobs}, {progress.failed} did not run")
    table.add_row("following advice", f"{progress.following}")
    table.add_row("baseline", f"{progress.baseline:,.6g} {objective.unit}")
    table.add_row("best so far", f"{progress.best:,.6g} {objective.unit}")
    table.add_row("gain", f"[bold green]{progress.gained:+.1%}[/bold green]")
    tau = "not yet" if progress.tau is None else f"{progress.tau:.2f}"
    table.add_row("rank correlation", f"{tau} (Kendall's tau of the last predictions)")
    return table


def _tell(result: "Result") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"After {result.jobs} jobs ({result.seconds:.0f} s), without noise")
    table.add_column("")
    table.add_column(f"{result.metric} ({result.unit})", justify="right")
    table.add_column("tunerd against it", justify="right")
    table.add_row(
        "baseline (hand sweep)", f"{result.baseline:,.6g}", f"{result.gain_over_baseline:+.1%}"
    )
    table.add_row("random search", f"{result.random:,.6g}", f"{result.gain_over_random:+.1%}")
    table.add_row("[bold]tunerd[/bold]", f"[bold]{result.tunerd:,.6g}[/bold]", "")
    console.print(table)
    folder = _short(result.folder)
    topic = folder / "stream" / "tunerd.recommendations.jsonl"
    console.print("Where to look next:", style="bold")
    for what, where in (
        ("the plot", folder / "demo.png"),
        ("what was recommended, and why", topic if (topic).exists() else folder / "daemon.log"),
        ("what the daemon did", folder / "daemon.log"),
        ("the study", folder / "studies" / f"{result.study}.toml"),
    ):
        console.print(f"  {what:30} {where}", highlight=False, soft_wrap=True)
    command = f"tunerd status --settings {folder / 'tunerd.toml'}"
    console.print(f"  {'the same for a person':30} {command}", highlight=False, soft_wrap=True)


def _short(path: Path) -> Path:
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
