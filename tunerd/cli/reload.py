"""``tunerd reload``: study files that were changed hold from now on."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import click

from tunerd.cli.options import (
    json_option,
    open_the_store,
    read_settings,
    settings_option,
    tell_json,
    who,
)
from tunerd.cli.progress import progress

if TYPE_CHECKING:
    from tunerd.core.study import Study
    from tunerd.store import Store

__all__ = ["reload"]

PATIENCE_S = 30.0
"""How long to wait for the daemon. It looks for new versions between two steps."""
LOOK_EVERY_S = 0.1


@click.command()
@settings_option
@json_option
def reload(file: Path | None, as_json: bool) -> None:
    """Take up study files that were changed: what they say holds from now on.

    SIGHUP makes the daemon do the same, and `tunerd check --diff` says beforehand what that would
    change. A file with a mistake changes nothing at all. Where no daemon runs, the next start
    begins with what was taken up. Settings are read at a start only.
    """
    from tunerd.settings.studies import load_studies, passed_over

    settings = read_settings(file, check_studies=True)
    studies = load_studies(settings.studies)
    for problem in passed_over(settings.studies):
        click.echo(f"Note: {problem}.", err=True)
    with open_the_store(settings, upgrade=False) as store:
        before = _epochs(store)
        outcomes = _publish(store, studies)
        named = {study.name for study in studies}
        without = sorted(row.name for row in store.studies() if row.name not in named)
        running = store.held()
        if running:
            _wait(store, before, [outcome for outcome in outcomes if outcome["outcome"] != "same"])
    if as_json:
        tell_json({"daemon": running, "studies": outcomes, "without_file": without})
        return
    for outcome in outcomes:
        _show(outcome)
    for name in without:
        click.echo(f"{name}: has no file in {settings.studies}; it goes on as it was")
        click.echo(f"  `tunerd end {name}` ends it")
    if not outcomes:
        click.echo(f"{settings.studies} has no study (*.toml).")
    elif not running:
        click.echo("No daemon runs: the next `tunerd run` begins with this.")


def _publish(store: "Store", studies: "Sequence[Study]") -> list[dict[str, Any]]:
    """Put them into the store, all or none; what became of each."""
    from tunerd.core.study_file import parse_study
    from tunerd.core.study_file.diff import differences

    now, by = datetime.now(UTC), f"reload by {who()}"
    outcomes = []
    for study in studies:
        old = store.generation(study.name)
        was = old and parse_study(old.text, f"{study.name}, generation {old.generation}")
        outcomes.append(
            {
                "study": study.name,
                "outcome": "new" if old is None else "changed",
                "mode": study.mode,
                "generation_before": old and old.generation,
                "changes": [asdict(outcome) for outcome in differences(was, study)] if was else [],
                "taken_up": None,
                "learning": None,
            }
        )
    with store.transaction() as tx:
        for outcome, study in zip(outcomes, studies, strict=True):
            published = tx.publish_generation(
                study.name, study.content_hash, study.text, by, now, force=True
            )
            outcome["generation"] = published.generation
            if published.outcome == "current":
                outcome["outcome"] = "same"
    return outcomes


def _epochs(store: "Store") -> dict[str, int]:
    """How often each study was loaded: loading takes its lease."""
    return {lease.name: lease.epoch for lease in store.leases()}


def _wait(store: "Store", before: Mapping[str, int], changed: Sequence[dict[str, Any]]) -> None:
    """Until the daemon has loaded what changed, has learned its jobs anew and has published what
    follows; for a while."""
    from tunerd.store import study_lease

    deadline = monotonic() + PATIENCE_S
    with progress() as show:
        while (rest := deadline - monotonic()) > 0:
            now = _epochs(store)
            steps = {step.study.name: step for step in store.overview()}
            for outcome in changed:
                lease, step = study_lease(outcome["study"]), steps[outcome["study"]]
                outcome["taken_up"] = now.get(lease, 0) > before.get(lease, 0)
                generation = step.last_step.generation if step.last_step else 0
                learned = outcome["taken_up"] and generation >= outcome["generation"]
                outcome["learning"] = 0 if learned else step.study.last_sequence
            if all(
                outcome["taken_up"] and not outcome["learning"] for outcome in changed
            ) and not any(depth.unsent for depth in store.outbox_depths().values()):
                return
            show("waiting for the daemon, at most", PATIENCE_S - rest, PATIENCE_S)
            sleep(LOOK_EVERY_S)


def _show(one: Mapping[str, Any]) -> None:
    name, generation = one["study"], one["generation"]
    if one["outcome"] == "same":
        click.echo(f"{name}: unchanged, generation {generation}, mode {one['mode']}")
        return
    was = "new" if one["outcome"] == "new" else f"was {one['generation_before']}"
    click.echo(f"{name}: generation {generation} ({was}), mode {one['mode']}")
    for change in one["changes"]:
        click.echo(f"  {change['where']}  {change['kind']}: {change['what']}")
    if one["taken_up"]:
        click.echo("  The daemon has taken it up.")
        if one["learning"]:
            click.echo(f"  It learns {one['learning']:,} jobs anew: `tunerd status {name}`.")
    elif one["taken_up"] is False:
        click.echo(f"  The daemon takes it up after its present step: `tunerd status {name}`.")
