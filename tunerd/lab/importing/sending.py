"""From the spool onto the jobs topic, oldest first."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import msgspec

from tunerd.events.job import content_hash
from tunerd.lab.importing.reading import RejectsFile, Show
from tunerd.lab.importing.spool import ImportSpool, SpooledJob, count_into
from tunerd.streams.base import StreamMessage, StreamSink

__all__ = ["send"]

BATCH = 1_000
"""Jobs sent between two points at which a killed import can go on: it sends at most so many
again, and their ids drop them."""
CONFLICT = (
    "event_id: was imported before with other content: the mapping or the table has changed; "
    "a study of another name starts over"
)


def send(
    spool: ImportSpool,
    sink: StreamSink,
    topic: str,
    key: bytes,
    known: Callable[[Sequence[str]], Mapping[str, str]],
    elsewhere: Callable[[Sequence[str]], Collection[str]],
    rejects: RejectsFile,
    show: Show,
) -> None:
    """Send what is left. All with one ``key``, so that they stay in order on a broker.

    ``known`` says which event ids history has, and with which content; these are not sent.
    ``elsewhere`` says which of them another study has: there the jobs of this one get ids of their
    own, always the same ones. Raises StreamUnavailableError; another call goes on.
    """
    tally, total = spool.tally, spool.count()
    while jobs := spool.next(BATCH):
        if taken := elsewhere([job.event_id for job in jobs]):
            jobs = [_of_its_own(job) if job.event_id in taken else job for job in jobs]
            spool.rename(jobs)
        there = known([job.event_id for job in jobs])
        fresh = [job for job in jobs if job.event_id not in there]
        if fresh:
            sink.send([StreamMessage(topic, key, job.body) for job in fresh])
        for job in jobs:
            content = there.get(job.event_id)
            if content == job.hash:
                tally.known += 1
            elif content is not None:
                tally.conflicts += 1
                count_into(tally.unusable, CONFLICT)
                rejects.add(_rejected(job))
        tally.sent += len(fresh)
        tally.handled += len(jobs)
        tally.at, tally.place = jobs[-1].at, jobs[-1].place
        rejects.flush()
        tally.rejects_bytes = rejects.size
        spool.save()
        show("sending", tally.handled, total)
    tally.stage = "sent"
    spool.save()


def _of_its_own(job: SpooledJob) -> SpooledJob:
    """The job under an id that no other study makes of the same row. Only where another study has
    the row's: else what was imported before this was thought of would be imported again."""
    event = msgspec.json.decode(job.body)
    name = hashlib.sha256(msgspec.json.encode([event["study"], job.event_id])).hexdigest()[:32]
    event["event_id"] = name
    body = msgspec.json.encode(event)
    return replace(job, event_id=name, hash=content_hash(event), body=body)


def _rejected(job: SpooledJob) -> dict[str, object]:
    field, _, reason = CONFLICT.partition(": ")
    return {"row": job.row, "field": field, "reason": reason, "event": msgspec.Raw(job.body)}
