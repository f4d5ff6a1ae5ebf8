"""``kill -9`` of the daemon, its tuner process and both, while events come in and are learned.

Every accepted event must be in history exactly once, with dense sequences; on the topic each key's
revisions must strictly increase in offset order, and its last record must be what the store says.
An independent client reads the topics; history is read with plain SQL.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.feed import PARTITIONS, STUDY, TEXT, Feeder, Traffic, traffic
from benchmarks.kit import Bars, Daemon, arguments, kafka_broker, make_topic
from benchmarks.witness import Sql, mismatches, order_of, read_topic, settle
from tests.servers.postgres import Databases, PostgresServer

ALIVE_S = (0.3, 10.0)
"""How long a process lives before it is killed, from when it was started."""
SETTLE_S = 300.0
TARGETS = ("parent", "tuner", "both")


# -- killing --------------------------------------------------------------------------------


@dataclass
class Victim:
    """A daemon that is killed and started again."""

    daemon: Daemon
    ended_alone: int = 0
    """How often it ended without being killed."""
    not_killed: int = 0
    """How often there was nothing to kill: no tuner process within seconds."""

    def begin(self) -> None:
        """Start it and wait for nothing."""
        daemon = self.daemon
        with (daemon.folder / "daemon.log").open("ab") as log:
            daemon.process = subprocess.Popen(
                [sys.executable, "-m", "tunerd", "run", "--settings", str(daemon.file)],
                stdout=log,
                stderr=log,
            )

    def kill(self, target: str) -> None:
        """SIGKILL, and a new start where the parent went."""
        process = self.daemon.process
        assert process is not None
        if process.poll() is not None:
            self.ended_alone += 1
            self.begin()
            return
        tuner = self._tuner() if target != "parent" else None
        if target != "parent" and tuner is None:
            self.not_killed += 1
        if target != "tuner":
            process.kill()
        if tuner is not None:
            with suppress(ProcessLookupError):
                os.kill(tuner, signal.SIGKILL)
        if target != "tuner":
            process.wait()
            self.begin()

    def _tuner(self) -> int | None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            pid = self.daemon.tuner_pid
            if pid is not None:
                return pid
            time.sleep(0.01)
        return None


def torment(victim: Victim, kills: int, rng: np.random.Generator) -> Counter[str]:
    """Kill it so many times, each target as often as the others, in random order."""
    targets = [TARGETS[i % len(TARGETS)] for i in range(kills)]
    rng.shuffle(targets)
    for target in targets:
        time.sleep(float(rng.uniform(*ALIVE_S)))
        victim.kill(target)
    return Counter(targets)


# -- the run --------------------------------------------------------------------------------


def measure(
    options: argparse.Namespace, bars: Bars, bootstrap: str, kind: str, store_url: str
) -> None:
    """One daemon, on one kind of store."""
    rng = np.random.default_rng(options.seed)
    sent = traffic(options.events, rng)
    folder = Path(options.folder) / kind
    daemon = Daemon(folder, {STUDY: TEXT}, bootstrap, f"crashes-{kind}-{time.time_ns()}", store_url)
    sql = Sql(store_url)
    make_topic(bootstrap, daemon.jobs, PARTITIONS)
    # A little longer than the killing should take: events come in until the last of it.
    within_s = 1.2 * options.kills * sum(ALIVE_S) / 2
    feeder = Feeder(bootstrap, daemon.jobs, sent.records, within_s)
    victim = Victim(daemon)
    begin = time.monotonic()
    victim.begin()
    feeder.start()
    try:
        kills = torment(victim, options.kills, rng)
        progress = sql.number("SELECT count(*) FROM observations")
        steps = sql.number("SELECT count(*) FROM tune_steps")
        feeder.finish()
        tormented_s = time.monotonic() - begin
        settle(sql, len(sent.events), SETTLE_S)
    finally:
        daemon.stop()
    bars.say(f"{kind}: kills", ", ".join(f"{n} {who}" for who, n in sorted(kills.items())))
    bars.say(f"{kind}: seconds of killing, until settled", round(tormented_s))
    bars.say(f"{kind}: seconds in all", round(time.monotonic() - begin))
    bars.say(f"{kind}: records sent (events once: {len(sent.events)})", len(sent.records))
    bars.say(f"{kind}: in history at the last kill", progress)
    bars.say(f"{kind}: tune steps at the last kill", steps)
    alone = victim.ended_alone
    bars.hold(f"{kind}: daemons that ended by themselves", alone, alone == 0, "0")
    bars.hold(f"{kind}: kills that found nothing", victim.not_killed, not victim.not_killed, "0")
    judge_history(bars, kind, sql, sent)
    judge_topics(bars, kind, sql, sent, bootstrap, daemon)
    sql.close()


def judge_history(bars: Bars, kind: str, sql: Sql, sent: Traffic) -> None:
    """Every event once, with dense sequences, learned to the last."""
    rows = sql.rows("SELECT event_id, sequence FROM observations ORDER BY sequence")
    times = Counter(str(event) for event, _ in rows)
    lost = len(sent.events - times.keys())
    doubled = sum(n - 1 for n in times.values()) + len(times.keys() - sent.events)
    gaps = sum(sequence != i for i, (_, sequence) in enumerate(rows, 1))
    left = len(rows) - sql.number("SELECT max(learned_sequence) FROM studies")
    bars.hold(f"{kind}: events lost", lost, lost == 0, "0")
    bars.hold(f"{kind}: events doubled", doubled, doubled == 0, "0")
    bars.hold(f"{kind}: sequences out of place", gaps, gaps == 0, "0")
    bars.hold(f"{kind}: observations not learned", left, left == 0, "0")


def judge_topics(
    bars: Bars, kind: str, sql: Sql, sent: Traffic, bootstrap: str, daemon: Daemon
) -> None:
    """Revisions in order, the last of each key as in the store, each rejection once."""
    lines = read_topic(bootstrap, daemon.recommendations, "read_committed")
    order = order_of(lines)
    bars.say(f"{kind}: recommendations received", len(lines))
    wrong = order.backwards + order.repeated + order.changed
    bars.hold(f"{kind}: revisions that do not increase", wrong, wrong == 0, "0")
    if wrong:
        bars.say(f"{kind}:   of them backwards, repeated, changed", str(order))
    other = mismatches(lines, sql)
    bars.hold(f"{kind}: keys whose last record is not the store's", other, other == 0, "0")
    raw = read_topic(bootstrap, daemon.recommendations, "read_uncommitted")
    order = order_of(raw)
    wrong = order.backwards + order.changed
    bars.hold(f"{kind}: … read uncommitted: backwards or changed", wrong, wrong == 0, "0")
    bars.say(f"{kind}: … read uncommitted: repeats of aborted sends", order.repeated)
    refused = Counter(
        line.value for line in read_topic(bootstrap, daemon.rejected, "read_committed")
    )
    missing, again = sent.broken - len(refused), refused.total() - len(refused)
    bars.hold(f"{kind}: rejected records missing", missing, missing == 0, "0")
    bars.hold(f"{kind}: rejected records twice", again, again == 0, "0")


@contextmanager
def store_urls(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """A URL for each kind of store that is asked for."""
    urls = {}
    if options.store in ("sqlite", "both"):
        urls["sqlite"] = f"sqlite:///{options.folder}/sqlite/data/tunerd.sqlite"
    if options.store == "sqlite":
        yield urls
        return
    server = PostgresServer(durable=True)
    try:
        server.start()
        urls["postgres"] = Databases(server.url).create()
        yield urls
    finally:
        server.remove()


def main() -> int:
    """Run it."""
    parser = arguments(__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--events", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.kills = options.kills or (6 if options.quick else 30)
    options.events = options.events or (2_000 if options.quick else 20_000)
    bars = Bars("crashes")
    print(f"{options.kills} times kill -9 over {options.events} events, seed {options.seed}")
    with (
        tempfile.TemporaryDirectory(prefix="tunerd-bench-") as options.folder,
        kafka_broker(options) as bootstrap,
        store_urls(options) as urls,
    ):
        for kind, url in urls.items():
            measure(options, bars, bootstrap, kind, url)
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
