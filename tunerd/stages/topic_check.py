"""What the recommendations topic holds beside what the store knows of it.

A store that was restored from a backup, or lost its last transactions in a failover, knows lower
revisions than went out. Readers drop those as old, so it must learn of the later ones before
anything is said.
"""

import tomllib
from collections.abc import Callable, Sequence
from datetime import datetime

from tunerd.core.decisions.lifecycle import FREE_KEY_AFTER
from tunerd.core.recommendation import Recommendation, State
from tunerd.events import from_bytes, to_bytes
from tunerd.events.plan import PLAN_KEY
from tunerd.stages.plans import send_plans_again
from tunerd.store import RecommendationRow, Store
from tunerd.streams.base import EVER, Stream, StreamRecord

__all__ = ["behind", "newer_than", "published", "take_up", "why_behind"]

MOST_UNSENT = 1_000_000
MOST_NAMED = 3


def why_behind(store: Store, stream: Stream, topic: str) -> str | None:
    """Why this store must not go on; None where it knows all that was published, of studies that
    publish: who only observes may do so beside others. Reads the whole topic: what a restored store
    has said by itself since is no sign of how far it was before."""
    speaking = {row.name for row in store.studies() if _publishes(store, row.name)}
    if not speaking:
        return None
    everything = published(stream, topic, EVER)
    newer = newer_than(store, [message for message in everything if message.study in speaking])
    if not newer:
        return None
    named = ", ".join(
        f"{message.context_key}: {message.revision}" for message in newer[:MOST_NAMED]
    )
    more = f", and {len(newer) - MOST_NAMED} more" if len(newer) > MOST_NAMED else ""
    return behind(topic, f"{named}{more}")


def behind(topic: str, what: str) -> str:
    """Say of a topic that it holds later revisions than the store knows: which, and what to do."""
    return (
        f"{topic} holds later revisions than the store knows ({what}), and readers would "
        "drop what it says as old: the store was restored from a backup, was made anew or lost "
        "transactions, then `tunerd recover` takes them up; or another tunerd publishes there, "
        "then give this one another topic"
    )


def _publishes(store: Store, study: str) -> bool:
    generation = store.generation(study)
    mode = tomllib.loads(generation.text).get("mode", "observe") if generation else "observe"
    return mode != "observe"


def published(
    stream: Stream,
    topic: str,
    since: datetime,
    foreign: Callable[[StreamRecord, ValueError], None] | None = None,
) -> list[Recommendation]:
    """What was published, of each key the highest revision, also where the key was freed since:
    readers remember it. Others may write there, too: what is no recommendation goes to
    ``foreign``."""
    sink = stream.sink()
    latest: dict[str, Recommendation] = {}
    try:
        for record in sink.sent_since([topic], since):
            if record.value is None or (record.key or b"").startswith(PLAN_KEY.encode()):
                continue
            try:
                message = from_bytes(record.value)
            except ValueError as error:
                if foreign is not None:
                    foreign(record, error)
                continue
            key = message.context_key
            if key not in latest or message.revision >= latest[key].revision:
                latest[key] = message
    finally:
        sink.close()
    return list(latest.values())


def newer_than(store: Store, published: Sequence[Recommendation]) -> list[Recommendation]:
    """Those that a store's own studies have said, and of which it does not know."""
    known = {row.name for row in store.studies()}
    newer = []
    for message in published:
        row = (
            store.recommendation(message.study, message.context_key)
            if message.study in known
            else None
        )
        if message.study in known and (row is None or row.revision < message.revision):
            newer.append(message)
    return newer


def take_up(store: Store, newer: Sequence[Recommendation], now: datetime) -> None:
    """Let the store go on from there. To be called while no daemon has it."""
    revisions = {(message.study, message.context_key): message.revision for message in newer}
    overtaken = [
        message.id
        for message in store.unsent(MOST_UNSENT)
        if message.revision is not None
        and message.revision <= revisions.get((message.study or "", message.context_key or ""), 0)
    ]
    with store.transaction() as tx:
        for behind in newer:
            tx.save_recommendation(_row(behind))
        for study in tx.studies():
            send_plans_again(tx, study.name)
        tx.mark_sent(overtaken, now)


def _row(published: Recommendation) -> RecommendationRow:
    active = published.state is State.ACTIVE
    half = (published.valid_until - published.issued_at) / 2
    return RecommendationRow(
        study=published.study,
        context_key=published.context_key,
        revision=published.revision,
        recommendation_id=published.recommendation_id,
        state=published.state.value,
        value=to_bytes(published).decode(),
        issued_at=published.issued_at,
        valid_until=published.valid_until,
        renew_at=published.issued_at + (half if active else FREE_KEY_AFTER),
    )
