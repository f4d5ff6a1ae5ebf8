"""``tunerd approve`` and ``tunerd decline``: a person's yes or no to what a study in mode approve
proposes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tunerd.cli.command_submission import giving
from tunerd.cli.options import (
    json_option,
    settings_option,
    study_names,
    tell_json,
    why_option,
)

if TYPE_CHECKING:
    from tunerd.store import Store

__all__ = ["PendingProposal", "approve", "decline", "waiting"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class PendingProposal:
    """Something that waits for a person."""

    study: str
    context_key: str
    recommendation_id: str


def _which(command: F) -> F:
    """The arguments that both commands have."""
    for option in (
        click.option(
            "--study", metavar="STUDY", shell_complete=study_names, help="Only of this study."
        ),
        click.option("--all", "everything", is_flag=True, help="Everything that waits."),
        click.argument("recommendation_id", required=False),
    ):
        command = option(command)
    return command


@click.command()
@settings_option
@_which
@why_option
@json_option
def approve(**given: Any) -> int:
    """Publish one recommendation that waits, or --all of them; without either, list them."""
    return _answer("approve", **given)


@click.command()
@settings_option
@_which
@why_option
@json_option
def decline(**given: Any) -> int:
    """Turn down one recommendation that waits, or --all of them; without either, list them.

    The same advice is not proposed again; `tunerd forbid` keeps a configuration out for good.
    """
    return _answer("decline", **given)


def _answer(
    command: str,
    file: Path | None,
    recommendation_id: str | None,
    everything: bool,
    study: str | None,
    why: str,
    as_json: bool,
) -> int:
    if recommendation_id is not None and everything:
        raise click.UsageError("name one recommendation, or say --all, not both")
    with giving(file, why, as_json=as_json) as giver:
        if study is not None:
            giver.study(study)
        proposals = waiting(giver.store, study)
        if recommendation_id is None and not everything:
            if as_json:
                tell_json({"waiting": [asdict(proposal) for proposal in proposals]})
            else:
                _list(proposals)
            return 0
        giver.give(
            (
                proposal.study,
                command,
                {
                    "context_key": proposal.context_key,
                    "recommendation_id": proposal.recommendation_id,
                },
            )
            for proposal in _choose(proposals, recommendation_id)
        )
        return giver.follow()


def waiting(store: "Store", study: str | None) -> list[PendingProposal]:
    """What waits for approval, of one study or of all of them."""
    names = [study] if study is not None else [row.name for row in store.studies()]
    proposals = []
    for name in names:
        generation = store.generation(name)
        if generation is None or _mode(generation.text) != "approve":
            continue
        for row in store.recommendations(name):
            for state, text in row.standing("approve"):
                if state == "pending":
                    proposed_id = json.loads(text)["recommendation_id"]
                    proposals.append(PendingProposal(name, row.context_key, proposed_id))
    return proposals


def _choose(
    proposals: Sequence[PendingProposal], recommendation_id: str | None
) -> Sequence[PendingProposal]:
    if not proposals:
        raise click.UsageError("nothing waits for approval")
    if recommendation_id is None:
        return proposals
    chosen = [proposal for proposal in proposals if proposal.recommendation_id == recommendation_id]
    if not chosen:
        raise click.UsageError(
            f"{recommendation_id} does not wait for approval; `tunerd approve` lists what does "
            "(a newer proposal may have taken its place)"
        )
    return chosen


def _list(proposals: Sequence[PendingProposal]) -> None:
    if not proposals:
        click.echo("Nothing waits for approval.")
    for proposal in proposals:
        click.echo(f"{proposal.recommendation_id}  {proposal.context_key}")


def _mode(text: str) -> str:
    import tomllib

    mode: str = tomllib.loads(text).get("mode", "observe")
    return mode
