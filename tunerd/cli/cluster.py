"""``tunerd cluster``: run a simulated cluster that sends events and follows advice."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # what these import costs a second, and ``tunerd --help`` must not pay for it
    from tunerd.client import JobReporter, Recommendations
    from tunerd.core.observation import Scalar
    from tunerd.core.study import Study
    from tunerd.lab.simulation.cluster import FinishedJob

__all__ = ["cluster"]


@click.command()
@click.argument("study_name", metavar="STUDY")
@click.option(
    "--stream-folder", type=click.Path(path_type=Path), help="Folder of the JSON-lines stream."
)
@click.option("--bootstrap", metavar="HOST:PORT", help="Kafka broker, instead of a folder.")
@click.option("--jobs-topic", default="tunerd.jobs", show_default=True)
@click.option("--recommendations-topic", default="tunerd.recommendations", show_default=True)
@click.option("--jobs", type=click.IntRange(1), default=250, show_default=True)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Jobs that run at once; feedback comes only when one of them ends.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--rate",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Most jobs that end per second of real time; 0 does not wait.",
)
@click.option(
    "--policy",
    type=click.Choice(["recommended", "baseline", "random"]),
    default="recommended",
    show_default=True,
)
@click.option(
    "--context",
    "contexts",
    multiple=True,
    metavar="NAME=VALUE,…",
    help="A whole context; several take turns. Default: those of the shipped study.",
)
@click.option(
    "--name",
    default="sim",
    show_default=True,
    help="Start of the job ids. A second cluster on one stream needs another.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON line per finished job, for programs."
)
def cluster(
    study_name: str,
    stream_folder: Path | None,
    bootstrap: str | None,
    jobs_topic: str,
    recommendations_topic: str,
    jobs: int,
    concurrency: int,
    seed: int,
    rate: float,
    policy: str,
    contexts: tuple[str, ...],
    name: str,
    as_json: bool,
) -> None:
    """Run a simulated cluster of STUDY: a study file, or ads-fsdp or llm-pretrain, which ship.

    It sends the events of its jobs and launches what tunerd recommends, by shares and wanted
    runs, as any scheduler would.
    """
    from tunerd.lab.simulation.cluster import POLICIES, SimulatedCluster
    from tunerd.lab.simulation.simulator import simulator_for

    study = _read_study(study_name)
    streams = (jobs_topic, recommendations_topic)
    reporter, recommendations = _connect(stream_folder, bootstrap, *streams, source=name)
    try:
        simulated = SimulatedCluster(
            simulator_for(study),
            _contexts(study, contexts),
            reporter,
            recommendations,
            policy=POLICIES[POLICIES.index(policy)],
            concurrency=concurrency,
            seed=seed,
            name=name,
            pace=_pace(rate),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        for finished in simulated.run(jobs):
            click.echo(json.dumps(finished.line()) if as_json else _for_people(finished))
    finally:
        recommendations.close()
        reporter.close()


def _read_study(name: str) -> "Study":
    from tunerd.core.expressions import suggestion
    from tunerd.core.study_file import parse_study
    from tunerd.core.toml import MOST_BYTES
    from tunerd.files import read_text
    from tunerd.lab.simulation.shipped import STUDIES, shipped_study

    if name in STUDIES:
        return parse_study(shipped_study(name), f"{name}.toml")
    try:
        text = read_text(Path(name), MOST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        hint = suggestion(name, STUDIES)
        raise click.UsageError(
            f"{name}: neither a readable study file ({error}) nor one of {', '.join(STUDIES)}{hint}"
        ) from None
    return parse_study(text, name)


def _contexts(study: "Study", given: tuple[str, ...]) -> "list[Mapping[str, Scalar]]":
    from tunerd.cli.contexts import parse_context
    from tunerd.lab.simulation.shipped import demo_contexts

    if given:
        return [parse_context(study, text.split(",")) for text in given]
    contexts = demo_contexts(study.name)
    if not contexts:
        raise click.UsageError(f"--context: study {study.name} does not ship, so name its contexts")
    return list(contexts)


def _connect(
    folder: Path | None, bootstrap: str | None, jobs: str, recommendations: str, source: str
) -> "tuple[JobReporter, Recommendations]":
    from tunerd.client import JobReporter, Recommendations

    if (folder is None) == (bootstrap is None):
        raise click.UsageError("say either --stream-folder or --bootstrap")
    if bootstrap is not None:
        follower = Recommendations.follow_kafka(bootstrap, recommendations)
        follower.catch_up()
        return JobReporter.kafka(bootstrap, jobs, source), follower
    assert folder is not None
    folder.mkdir(parents=True, exist_ok=True)
    follower = Recommendations.follow_jsonl(folder, recommendations)
    return JobReporter.jsonl(folder, jobs, source), follower


def _pace(rate: float) -> Callable[[], None]:
    """A function that returns at most ``rate`` times a second; 0 is as often as one likes."""
    due = time.monotonic()

    def wait() -> None:
        nonlocal due
        if rate:
            due = max(due + 1 / rate, time.monotonic())
            time.sleep(max(due - time.monotonic(), 0.0))

    return wait


def _for_people(finished: "FinishedJob") -> str:
    value = "-" if finished.objective is None else f"{finished.objective:,.6g}"
    return f"{finished.job_id}  {finished.status.value:14} {finished.kind:10} {value}"
