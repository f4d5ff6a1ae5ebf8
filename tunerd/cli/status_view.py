"""The tables of ``tunerd status`` for a person."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tunerd.core.study.context_key import written_config
from tunerd.report.formatting import gain_text, number, plural

__all__ = ["show", "show_commands"]


OTHER = "_other"
"""What metrics call parameters that a study does not know."""
MOST_PLACES = 5
"""Entries of a changed study file that are named."""
MOST_GIVEN_UP = 3
"""Configurations given up after a change that are shown, the latest."""
STAGES = ("ingest", "requests", "tune", "publish")


def show(report: Mapping[str, Any], console: Console | None = None) -> None:
    """Print a status report."""
    now = datetime.now(UTC)
    parts: list[RenderableType] = [*_head(report, now)]
    if report["studies"]:
        parts += [_study(study, now) for study in report["studies"]]
    else:
        parts.append(Text("No studies yet: `tunerd run` takes them from the folder of studies."))
    if report["commands"]:
        parts.append(_commands(report["commands"], now))
    if report.get("recommendations"):
        rows, learned = report["recommendations"], report["studies"][0]["learned"]
        parts.append(_recommendations(rows, learned, now))
        if more := report["left_out"]:
            name = report["studies"][0]["name"]
            parts.append(
                Text(
                    f"and {plural(more, 'more context')}: "
                    f"`tunerd status {name} --all` shows them, --json has all."
                )
            )
    console = console or Console()
    if not console.is_terminal:
        console = Console(width=200)  # a file or a pipe has no edge to wrap at
    console.print(Group(*parts), crop=False)


def _role(role: Mapping[str, Any]) -> str:
    """What this one of several instances does."""
    held = [f"{len(role['studies'])} studies", f"partitions {','.join(role['partitions']) or '-'}"]
    if role["publishes"]:
        held.append("publishes")
    others = len(role["others"])
    return f"{role['instance']}: {', '.join(held)}; {others} other instances (`tunerd instances`)"


def _head(report: Mapping[str, Any], now: datetime) -> Iterator[RenderableType]:
    """What is wrong is wrapped, so that all of it is read. The other lines are left to the
    terminal to wrap: a URL of the store can be copied then."""
    daemon = report["daemon"]
    text = Text(no_wrap=True, overflow="ignore")
    text.append(f"{report['name']}  ", style="bold")
    if daemon["running"] is None:
        text.append("cannot tell whether the daemon runs", style="yellow")
    elif not daemon["running"]:
        text.append("the daemon is not running", style="red")
        text.append(f" (nothing of tunerd answers on {daemon['url']})")
    elif daemon["ready"]:
        text.append("running, ready", style="green")
    else:
        text.append("running, not ready", style="red")
    yield text
    for problem in (*daemon["problems"], *daemon["remarks"]):
        yield Padding.indent(Text(problem, overflow="fold"), 2)
    text = Text(no_wrap=True, overflow="ignore")
    running = report["stages"]
    if running and (absent := [stage for stage in STAGES if stage not in running]):
        text.append(f"stages   {', '.join(running)}; {' and '.join(absent)} ", "yellow")
        text.append(f"{_do(absent)} not run: the daemon was started with --stages\n", "yellow")
    if role := daemon.get("role"):
        text.append(f"role     {_role(role)}\n")
    lag = report["lag_records"]
    text.append(f"stream   {report['stream']}")
    text.append(f", {lag:,.0f} records not ingested yet\n" if lag is not None else "\n")
    if rejected := report["rejected_records"]:
        where = report["rejected_topic"]
        text.append(f"rejected {rejected:,.0f} since the start: {where} says why\n", "yellow")
    if line := _attempts(report["attempts"]):
        text.append(f"halves   {line}\n", "yellow" if report["attempts"]["incomplete"] else "")
    if lost := report["unsendable_messages"]:
        text.append(f"lost     {lost:,.0f} messages since the start: the log says why\n", "red")
    text.append(f"store    {report['store']}\n")
    waiting = [
        f"{kind}: {depth['unsent']} since {_ago(depth['oldest_at'], now)}"
        for kind, depth in report["outbox"].items()
    ]
    text.append(f"outbox   {', '.join(waiting) or 'empty'}")
    for line in _files(report["study_files"]):
        text.append("\nstudies  ")
        text.append(line, "yellow")
    yield text


def _attempts(counts: Mapping[str, Any]) -> str:
    """How many attempts wait for halves; empty where none does."""
    parts = []
    if waiting := counts["waiting"]:
        parts.append(f"{plural(waiting, 'attempt')} of jobs not joined yet")
    if incomplete := counts["incomplete"]:
        days = f"{counts['wait_days']:g} days"
        parts.append(f"{incomplete:,} incomplete, no half for {days}: `tunerd attempts` lists them")
    return "; ".join(parts)


def _study(study: Mapping[str, Any], now: datetime) -> Text:
    """A few lines rather than a row: names are long and terminals narrow."""
    text = Text(f"\n{study['name']}", style="bold")
    if study["set_aside"]:
        text.append("  set aside: not tuned any more, the log says why", style="not bold red")
    if study["ended"]:
        text.append("  ended: nothing more is recommended", style="not bold yellow")
    unlearned = study["observations"] - study["learned"]
    jobs = f"{study['observations']:,} in {plural(study['contexts'], 'context')}"
    for name, value in (
        ("mode", f"{study['mode']}, generation {study['generation']}"),
        ("jobs", jobs + (f", {unlearned:,} not learned yet" if unlearned else "")),
        ("last step", _ago(study["last_step_at"], now)),
        ("predicts", _quality(study)),
        ("advice", _states(study["recommendations"])),
    ):
        text.append(f"\n  {name:<10}{value}", style="not bold")
    if pruned := study["pruned"]:
        kept = f"{pruned['jobs']:,} of them, the last {_ago(pruned['pruned_at'], now)}"
        text.append(f"\n  {'pruned':<10}{kept}", style="not bold")
    _append(text, "file", _file(study["file"], study["name"]))
    _append(text, "unusable", _unusable(study["unusable"]))
    if waits := study["quarantined"]:
        jobs = f"{plural(waits, 'job')} in quarantine"
        _append(text, "quarantine", f"{jobs}: `tunerd quarantine list --study {study['name']}`")
    if counts := {k: n for k, n in study["outside"].items() if k != OTHER}:
        most = sorted(counts.items(), key=lambda count: -count[1])
        often = ", ".join(f"{name} in {plural(n, 'job')}" for name, n in most)
        text.append(f"\n  {'outside':<10}", style="not bold")
        text.append(f"values that the study does not have, since the start: {often}", "not bold")
    if names := study["hardly_ever_the_same"]:
        text.append(f"\n  {'contexts':<10}", style="not bold yellow")
        text.append(
            f"hardly one has two jobs: {' and '.join(names)} {_is(names)} hardly ever the same "
            "twice, so that nothing can be confirmed. Take an id out of the study's context; "
            'key = "ignore" or { bucket = 1.25 } makes one context of many',
            style="not bold",
        )
    if version := study["pinned_model"]:
        text.append(f"\n  {'pinned':<10}", style="not bold yellow")
        text.append(
            f"model {version} serves whatever comes; `tunerd models {study['name']} --latest` "
            "lets others take over again",
            style="not bold",
        )
    for drift in study["drift"]:
        text.append(f"\n  {'drift':<10}", style="not bold yellow")
        text.append(
            f"{drift['message']} Noticed {_ago(drift['noticed']['finished_at'], now)}.",
            style="not bold",
        )
    for config in study["given_up"][:MOST_GIVEN_UP]:
        text.append(f"\n  {'changed':<10}{config['message']}", style="not bold")
    if count := study["unanswered_requests"]:
        wait = "request waits" if count == 1 else "requests wait"
        text.append(f"\n  {'asked':<10}{count} {wait} for an answer", style="not bold")
    _append_orders(text, study, now)
    return text


def _append_orders(text: Text, study: Mapping[str, Any], now: datetime) -> None:
    """What people have said, and what waits for them to say."""
    if study["orders_damaged"]:
        text.append(f"\n  {'limits':<10}", style="not bold yellow")
        text.append(
            "cannot be shown: what was saved of pauses and limits is damaged. The daemon goes on "
            "with those that it knows, and saves them with its next step; at a start it takes "
            f"them from their commands, which `tunerd commands {study['name']}` lists",
            style="not bold",
        )
    for order in study["orders"]:
        paused = order["kind"] == "pause"
        text.append(f"\n  {'paused' if paused else 'limit':<10}", style="not bold yellow")
        text.append(_order(order, study["name"], now), style="not bold")
    if count := study["waiting_for_approval"]:
        text.append(
            f"\n  {'approve':<10}{count} wait{'s' if count == 1 else ''}: "
            f"`tunerd approve --study {study['name']}` lists them, `tunerd approve ID` publishes, "
            "`tunerd decline ID` does not",
            style="not bold",
        )


def _append(text: Text, name: str, told: str) -> None:
    """Add a line that asks for attention, unless it says nothing."""
    if told:
        text.append(f"\n  {name:<9} ", style="not bold yellow")
        text.append(told, style="not bold")


def _file(beside: Mapping[str, Any] | None, name: str) -> str:
    """What to know of a study's file: one that was changed does not hold yet."""
    match beside and beside["state"]:
        case "missing":
            return f"is gone, the study goes on without it; `tunerd end {name}` ends it"
        case "differs":
            places = [change["where"] for change in beside["changes"]] if beside else []
            shown = ", ".join(places[:MOST_PLACES]) + (", …" if len(places) > MOST_PLACES else "")
            where = shown or "in its order"
            return f"differs from what runs ({where}): `tunerd reload` takes it up"
    return ""


