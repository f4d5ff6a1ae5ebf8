"""``tunerd models``: the versions of a study's model, and going back to one."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunerd.cli.command_submission import giving
from tunerd.cli.options import (
    json_option,
    open_the_store,
    read_settings,
    settings_option,
    stored_study,
    study_argument,
    tell_json,
    unknown_study,
    why_option,
)

if TYPE_CHECKING:
    from tunerd.store import ModelVersion, Store

__all__ = ["models"]

LATEST = 20
SHORTEST = 6
"""Digits of a checkpoint's name that are enough to mean it."""


@click.command()
@settings_option
@study_argument()
@click.option(
    "--back",
    metavar="VERSION",
    help="Let this version serve, by its number or its checkpoint's name, until --latest.",
)
@click.option("--latest", is_flag=True, help="Let the latest model serve again, and be replaced.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=LATEST,
    show_default=True,
    help="List only so many latest versions.",
)
@why_option
@json_option
def models(
    file: Path | None,
    study: str,
    back: str | None,
    latest: bool,
    limit: int,
    why: str,
    as_json: bool,
) -> int:
    """List the versions of STUDY's model: when and why each was built, how it did on the jobs
    before it took over beside the one that served, and which one serves. Or go back to one.

    A rebuilt model takes over when it was at least as good on the jobs since its rebuild began.
    """
    if back is not None and latest:
        raise click.UsageError("say --back VERSION or --latest, not both")
    if back is not None or latest:
        return _give(file, study, back, why, as_json=as_json)
    settings = read_settings(file)
    with open_the_store(settings, upgrade=False) as store:
        if store.study(study) is None:
            raise unknown_study(store, study)
        document = _told(store, study)
    document["versions"] = document["versions"][:limit]
    if as_json:
        tell_json(document)
    else:
        from tunerd.cli.models_view import show_models

        show_models(document)
    return 0


def _give(file: Path | None, study: str, back: str | None, why: str, *, as_json: bool) -> int:
    with giving(file, why, as_json=as_json) as giver:
        giver.study(study)
        if back is None:
            giver.give([(study, "latest", {})])
        else:
            chosen = _choose(_told(giver.store, study)["versions"], study, back)
            giver.give([(study, "back", {"version": chosen})])
        return giver.follow()


def _told(store: "Store", study: str) -> dict[str, Any]:
    """Everything about a study's versions, newest first, for a person or a program."""
    from tunerd.store import serving

    row, saved = store.study(study), store.study_state(study)
    assert row is not None
    training = saved.state.get("tuner", {}).get("training", {}) if saved else {}
    kept = {checkpoint.name for checkpoint in store.checkpoints(study)}
    models = store.models(study)
    serves = serving(models)
    rebuild = training.get("rebuild")
    return {
        "study": study,
        "generation": row.generation,
        "jobs": row.last_sequence,
        "objective": _objective(store, study),
        "serves": None if serves is None else serves.version,
        "pinned": bool(training.get("pinned")),
        "rebuild": None
        if rebuild is None
        else {key: rebuild[key] for key in ("why", "started_at", "decide_at")},
        "versions": [
            asdict(model)
            | {
                "serves": model is serves,
                "kept": model.checkpoint in kept and model.generation == row.generation,
                "command": _command(store, model),
            }
            for model in models
        ],
    }


def _objective(store: "Store", study: str) -> dict[str, str]:
    objective = stored_study(store, study).objective
    return {"metric": objective.metric, "scale": objective.scale, "unit": objective.unit}


def _command(store: "Store", version: "ModelVersion") -> dict[str, Any] | None:
    """Who said so, where somebody did."""
    number = version.detail.get("command")
    command = None if number is None else store.command(number)
    if command is None:
        return None
    return {"id": command.id, "who": command.who, "why": command.why, "at": command.at}


def _choose(versions: Sequence[dict[str, Any]], study: str, wanted: str) -> int:
    """The number of the version that somebody means.

    Raises:
        click.UsageError: none or several are meant, or it cannot be gone back to.
    """
    digits = wanted.removeprefix("sha256:")
    if wanted.isdecimal() and len(wanted) < SHORTEST:
        meant = [version for version in versions if version["version"] == int(wanted)]
    else:
        if len(digits) < SHORTEST:
            raise click.UsageError(
                f"--back: {wanted!r} is no number; of a checkpoint's name say at least "
                f"{SHORTEST} digits"
            )
        names = [
            (version, (version["checkpoint"] or "").removeprefix("sha256:")) for version in versions
        ]
        meant = [version for version, name in names if name.startswith(digits)]
    can = ", ".join(str(version["version"]) for version in versions if version["kept"]) or "none"
    if not meant:
        raise click.UsageError(f"--back: {study} has no version {wanted}; it can go back to: {can}")
    if len({version["version"] for version in meant}) > 1:
        several = ", ".join(str(version["version"]) for version in meant)
        raise click.UsageError(f"--back: {wanted} means several versions: {several}; say which")
    (chosen,) = meant[:1]
    if not chosen["took_over"]:
        why = (
            "could not be built"
            if "failed" in chosen["detail"]
            else "was turned down: it predicted worse than the one that served, and is not kept"
        )
        raise click.UsageError(
            f"--back: version {chosen['version']} {why}; {study} can go back to: {can}"
        )
    if not chosen["kept"]:
        why = "is kept no longer" if chosen["checkpoint"] else "served within one step only"
        raise click.UsageError(
            f"--back: version {chosen['version']} {why}; {study} can go back to: {can} "
            "(tune.keep_models says how many are kept; a new version of the study's file begins "
            "anew)"
        )
    version: int = chosen["version"]
    return version
