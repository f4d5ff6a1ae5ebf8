"""``tunerd derive``: make a published recommendation again, and show that it is the same."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunerd.cli.options import (
    json_option,
    open_the_store,
    read_settings,
    settings_option,
    study_names,
    tell_json,
    unknown_study,
)
from tunerd.cli.progress import progress

if TYPE_CHECKING:
    from tunerd.stages.replay import How, ReplayResult
    from tunerd.store import ProvenanceRow, Store

__all__ = ["derive"]

DIFFERS = 1
"""Exit code where something is not the same."""
MOST_LISTED = 10


@click.command()
@click.argument("recommendation_id", required=False)
@settings_option
@click.option(
    "--study",
    metavar="STUDY",
    shell_complete=study_names,
    help="Instead of an id: what this study said last.",
)
@click.option(
    "--model",
    "how",
    type=click.Choice(["auto", "rebuilt", "kept"]),
    default="auto",
    show_default=True,
    help="Fit and teach the model again from history, or take it as its checkpoint has it; auto "
    "does the former unless it learned very often since its fit.",
)
@json_option
def derive(
    recommendation_id: str | None, file: Path | None, study: str | None, how: "How", as_json: bool
) -> int:
    """Make RECOMMENDATION_ID again from history, and show that it is the same bit for bit, or what
    differs and the likely reason.

    Exits with 0 where all is the same, with 1 where anything differs. Reads the store; a daemon
    need not run.
    """
    if (recommendation_id is None) == (study is None):
        raise click.UsageError("say a recommendation's id, or --study for what one said last")
    settings = read_settings(file)
    from tunerd.stages.replay import derive as derive_again

    with open_the_store(settings, upgrade=False) as store:
        wanted = recommendation_id or _latest(store, study or "")
        kept = store.derivation(wanted)
        if kept is None:
            raise click.UsageError(_unknown(store, wanted))
        with progress() as tell:
            derived = derive_again(store, kept, how, tell)
        stands = _stands(store, kept)
    if as_json:
        tell_json(_report(derived, stands))
    else:
        from tunerd.cli.derive_view import show

        show(derived, stands)
    return 0 if derived.same and not stands else DIFFERS


def _latest(store: "Store", study: str) -> str:
    """The id of what a study said last."""
    latest = store.derivable(study, limit=1)
    if not latest and store.study(study) is None:
        raise unknown_study(store, study)
    if not latest:
        raise click.UsageError(f"study {study} has said nothing yet")
    return latest[0][1]


def _unknown(store: "Store", wanted: str) -> str:
    """Why it cannot be derived, and what can."""
    if (issued := store.issued(wanted)) is not None:
        day = issued.said_at.date().isoformat()
        return f"{wanted} was issued on {day}; what it was made from is no longer kept"
    for study in store.studies():
        for row in store.recommendations(study.name):
            if wanted == row.recommendation_id or wanted in (row.proposal or ""):
                return (
                    f"what {wanted} was made from is not kept: it is too old, or was made by a "
                    "tunerd that kept nothing"
                )
    listed = store.derivable(limit=MOST_LISTED)
    latest = "".join(f"\n  {identifier}  {key}" for _, identifier, key in listed)
    return f"the store knows no recommendation {wanted}; the latest are:{latest or ' none yet'}"


def _stands(store: "Store", kept: "ProvenanceRow") -> list[dict[str, Any]]:
    """How what stands in the store under this id differs from what was said first: nothing but
    revision, times and state may."""
    import json

    from tunerd.stages.replay import differences

    row = store.recommendation(kept.study, kept.context_key)
    if row is None:
        return []
    messages = [json.loads(text) for text in (row.value, row.proposal) if text is not None]
    mine = [
        message
        for message in messages
        if message.get("recommendation_id") == kept.recommendation_id
    ]
    free = {"revision", "issued_at", "valid_until"}
    return [
        {"field": difference.field, "said": difference.said, "stands": difference.derived}
        for message in mine
        if message["state"] == "active"
        for difference in differences(kept.message, message)
        if difference.field not in free
    ]


def _report(derived: "ReplayResult", stands: list[dict[str, Any]]) -> dict[str, Any]:
    kept = derived.kept
    return {
        "schema": "tunerd.derivation/1",
        "recommendation_id": kept.recommendation_id,
        "study": kept.study,
        "context_key": kept.context_key,
        "generation": kept.generation,
        "sequence": kept.sequence,
        "said_at": kept.said_at.isoformat(),
        "same": derived.same and not stands,
        "checks": [
            {"what": difference.what, "same": difference.same, "text": difference.text}
            for difference in derived.checks
        ],
        "differences": [
            {"field": difference.field, "said": difference.said, "derived": difference.derived}
            for difference in derived.differences
        ],
        "stands": stands,
        "said": kept.message,
        "derived": derived.message,
    }