def _files(told: Mapping[str, Any]) -> Iterator[str]:
    """What to know of the folder of studies."""
    if count := told["problems"]:
        yield f"{plural(count, 'mistake')} in {told['folder']}: `tunerd check` lists what is wrong"
    if names := told["not_taken_up"]:
        yield f"{', '.join(names)} not taken up yet: `tunerd reload`, or a start, does that"


def _unusable(seen: Mapping[str, Any] | None) -> str:
    """How many jobs came without a usable objective, and what that means; empty for none."""
    count = seen["missing"] + seen["impossible"] if seen else 0
    if seen is None or not count + seen["implausible"]:
        return ""
    alone = ""
    if waits := seen["implausible"]:
        last = "" if seen["held_back"] is None else f", the last {seen['held_back']:.6g}"
        alone = (
            f"{plural(waits, 'job')} reported what cannot be right{last}: they went into "
            "quarantine, and count for nothing until they are released. "
        )
    if not count:
        return alone.strip()
    metric = seen["metric"]
    kinds = []
    if seen["missing"]:
        kinds.append(f"{seen['missing']:,} without a value")
    if seen["impossible"]:
        last = f", the last {seen['example']:.6g}" if seen["example"] is not None else ""
        kinds.append(f"{seen['impossible']:,} with a value that it cannot have{last}")
    lately = ""
    if seen["latest_unusable"] and seen["jobs"] > seen["latest_jobs"]:
        lately = f"; {seen['latest_unusable']} of the latest {seen['latest_jobs']}"
    counting = [k for k in ("missing", "impossible") if seen[k] and seen["says"][k] == "failed"]
    says = "They are left out, as the study says"
    if counting:
        lines = " and ".join(f'{kind} = "ran"' for kind in counting)
        says = (
            "Each counts against its configuration; where such a job did run, "
            f"write {lines} under [objective]"
        )
    jobs = plural(seen["jobs"], "job")
    came = f"{count:,} of {jobs} came without a usable {metric}: {' and '.join(kinds)}{lately}"
    return f"{alone}{came}. {says}"


