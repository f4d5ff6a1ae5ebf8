"""``tunerd check --diff``: what a new version of a study would change, before it does."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunerd.cli.options import open_the_store, read_settings
from tunerd.core.study.context_key import written_config
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.report.formatting import plural

if TYPE_CHECKING:
    from tunerd.core.study import Study
    from tunerd.store import Store

__all__ = ["compare", "show"]

LISTED = 10
"""Lines of a kind shown to a person; the rest is counted. --json has them all."""


def compare(
    file: Path | None, studies: "Sequence[Study]", against: Path | None
) -> list[dict[str, Any]]:
    """What each of these studies would change.

    Raises:
        MisconfiguredError: there is nothing to compare with.
    """
    settings = read_settings(file)
    if against is None:
        with open_the_store(settings, upgrade=False) as store:
            return [_against_store(store, study) for study in studies]
    from tunerd.settings.studies import read_study

    old, (new,) = read_study(against), studies
    if old.name != new.name:
        raise MisconfiguredError(
            [
                ValidationProblem(
                    f"{against}: name", f"is {old.name!r}, not {new.name!r}: another study"
                )
            ]
        )
    try:
        with open_the_store(settings, upgrade=False) as store:
            return [_told(store, old, new, str(against))]
    except MisconfiguredError:  # nothing is installed here: compare the files alone
        return [_told(None, old, new, str(against))]


def _against_store(store: "Store", new: "Study") -> dict[str, Any]:
    from tunerd.core.study_file import parse_study

    generation = store.generation(new.name)
    if generation is None:
        return {"against": None, "new_generation": True, "changes": [], "history": None}
    name = f"generation {generation.generation}"
    return _told(store, parse_study(generation.text, f"{new.name}, {name}"), new, name)


def _told(store: "Store | None", old: "Study", new: "Study", against: str) -> dict[str, Any]:
    from dataclasses import asdict

    from tunerd.core.study_file.diff import differences

    changes = [asdict(change) for change in differences(old, new)]
    is_new = old.content_hash != new.content_hash
    history = None
    if store is not None and store.study(new.name) is not None and is_new:
        from tunerd.stages.preview import preview

        history = preview(store, old, new).dump()
    return {"against": against, "new_generation": is_new, "changes": changes, "history": history}


def show(told: Mapping[str, Any]) -> None:
    """Print it for a person."""
    if told["against"] is None:
        click.echo("  not installed yet: everything is new")
        return
    if not told["new_generation"]:
        click.echo(f"  says what {told['against']} says: nothing changes")
        return
    click.echo(f"  beside {told['against']}:")
    for change in told["changes"]:
        click.echo(f"    {change['where']}  {change['kind']}: {change['what']}")
    if not told["changes"]:
        click.echo("    only the order of entries, or how they are written")
    if (history := told["history"]) is not None:
        for line in _history(history):
            click.echo(f"  {line}")


def _history(history: Mapping[str, Any]) -> list[str]:
    jobs = history["jobs"]
    lines = [
        f"history: {jobs:,} jobs, all learned anew; the configuration of "
        f"{history['known_after']:,} lies in the space, of {history['known_before']:,} does now"
    ]
    lines += _listed([f"{plural(n, 'job')} lost: {why}" for why, n in history["lost"].items()])
    lines += _listed([f"{plural(n, 'job')} {what}" for what, n in history["jobs_change"].items()])
    for name, what in (("keys_vanish", "vanish"), ("keys_appear", "appear")):
        keys = history[name]
        lines.append(f"context keys that {what}: {len(keys) or 'none'}")
        lines += _listed([f"{key}, {plural(n, 'job')}" for key, n in keys.items()])
    recommendations = history["recommendations"]
    gone = [entry for entry in recommendations if entry["becomes"] == "withdrawn"]
    other = [entry for entry in recommendations if entry["becomes"] == "replaced"]
    lines.append(
        f"recommendations: {len(recommendations)} active, {len(gone)} would be withdrawn, "
        f"{len(other)} replaced because of what they say"
    )
    lines += _listed(
        [f"{entry['becomes']} {entry['context_key']}: {entry['why']}" for entry in gone + other]
    )
    lost = history["incumbents"]
    lines.append(
        f"incumbents: {history['incumbents_stay']} stay, "
        f"{sum(entry['becomes'] == 'falls out' for entry in lost)} fall out, "
        f"{sum(entry['becomes'] == 'changes' for entry in lost)} change"
    )
    lines += _listed(
        [
            f"{entry['becomes']} in {entry['context_key']}: {entry['why']} "
            f"({written_config(entry['config'])}, {plural(entry['jobs'], 'job')})"
            for entry in lost
        ]
    )
    if history["orders"]:
        lines.append("orders that would do nothing:")
        lines += _listed(
            [f"{entry['number']}, {entry['what']}: {entry['why']}" for entry in history["orders"]]
        )
    return lines


def _listed(lines: Sequence[str]) -> list[str]:
    more = len(lines) - LISTED
    shown = [f"  {line}" for line in lines[:LISTED]]
    return [*shown, f"  and {more} more (--json has all)"] if more > 0 else shown
