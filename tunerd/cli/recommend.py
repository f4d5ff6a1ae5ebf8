"""``tunerd recommend``: what to launch in a context, whether or not a job ever ran there."""

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import click

from tunerd.cli.options import (
    FiniteRange,
    json_option,
    open_the_store,
    read_settings,
    settings_option,
    stored_study,
    study_argument,
    tell_json,
    who,
)
from tunerd.cli.progress import progress
from tunerd.core.study.context_key import MISSING

if TYPE_CHECKING:
    from tunerd.core.observation import Scalar
    from tunerd.core.request import RequestAnswer
    from tunerd.core.study import Study
    from tunerd.settings import Settings
    from tunerd.store import Store

__all__ = ["recommend"]

SOURCE = "tunerd recommend"
WAIT_S = 30.0
"""Longest wait for a daemon. It answers in a second or two, unless it is just starting."""
LOOK_EVERY_S = 0.05
NOTHING = 1
"""Exit code when there is nothing to say."""


@click.command()
@settings_option
@study_argument()
@click.option(
    "--context",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a context feature; every feature has to be named, 'NAME=~' (quoted: the shell "
    "makes your home folder of ~) for one that jobs come without.",
)
@click.option(
    "--wait",
    type=FiniteRange(min=0, min_open=True),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for the daemon's answer.",
)
@click.option(
    "--here",
    is_flag=True,
    help="Compute the answer here, even where a daemon runs: nobody publishes it, and nothing is "
    "kept.",
)
@click.option(
    "--at",
    metavar="TIME",
    help="A time to come, such as 2026-11-20T14:00:00Z: what comes from a signal is as the plan of "
    "`tunerd forecast` has it then, and need not be named.",
)
@json_option
def recommend(
    file: Path | None,
    study: str,
    context: tuple[str, ...],
    wait: float,
    here: bool,
    at: str | None,
    as_json: bool,
) -> int:
    """Say what to launch in a context of STUDY, whether or not a job ever ran there.

    Asks the daemon, which publishes its answer as the study's mode allows, and keeps the context
    up to date for 30 days. Where no daemon runs, the answer is computed here, and nobody publishes
    it. Exit code 1 when there is nothing to say.
    """
    settings = read_settings(file)
    with open_the_store(settings, upgrade=False) as store:
        parsed = stored_study(store, study)
        from tunerd.cli.contexts import parse_context

        foreseen: list[str] = []
        if at is not None:
            added, note = _foreseen(store, parsed, context, at)
            context, foreseen = (*context, *added), [note]
        values = parse_context(parsed, context)
        if store.held() and not here:
            answer = _ask(store, parsed, values, wait)
        else:
            answer = _compute(settings, store, parsed, values)
        answer["notes"] = [*foreseen, *_unlike(store, parsed, values), *answer["notes"]]
    if as_json:
        tell_json(answer)
    else:
        from tunerd.cli.recommend_view import show_recommendation

        show_recommendation(answer)
    return 0 if answer["recommendation"] else NOTHING


def _foreseen(
    store: "Store", study: "Study", context: tuple[str, ...], at: str
) -> tuple[list[str], str]:
    """What signals are planned to be at a time, each as NAME=VALUE, and a note on it.

    Raises:
        click.UsageError: there is no plan that reaches there.
    """
    from tunerd.core.study.context_texts import read_context

    kept = store.forecast_plan(study.name)
    if kept is None or not study.signals:
        raise click.UsageError(f"--at: {study.name} has no forecast; see `tunerd forecast`")
    missing = [f"{feature.name}={MISSING}" for feature in study.signals]
    named = read_context(study, (*context, *missing))
    if named.wrong:
        raise click.UsageError("--context: " + "\n  ".join(named.wrong))
    wanted = study.context_key(named.context)
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        raise click.UsageError(f"--at: {at!r} is no time such as 2026-11-20T14:00:00Z") from None
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    for plan in kept[1]["signals"]:
        if study.context_key(plan["context"]) != wanted or plan["state"] != "active":
            continue
        for window in plan["windows"]:
            values = _planned(study, window["key"])
            if window["start_s"] <= seconds < window["end_s"] and values:
                hour = f"{datetime.fromtimestamp(window['start_s'], UTC):%Y-%m-%d %H:%M}"
                bands = {
                    study.signals[0].name: (window["low"], window["high"]),
                    **{name: band[::2] for name, band in window.get("others", {}).items()},
                }
                texts = [f"{n} from {b[0]:.6g} to {b[1]:.6g} with 80 %" for n, b in bands.items()]
                return values, f"foreseen for {hour} UTC: {', '.join(texts)}"
    raise click.UsageError(
        f"--at: no plan of this context reaches {at}, or it is withdrawn; name every other feature"
        " with --context, and see `tunerd forecast`"
    )


def _planned(study: "Study", key: str) -> list[str]:
    """What signals are in the context of a key, each as NAME=VALUE; empty where one is missing."""
    from tunerd.core.forecasting.plan import bucket_value
    from tunerd.core.study.context_key import BucketKey

    values = []
    for feature in study.signals:
        edge = _parts(key).get(feature.name, MISSING)
        if edge == MISSING:
            return []
        factor = feature.key.factor if isinstance(feature.key, BucketKey) else 1.0
        values.append(f"{feature.name}={bucket_value(feature, float(edge) * factor**0.5)!r}")
    return values


# -- asking the daemon ----------------------------------------------------------------------


def _ask(
    store: "Store", study: "Study", context: "Mapping[str, Scalar]", wait_s: float
) -> dict[str, Any]:
    """Put a request into the store, as one from the topic, and wait for its answer.

    Raises:
        TunerdError: none came in time.
    """
    from tunerd.core.request import AdviceRequest
    from tunerd.errors import TunerdError

    now = datetime.now(UTC)
    request = AdviceRequest(
        study=study.name,
        source=SOURCE,
        event_id=uuid.uuid4().hex,
        context=context,
        requested_at=now,
        user=who(),
    )
    with store.transaction() as tx:
        (number,) = tx.add_requests([request], now).fresh
    began = monotonic()
    with progress() as show:
        while (now_s := monotonic() - began) <= wait_s:
            row = store.request(number)
            if row is not None and row.answer is not None:
                return _answered(store, study, context, row.answer)
            show("waiting for the daemon, at most", now_s, wait_s)
            sleep(LOOK_EVERY_S)
    raise TunerdError(
        f"no answer within {wait_s:g} s; the request stays and will be answered. A daemon "
        "holds the store, but it may run without the stage tune, be busy starting, or have "
        f"set {study.name} aside: `tunerd status {study.name}` says more"
    )


def _answered(
    store: "Store", study: "Study", context: "Mapping[str, Scalar]", answer: "RequestAnswer"
) -> dict[str, Any]:
    value = None
    if answer.outcome.value != "nothing":
        row = store.recommendation(study.name, answer.context_key)
        assert row is not None
        proposal = answer.outcome.value in ("observed", "pending")
        value = json.loads((row.proposal or row.value) if proposal else row.value)
    return _told(study, context, answer.context_key, answer.outcome.value, answer.reason, value)


# -- computing it here ----------------------------------------------------------------------


def _compute(
    settings: "Settings", store: "Store", study: "Study", context: "Mapping[str, Scalar]"
) -> dict[str, Any]:
    """Answer from what the store has, and change nothing in it."""
    from concurrent.futures import ThreadPoolExecutor

    from tunerd.errors import NothingFeasibleError
    from tunerd.events import to_bytes
    from tunerd.stages.loading import open_books
    from tunerd.stages.request_answers import compute_answer

    with ThreadPoolExecutor(1) as background:
        books = open_books(store, study.name, 0, background, "", settings.tune, _quiet)
        if books.ended:
            key = study.context_key(context)
            return _told(study, context, key, "nothing", "The study has ended.", None)
        now = datetime.now(UTC)
        try:
            message, reason = compute_answer(books, store, context, now)
        except NothingFeasibleError as error:
            message, reason = None, str(error)
    value = None if message is None else json.loads(to_bytes(message))
    key = study.context_key(context)
    outcome = "computed" if value else "nothing"
    answer = _told(study, context, key, outcome, reason, value)
    why = "" if store.held() else "no daemon runs: "
    answer["notes"].append(f"{why}computed here from the store; nobody publishes it")
    return answer


def _quiet() -> None: ...


# -- what is told ---------------------------------------------------------------------------


def _told(
    study: "Study",
    context: "Mapping[str, Scalar]",
    key: str,
    outcome: str,
    reason: str,
    said: Mapping[str, Any] | None,
) -> dict[str, Any]:
    notes = []
    if outcome == "pending":
        notes.append(f"waits for approval: `tunerd approve {(said or {})['recommendation_id']}`")
    if outcome == "observed":
        notes.append(f"the study only observes (mode = {study.mode}): nothing is published")
    return {
        "study": study.name,
        "context": dict(context),
        "context_key": key,
        "outcome": outcome,
        "reason": reason,
        "unit": study.objective.unit,
        "notes": notes,
        "recommendation": said,
    }


def _unlike(store: "Store", study: "Study", context: "Mapping[str, Scalar]") -> list[str]:
    """In what the context differs from every context that jobs ran in, as their keys tell it."""
    known = [_parts(key) for key in store.last_jobs(study.name)]
    asked = _parts(study.context_key(context))
    differing = []
    for feature in study.context:
        name = feature.name
        value = asked.get(name, MISSING)
        values = {
            known_context[name]
            for known_context in known
            if known_context.get(name, MISSING) != MISSING
        }
        if value == MISSING or not values or value in values:
            continue
        if feature.type in ("category", "bool"):
            some = ", ".join(sorted(map(unquote, values))[:8]) + (", …" if len(values) > 8 else "")
            differing.append(f"no job ran with {name} = {unquote(value)}; jobs had {some}")
        elif not min(map(float, values)) <= float(value) <= max(map(float, values)):
            ends = f"{min(values, key=float)} to {max(values, key=float)}"
            differing.append(f"no job ran as far out as {name} = {value}; jobs had {ends}")
    return differing


def _parts(key: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in key.split("|")[1:])}
