"""``tunerd forecast``: what a study's signals will be, what is planned, and what came; and which
contexts come by themselves."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

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
    from tunerd.queries.forecasts import ContextToCome, ForecastHour, SignalPlan

__all__ = ["forecast"]

WIDTH = 40
"""Characters of the picture of a band."""


@click.command()
@study_argument()
@settings_option
@click.option(
    "--hours",
    type=click.IntRange(min=1),
    default=24,
    show_default=True,
    help="Hours of the horizon to show.",
)
@json_option
def forecast(study: str, file: Path | None, hours: int, as_json: bool) -> None:
    """Say what the signals of STUDY will be, which contexts that brings, and what came of the hours
    before. Say also which contexts without recent jobs are foreseen from the study's own jobs.

    Reads what the daemon planned last; it plans every hour, and at once where a signal surprises.
    """
    with open_the_store(read_settings(file), upgrade=False) as store:
        stored_study(store, study)
        from tunerd.queries.forecasts import study_forecast

        view = study_forecast(store, study, datetime.now(UTC))
    if as_json:
        import msgspec

        tell_json(msgspec.to_builtins(view, builtin_types=(datetime,)))
        return
    if view.made_at is None and view.contexts:
        _show_contexts(study, view.contexts)
        return
    if view.made_at is None:
        click.echo(
            f"{study} has no forecast: its context has no feature with a `signal`, no daemon has"
            " run since, or no point of the signal has come in. No context is foreseen by the"
            " study's own jobs either."
        )
        return
    click.echo(f"{study}, planned at {view.made_at:%Y-%m-%d %H:%M} UTC")
    for plan in view.signals:
        for signal in plan.by_signal():
            _show(signal, hours)
        if plan.others:
            names = ", ".join([plan.signal, *(other.signal for other in plan.others.values())])
            click.echo(f"  The plan stands on {names}, paired quantile by quantile.")
    if view.contexts:
        click.echo("")
        _show_contexts(study, view.contexts)


def _show_contexts(study: str, contexts: Sequence["ContextToCome"]) -> None:
    click.echo(f"{study}, contexts to come by the study's own jobs")
    for context in contexts:
        at = context.comes_at
        when = "at a time unknown" if at is None else f"{at:%a %Y-%m-%d %H:%M} UTC"
        chance = "" if context.probability is None else f"{context.probability:.0%}"
        name, state = context.key.partition("|")[2], context.recommended or "nothing yet"
        click.echo(f"  {when:24} {chance:>4}  {name}  {state}")


def _show(signal: "SignalPlan", hours: int) -> None:
    windows, past = signal.windows[:hours], signal.past[-hours:]
    best = sorted(signal.methods.items(), key=lambda share: -share[1])[:3]
    click.echo(f"\n{signal.signal}: by {', '.join(f'{n} {s:.0%}' for n, s in best)}")
    if signal.why:
        click.echo(f"  The plan is withdrawn: {signal.why}.")
    top = max((shown.high for shown in [*windows, *past]), default=0.0) or 1.0
    for window in past:
        came = window.came
        inside = came is not None and window.low <= came <= window.high
        verdict = "no points" if came is None else "inside" if inside else "outside"
        number = "" if came is None else f"{came:10.4g} "
        click.echo(f"  {_hour(window)} {_band(window, top, came)} {number}came, {verdict}")
    for window in windows:
        state = window.recommended or "nothing yet"
        click.echo(
            f"  {_hour(window)} {_band(window, top, None)} {window.median:10.4g}"
            f"  {window.key.partition('|')[2]} {window.contexts.get(window.key, 0):.0%}"
            f"  {state}"
        )


def _hour(window: "ForecastHour") -> str:
    return f"{datetime.fromtimestamp(window.start_s, UTC):%a %H:%M}"


def _band(window: "ForecastHour", top: float, came: float | None) -> str:
    """From the 10 to the 90 % quantile, with the middle, or with what came."""
    cells = [" "] * (WIDTH + 1)

    def place(value: float) -> int:
        return max(0, min(WIDTH, round(value / top * WIDTH)))

    for cell in range(place(window.low), place(window.high) + 1):
        cells[cell] = "─"
    cells[place(window.median)] = "│"
    if came is not None:
        cells[place(came)] = "●"
    return "".join(cells)
