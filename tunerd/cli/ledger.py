"""``tunerd ledger``: what following recommendations was worth."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tunerd.cli.options import (
    json_option,
    open_the_store,
    read_settings,
    settings_option,
    stored_study,
    study_argument,
    tell_json,
)

if TYPE_CHECKING:
    from tunerd.core.decisions.ledger import Ledger, LedgerContext
    from tunerd.core.study import Study

__all__ = ["ledger"]

DAYS = 30
SHOWN = 20
"""Contexts and introductions that a person is shown."""

_MEANS = {
    "followed": "ran what a recommendation offered",
    "changed": "carried a recommendation's id and ran something else",
    "ignored": "ran without one though there was one",
    "unasked": "there was nothing that they could have followed",
}


@click.command()
@study_argument()
@settings_option
@click.option(
    "--context", "given", multiple=True, metavar="NAME=VALUE", help="Only contexts that have these."
)
@click.option(
    "--since",
    metavar="DATE",
    help="Jobs that ended since then: 2026-11-20, or with a time and zone.  [default: 30 days ago]",
)
@json_option
def ledger(
    study: str, file: Path | None, given: tuple[str, ...], since: str | None, as_json: bool
) -> None:
    """Say of STUDY what jobs did with its recommendations, what was predicted of those and what
    came, the GPU-hours that following saved, and what trying cost.

    Reads the store; a daemon need not run.
    """
    from tunerd.cli.contexts import parse_context
    from tunerd.cli.report import instant
    from tunerd.core.decisions import ledger as core
    from tunerd.errors import MisconfiguredError, ValidationProblem
    from tunerd.queries.accounts import ledger_accounts
    from tunerd.report.gather import incomparable_until

    now = datetime.now(UTC)
    begin = now - timedelta(days=DAYS) if since is None else instant(since, now)
    settings = read_settings(file)
    with open_the_store(settings, upgrade=False) as store:
        parsed = stored_study(store, study)
        judged = store.predictions(study, since=begin)
        after = incomparable_until(store, parsed)
        try:
            states = store.context_parts(study, core.LedgerContext)
        except msgspec.ValidationError:
            problem = f"another version of tunerd learned {study}; `tunerd run` learns it anew"
            raise MisconfiguredError([ValidationProblem("store.url", problem)]) from None
    wanted = parse_context(parsed, given, partial=True)
    keys = {
        key
        for key, state in states.items()
        if not wanted or all(state.context.get(name) == value for name, value in wanted.items())
    }
    # Without a filter also jobs of contexts that the study knows no longer.
    meant = [job for job in judged if not wanted or job.context_key in keys]
    alike = [job for job in meant if job.sequence > after]
    made = core.ledger(parsed, alike, recommendations=as_json)
    if len(keys) < len(states):
        states = {key: state for key, state in states.items() if key in keys}
    if as_json:
        document = ledger_accounts(parsed, made, states, begin, len(meant) - len(alike))
        tell_json(document)
    else:
        _show(parsed, made, states, begin, len(meant) - len(alike))


def _show(
    study: "Study",
    made: "Ledger",
    states: Mapping[str, "LedgerContext"],
    since: datetime,
    incomparable: int,
) -> None:
    from tunerd.queries.accounts import incumbent_lead, introductions, lead_share
    from tunerd.report.formatting import plural

    total = made.study
    click.echo(f"{study.name} since {since:%Y-%m-%d %H:%M} UTC: {plural(total.jobs, 'job')}")
    if incomparable:
        click.echo(f"  {incomparable:,} earlier ones were judged by another objective: left out.")
    if not total.jobs:
        return
    for name, count in sorted(total.following.items()):
        click.echo(f"  {name:10} {count:>8,}  {_MEANS[name]}")
    if total.promises:
        click.echo(
            f"Candidates: predicted {total.promised:+.1%}, realised {total.realised:+.1%} over"
            f" {plural(total.promises, 'job')}; {total.did_not_run:,} more did not run."
        )
    if total.gpu_hours:
        click.echo(
            f"GPU-hours: {total.gpu_hours:,.0f} used; keeping to incumbents saved"
            f" {total.saved:,.0f}, trying cost {total.spent:,.0f}."
        )
    else:
        click.echo("GPU-hours: unknown, jobs come without started_at or gpus.")
    click.echo("")
    ranked = sorted(made.contexts.items(), key=lambda item: (-item[1].jobs, item[0]))
    for key, account in ranked[:SHOWN]:
        ahead = incumbent_lead(study, states.get(key))
        lead = "" if ahead is None else f", incumbent {ahead:+.1%} on the first one here"
        hours = f", {account.saved - account.spent:+,.0f} GPU-hours" if account.gpu_hours else ""
        click.echo(f"{key}: {plural(account.jobs, 'job')}{lead}{hours}")
    if len(ranked) > SHOWN:
        click.echo(f"… and {len(ranked) - SHOWN:,} contexts more (--json has all)")
    ended = introductions(states, since)
    if ended:
        click.echo("\nIntroductions, the latest first")
    for key, verdict in ended[:SHOWN]:
        gain = lead_share(study, verdict.gain)
        shown = "" if gain is None else f" {gain:+.1%}"
        click.echo(
            f"  {verdict.at[:16]:16} {verdict.outcome:10}{shown:>8} in {verdict.runs:>2} runs"
            f"  {verdict.candidate_id}  {key}"
        )