def _do(names: Sequence[str]) -> str:
    return "does" if len(names) == 1 else "do"


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _order(order: Mapping[str, Any], study: str, now: datetime) -> str:
    by = f"by {order['who']} {_ago(order['at'], now)}" if order["who"] else ""
    why = f", “{order['why']}”" if order["why"] else ""
    misfit = order["does_not_fit"]
    does = f"; does nothing: {misfit}" if misfit else ""
    if order["kind"] == "pause":
        does += f"; `tunerd resume {study}` brings advice back" if not order["context"] else ""
    return f"{order['number']}: {order['words']}, {by}{why}{does}"


def _quality(study: Mapping[str, Any]) -> str:
    scores = study["scores"]
    if not scores or not scores["observations"]:
        return "nothing yet"
    kendall = _number(scores.get("kendall"), "{:.2f}")
    gain = study["gain_realised"]
    tried = f"; what was tried gained {gain:+.1%}" if gain is not None else ""
    if (noise := scores.get("noise")) is not None:
        tried = f"; equal jobs lie {noise:.1%} apart{tried}"
    if (inside := scores.get("coverage")) is not None:
        tried = f"; {inside:.0%} in their 80 % bands{tried}"
    return f"rank correlation (Kendall τ) {kendall} over {scores['observations']} jobs{tried}"


