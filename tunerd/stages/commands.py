"""Operators' commands, each carried out in a step of the study that it is for.

What comes of one is a sentence for the person who gave it, kept with the command; it begins with
``refused`` where nothing was done. A command changes the books in memory; the step's transaction
saves them together with what follows from it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from tunerd.core.decisions.campaign import MIN_FEASIBLE, PATIENCE_H, Campaign
from tunerd.core.decisions.overrides import Override, OverrideSet
from tunerd.errors import NothingFeasibleError
from tunerd.stages.rollback import go_back
from tunerd.stages.study_session import QuarantineDecision, StepPlan, StudySession
from tunerd.store import OperatorCommand, Store, arguments_problem

__all__ = ["CommandHandler", "order_of"]

ALIVE_EVERY = 50
"""Contexts looked at between two signs of life."""


@dataclass(frozen=True)
class CommandHandler:
    """Where a step carries out its commands."""

    books: StudySession
    changes: StepPlan
    active: Collection[str]
    """Keys of the contexts that are searched."""
    now: datetime
    alive: Callable[[], None]
    """Called now and then while something takes long."""
    store: Store
    """To read from."""

    def carry_out(self, command: OperatorCommand) -> str:
        """Do what a command asks for, and say what came of it."""
        if wrong := arguments_problem(command.command, command.arguments):
            return f"refused: {command.command} cannot be done with what it was given: {wrong}"
        if command.command in ("release", "confirm"):
            return self._settle(command)
        return self._carry_out(command)

    def _carry_out(self, command: OperatorCommand) -> str:
        match command.command:
            case "campaign" | "pause" | "pin" | "forbid" if self.books.ended:
                return "refused: the study has ended"  # what takes one back does so all the same
            case "campaign":
                return self._campaign(command.arguments)
            case "cancel":
                return self._cancel(command.arguments)
            case "approve":
                return self._approve(command)
            case "decline":
                return self._decline(command.arguments)
            case "pause":
                return self._pause(order_of(command))
            case "resume":
                return self._resume(command.arguments["context"])
            case "pin" | "forbid":
                return self._limit(order_of(command))
            case "lift":
                return self._lift(command.arguments["number"])
            case "back" | "latest":
                return go_back(self.store, self.books, self.changes, self.active, command)
            case "end":
                return self._end()
        return f"refused: this version of tunerd knows no command {command.command!r}"

    # ── proposals ────────────────────────────────────────────────────────────────────────────

    def _approve(self, command: OperatorCommand) -> str:
        key, asked = command.arguments["context_key"], command.arguments["recommendation_id"]
        if wrong := self._not_waiting(key, asked):
            return wrong
        if held := self._held(key):
            return held
        self.changes.approved[key] = command.id
        return f"published for {key}"

    def _held(self, key: str) -> str | None:
        """Why orders forbid to publish what is proposed for a context."""
        if paused := self._orders.paused(key):
            return f"refused: {key} is paused by command {paused.number}"
        broken = self._orders.broken_by(self.books.recommended.proposed[key])
        return None if broken is None else f"refused: it breaks a limit: {broken.named}"

    def _decline(self, wanted: Mapping[str, Any]) -> str:
        key, asked = wanted["context_key"], wanted["recommendation_id"]
        if wrong := self._not_waiting(key, asked):
            return wrong
        self.changes.approved.pop(key, None)
        self.changes.declined.append(key)
        return f"declined for {key}; it is not proposed again before there is something else to say"

    def _not_waiting(self, key: str, asked: str) -> str | None:
        proposal = self.books.recommended.proposed.get(key)
        mode = self.books.study.mode
        if self.books.ended:
            return "refused: the study has ended"
        if mode != "approve":
            return f"refused: the study is in mode {mode}, nothing waits for approval"
        if not self.books.is_known(key):
            return f"refused: the study has changed and knows {key} no longer"
        gone = proposal is None or proposal.recommendation_id != asked
        if gone or key in self.changes.approved or key in self.changes.declined:
            return f"refused: {asked} is no longer what is proposed for {key}"
        return None

    # ── pauses ───────────────────────────────────────────────────────────────────────────────

    def _pause(self, order: Override) -> str:
        if wrong := self._orders.problem(order):
            return f"refused: {wrong}"
        if over := self._orders.pauses_over(order.context):
            return f"it is paused already, by command {over[0].number}"
        self._impose(self._orders.given(order))
        withdrawn = self._orders.within(order.context, self.books.recommended.running)
        return f"paused; {_count(withdrawn, 'recommendation')} withdrawn"

    def _resume(self, context: Mapping[str, Any]) -> str:
        if wrong := self._orders.problem(Override(0, "pause", context)):
            return f"refused: {wrong}"
        over = self._orders.pauses_over(context)
        within = self._orders.pauses_within(context)
        wider = [override for override in over if override not in within]
        covered = "".join(
            f"; command {override.number} pauses{_what(override)}" for override in wider
        )
        if not within:
            hint = f"{covered}: resume that" if wider else ""
            return f"refused: nothing is paused with just these values{hint}"
        return self._lifted(within) + covered

    # ── limits ───────────────────────────────────────────────────────────────────────────────

    def _limit(self, order: Override) -> str:
        if wrong := self._orders.problem(order):
            return f"refused: {wrong}"
        orders = self._orders.given(order)
        meant = self._orders.within(order.context, self.active)
        unfit = self._unfit(meant, orders)
        if unfit and order.kind == "pin":
            key, why = next(iter(unfit.items()))
            return (
                f"refused: it would leave nothing feasible in {len(unfit)} of {len(meant)} active "
                f"contexts: in {key}, {why}. Say with --context for which it is meant"
            )
        self._impose(orders)
        self.books.tuner.look_again(meant)
        messages = [
            *self.books.recommended.running.values(),
            *self.books.recommended.proposed.values(),
        ]
        breaking = dict.fromkeys(
            message.context_key for message in messages if orders.broken_by(message) is not None
        )
        self.changes.urgent += breaking
        result = f"in force; {_count(breaking, 'recommendation')} broke it, replaced or withdrawn"
        if unfit:
            result += f"; nothing is left to recommend in {_count(unfit, 'active context')}"
        return result

    def _unfit(self, keys: Iterable[str], orders: OverrideSet) -> dict[str, str]:
        """In which of these contexts nothing would be left, and why."""
        unfit = {}
        for number, key in enumerate(keys):
            if number % ALIVE_EVERY == 0:
                self.alive()
            if why := self.books.tuner.unfit(key, orders):
                unfit[key] = why
        return unfit

    def _lift(self, number: int) -> str:
        standing = self._orders.standing
        matching = [override for override in standing if override.number == number]
        if not matching:
            numbers = ", ".join(str(override.number) for override in standing) or "none"
            return f"refused: no order {number} stands; there are: {numbers}"
        return self._lifted(matching)

    def _lifted(self, orders: Collection[Override]) -> str:
        """Without these orders, what they kept down comes back at once."""
        fitting = [override for override in orders if self._orders.problem(override) is None]
        self._impose(self._orders.lifted(override.number for override in orders))
        again = dict.fromkeys(
            key
            for override in fitting
            for key in self._orders.within(override.context, self.active)
        )
        self.books.tuner.look_again(again)
        self.changes.urgent += again
        lifted = ", ".join(
            f"{override.what} ({override.number}){override.where}" for override in orders
        )
        return f"lifted: {lifted}; {_count(again, 'context')} searched again"

    @property
    def _orders(self) -> OverrideSet:
        return self.books.tuner.orders

    def _impose(self, orders: OverrideSet) -> None:
        tuner = self.books.tuner
        tuner.impose(orders)
        tuner.fallback.waiting_since = max(tuner.sequence, 1)
        self.books.obeyed = False
        for key, number in list(self.changes.approved.items()):
            if held := self._held(key):  # nothing of it has gone out yet
                del self.changes.approved[key]
                self.changes.results[number] = held

    # ── campaigns, and the end ───────────────────────────────────────────────────────────────

    def _campaign(self, wanted: Mapping[str, Any]) -> str:
        campaign = Campaign(
            jobs=wanted["jobs"],
            rounds=wanted["rounds"],
            round_size=wanted["round_size"],
            repeats=wanted["repeats"],
            patience_h=wanted.get("patience_h", PATIENCE_H),
            min_feasible=wanted.get("min_feasible", MIN_FEASIBLE),
        )
        tuner = self.books.tuner
        known = tuner.contexts.get(self.books.study.context_key(wanted["context"]))
        before = known.campaign if known else None
        try:
            key = tuner.start_campaign(wanted["context"], campaign, self.now)
        except NothingFeasibleError as error:
            return f"refused: {error}"
        there = tuner.feasible(key)
        few = ""
        if there is not None and there < campaign.configurations:
            few = f"; no more than {_are(there)} feasible there: its rounds end where these do"
        paused = self._orders.paused(key)
        waits = f"; it is paused by command {paused.number}: nothing goes out yet" if paused else ""
        return f"campaign begun in {key}{_instead_of(before)}{few}{waits}"

    def _cancel(self, wanted: Mapping[str, Any]) -> str:
        key = wanted["context_key"]
        missing = self.books.tuner.cancel_campaign(key)
        if missing is None:
            return f"refused: no campaign is under way in {key}"
        self.changes.urgent.append(key)
        were = "run was" if missing == 1 else "runs were"
        return f"campaign ended in {key}; {missing} {were} still missing in its round"

    def _settle(self, command: OperatorCommand) -> str:
        """Release jobs from quarantine, or call them bad."""
        books, release = self.books, command.command == "release"
        state: Literal["released", "bad"] = "released" if release else "bad"
        open_states = ("held", "bad") if release else ("held",)
        wanted = command.arguments["sequences"]
        rows = self.store.quarantine_rows(books.study.name, wanted)
        news = books.tuner.quarantine
        done = {n for decision in self.changes.quarantine for n in decision.sequences}
        done |= {*news.confirmed, *news.corrected}
        inside = books.tuner.features.quarantined.keys() - done  # as of this step
        there = [n for n, row in rows.items() if row.state in open_states and n in inside]
        if not there:
            return "refused: none of these jobs waits in quarantine"
        if not release:
            for sequence in there:
                books.tuner.plausibility.forget(rows[sequence].context_key, sequence)
        self.changes.quarantine.append(
            QuarantineDecision(state, tuple(there), command.who, command.why)
        )
        rest = len(set(wanted)) - len(there)
        others = f"; {_count(range(rest), 'other')} did not wait there" if rest else ""
        jobs = _count(there, "job")
        if release:
            return f"released {jobs}, learned with the next jobs{others}"
        return f"called {jobs} bad, never learned{others}"

    def _end(self) -> str:
        self.books.ended = True
        self.changes.results |= dict.fromkeys(
            self.changes.approved.values(), "refused: the study has ended"
        )
        return f"ended; {_count(self.books.recommended.running, 'recommendation')} withdrawn"


def order_of(command: OperatorCommand) -> Override:
    """What a command ``pause``, ``pin`` or ``forbid`` orders."""
    wanted: Any = command.arguments
    kind: Any = command.command
    return Override(command.id, kind, wanted["context"], wanted.get("config", {}), command.why)


def _count(things: Collection[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _are(configurations: int) -> str:
    return f"{configurations} configuration{' is' if configurations == 1 else 's are'}"


def _instead_of(before: Campaign | None) -> str:
    if before is None:
        return ""
    if not before.asks:
        return " in the place of one that had asked for nothing yet"
    return f" in the place of one that still missed {before.missing} runs of round {before.round}"


def _what(pause: Override) -> str:
    return pause.where or " the whole study"
