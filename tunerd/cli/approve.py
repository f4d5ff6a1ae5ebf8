"""``tunerd approve``: a person says yes to what a study in mode approve proposes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunerd.cli.options import (
    next_step,
    open_the_store,
    read_settings,
    settings_option,
    who,
    why_option,
)

if TYPE_CHECKING:
    from tunerd.store import Store

__all__ = ["approve"]


@dataclass(frozen=True)
class _Proposal:
    study: str
    context_key: str
    recommendation_id: str


@click.command()
@settings_option
@click.argument("recommendation_id", required=False)
@click.option("--all", "everything", is_flag=True, help="Everything that waits for approval.")
@click.option("--study", metavar="STUDY", help="Only of this study.")
@why_option
def approve(
    file: Path | None, recommendation_id: str | None, everything: bool, study: str | None, why: str
) -> None:
    """Approve one recommendation, or --all that wait; without either, list them."""
    if recommendation_id is not None and everything:
        raise click.UsageError("name one recommendation, or say --all, not both")
    settings = read_settings(file)
    with open_the_store(settings, upgrade=False) as store:
        if study is not None and store.study(study) is None:
            raise click.UsageError(f"the store knows no study {study}")
        waiting = _waiting(store, study)
        if recommendation_id is None and not everything:
            _list(waiting)
            return
        chosen = _choose(waiting, recommendation_id)
        now = datetime.now(UTC)
        with store.transaction() as tx:
            for proposal in chosen:
                number = tx.add_command(
                    proposal.study,
                    "approve",
                    {
                        "context_key": proposal.context_key,
                        "recommendation_id": proposal.recommendation_id,
                    },
                    who=who(),
                    why=why,
                    now=now,
                )
                click.echo(f"Command {number}: approve {proposal.recommendation_id}")
    for name in dict.fromkeys(proposal.study for proposal in chosen):
        click.echo(next_step(settings, name))


def _waiting(store: "Store", study: str | None) -> list[_Proposal]:
    names = [study] if study is not None else [row.name for row in store.studies()]
    found = []
    for name in names:
        for row in store.recommendations(name):
            proposed = row.proposal or (row.value if row.state == "pending" else None)
            if proposed is not None:
                proposed_id = json.loads(proposed)["recommendation_id"]
                found.append(_Proposal(name, row.context_key, proposed_id))
    return found


def _choose(waiting: Sequence[_Proposal], recommendation_id: str | None) -> Sequence[_Proposal]:
    if not waiting:
        raise click.UsageError("nothing waits for approval")
    if recommendation_id is None:
        return waiting
    chosen = [one for one in waiting if one.recommendation_id == recommendation_id]
    if not chosen:
        raise click.UsageError(
            f"{recommendation_id} does not wait for approval; `tunerd approve` lists what does "
            "(a newer proposal may have taken its place)"
        )
    return chosen


def _list(waiting: Sequence[_Proposal]) -> None:
    if not waiting:
        click.echo("Nothing waits for approval.")
    for proposal in waiting:
        click.echo(f"{proposal.recommendation_id}  {proposal.context_key}")