def _table(title: str, *, lines: bool = False) -> Table:
    return Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_lines=lines,
    )


def show_commands(commands: list[Mapping[str, Any]]) -> None:
    """Print what operators asked for, and what came of it."""
    now = datetime.now(UTC)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_lines=True)
    for name in ("id", "given", "study", "command", "what came of it"):
        table.add_column(name, overflow="fold")
    for command in commands:
        why = f"\n“{command['why']}”" if command["why"] else ""
        at = command["at"].astimezone().strftime("%Y-%m-%d %H:%M")
        table.add_row(
            str(command["id"]),
            f"{at}\n{command['who']}",
            command["study"],
            Text(f"{command['words']}{why}"),
            Text(
                command["result"] or f"waits since {_span((now - command['at']).total_seconds())}"
            ),
        )
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)


def _commands(commands: list[Mapping[str, Any]], now: datetime) -> Table:
    table = _table("Commands that wait")
    for name in ("id", "study", "command", "who", "given"):
        table.add_column(name)
    for command in commands:
        at = _ago(command["at"], now)
        row = (str(command["id"]), command["study"], command["command"], command["who"], at)
        table.add_row(*row)
    return table


def _recommendations(rows: list[Mapping[str, Any]], learned: int, now: datetime) -> Table:
    table = _table("Recommendations", lines=True)
    for name in ("context", "state", "best candidate", "why"):
        table.add_column(name, overflow="fold")
    for row in rows:
        shown = row["proposal"] or row
        until = f"for {_ahead(row['valid_until'], now)}" if row["state"] == "active" else ""
        state = f"{row['state']}, revision {row['revision']}\n{until}".strip()
        if row["proposal"]:
            observed = row["proposal_state"] == "observed"
            waits = "would recommend" if observed else "waits for approval"
            state += f"\n{waits}:\n{row['proposal'].get('recommendation_id')}"
        table.add_row(
            "\n".join(row["context_key"].split("|")[1:]) or "any",
            state,
            _best(shown.get("candidates") or []),
            _why(shown, learned),
        )
    return table


def _why(said: Mapping[str, Any], learned: int) -> str:
    """A reason, and how old it is: what is said stands, with its words and numbers, until something
    else is to be done."""
    reason: str = said.get("reason") or ""
    made = (said.get("made_from") or {}).get("sequence")
    if made is None or made >= learned or said.get("state") == "withdrawn":
        return reason
    return f"{reason}\n(as it was {plural(learned - made, 'job')} ago)"


def _best(candidates: list[Mapping[str, Any]]) -> str:
    if not candidates:
        return "none"
    best = candidates[0]
    config = written_config(best["config"])
    gain, expected = best.get("gain") or {}, best.get("predicted") or {}
    band = ""
    if expected:
        low, high = number(expected["low"]), number(expected["high"])
        band = f"\npredicted {number(expected['median'])} ({low} to {high})"
    text = f"{best['wanted']} wanted" if best.get("wanted") else f"share {best['share']:g}"
    more = f"\nand {len(candidates) - 1} more" if len(candidates) > 1 else ""
    gained = gain_text(gain.get("median"), gain.get("low"))
    return f"{best['kind']}, {text}, gain {gained}{band}\n{config}{more}"


def _states(states: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.items()) or "none yet"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _ago(at: datetime | None, now: datetime) -> str:
    return "never" if at is None else f"{_span((now - at).total_seconds())} ago"


def _ahead(at: datetime, now: datetime) -> str:
    return _span((at - now).total_seconds()) if at > now else "no longer"


def _span(seconds: float) -> str:
    seconds = max(seconds, 0.0)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
