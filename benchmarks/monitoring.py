"""Dashboard and alerts under a real Prometheus, on a daemon that is well, and then is not.

A daemon tunes a simulated cluster, and a Prometheus with the configuration and the rules of
``deploy/`` scrapes it, with less time for everything. While all is well every panel must have
something to show, every alert something to measure, and none may fire. Then the daemon is fed
rubbish and nonsense, starved, cut off, flooded, left alone and killed, and the alerts that are
meant for that must fire.

``--quick`` keeps to rubbish, a tuner that stands still, and a daemon that is killed.
"""

import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from benchmarks.kit import Bars, Daemon, arguments
from tests.servers import tied
from tests.servers.prometheus import PrometheusServer, QueryError
from tunerd.core.study_file import parse_study
from tunerd.lab.simulation.shipped import demo_contexts, shipped_study
from tunerd.monitoring.files import alert_rules, dashboard

STUDY = "llm-pretrain"
EVERY_S = 0.5
"""Between scrapes."""
QUIET_S = 40.0
"""For which no alert may fire on a daemon that is well: several times what rules wait for."""
DAY_S = 100
SHORTER = {
    r"(?<=for: )2m\b": "6s",
    r"(last_progress_timestamp_seconds >) 300$": r"\1 15",
    r"(outbox_oldest_seconds >) 300$": r"\1 8",
    r"\b5m\b": "15s",
    r"\b15m\b": "10s",
    r"\b1h\b": "60s",
    r"\b1d\b": f"{DAY_S}s",
    r"> 86400$": f"> {DAY_S}",
}
"""Times of the rules, and what stands for them here. A day is longer than the nonsense may take: no
job comes in meanwhile, and that is not yet to be noticed."""
VARIABLES = {
    "$__rate_interval": "10s",
    "$__range": "5m",
    "$instance": ".+",
    "$study": ".+",
}
RATE = 12.0
"""Jobs that end per second while all is well."""
PANELS_S = 90.0
"""How long panels may take to fill: gains need jobs that ran candidates."""
FLOOD = 1500
"""Jobs that nobody learns: more than the 1,000 at which the alert begins."""
NONSENSE = 700
"""More than the window that predictions are judged on."""
STEP = re.compile(r"\s(?:==|!=|>=|<=|>|<)\s(-?[\d.]+)$")


@dataclass
class Rig:
    """A daemon, a cluster and a Prometheus."""

    daemon: Daemon
    prometheus: PrometheusServer
    bars: Bars
    caused: set[str] = field(default_factory=set)
    """Alerts that something was done for."""
    _copies: Iterator[int] = field(default_factory=count)

    @property
    def stream(self) -> Path:
        """Folder of the topics."""
        return self.daemon.folder / "data/stream"

    def send(self, lines: Collection[bytes]) -> None:
        """Append to the jobs topic."""
        with (self.stream / f"{self.daemon.jobs}.jsonl").open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines))

    def jobs(self, number: int) -> list[bytes]:
        """New jobs, copied from those that the cluster sent."""
        lines = (self.stream / f"{self.daemon.jobs}.jsonl").read_bytes().splitlines()
        patterns = [json.loads(line) for line in lines if b'"context"' in line]
        made = []
        for i in range(number):
            new = f"copy-{next(self._copies)}"
            now = datetime.now(UTC).isoformat()
            told = patterns[i % len(patterns)] | {"event_id": new, "job_id": new}
            made.append(json.dumps(told | {"finished_at": now}).encode())
        return made

    def ask(self) -> None:
        """Ask what to launch in a context."""
        request = {
            "schema": "tunerd.request/1",
            "source": "bench",
            "event_id": f"asked-{next(self._copies)}",
            "study": STUDY,
            "context": dict(demo_contexts(STUDY)[0]),
        }
        with (self.stream / f"{self.daemon.requests}.jsonl").open("ab") as file:
            file.write(json.dumps(request).encode() + b"\n")

    @contextmanager
    def causing(self, what: str, names: Collection[str], timeout_s: float) -> Iterator[None]:
        """Hold that these alerts were silent until now, and all fire once this was done."""
        early = self.prometheus.fired() & set(names)
        self.bars.hold(f"{what}: of its alerts fired before", len(early), not early, "0")
        self.caused |= set(names)
        begin = time.monotonic()
        yield
        missing = set(names)
        while missing and time.monotonic() - begin < timeout_s:
            for name in missing & self.prometheus.firing():
                seconds = time.monotonic() - begin
                self.bars.hold(f"{what}: {name} fires after", seconds, True, "in time", "s")
                missing.remove(name)
            time.sleep(EVERY_S / 2)
        for name in missing:
            self.bars.hold(f"{what}: {name} fires", 0, False, f"within {timeout_s:g} s")


def main() -> int:
    """Run it."""
    parser = arguments(__doc__)
    parser.add_argument("--show", action="store_true", help="print what each panel shows")
    options = parser.parse_args()
    bars = Bars("monitoring")
    begin = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder,
        set_up(Path(folder), bars) as rig,
    ):
        while_well(rig, QUIET_S / 4 if options.quick else QUIET_S)
        if options.show:
            show(rig)
        fed_rubbish(rig)
        starved(rig)
        if not options.quick:
            cut_off(rig)
            tuner_dies(rig)
            fed_nonsense(rig)
            left_alone(rig)
            set_aside(rig)
            flooded(rig)
        killed(rig)
        if not options.quick:
            restarted(rig)
        forgotten(rig)
        others = rig.prometheus.fired() - rig.caused
        bars.say("also fired", ", ".join(sorted(others)) or "none")
    bars.say("seconds", time.monotonic() - begin, "s")
    return bars.end(options)


@contextmanager
def set_up(folder: Path, bars: Bars) -> Iterator[Rig]:
    """The daemon first: Prometheus takes some seconds until it scrapes anything."""
    # A record at a time: so a flood is one, without writing gigabytes.
    settings = "[ingest]\nbatch_records = 1\n"
    daemon = Daemon(folder / "daemon", {STUDY: shipped_study(STUDY)}, settings=settings)
    target = f"127.0.0.1:{daemon.port}"
    prometheus = PrometheusServer(folder / "prometheus", target, shorter_rules(), EVERY_S)
    try:
        daemon.start()
        prometheus.start()
        yield Rig(daemon, prometheus, bars)
    finally:
        if daemon.process is not None:
            daemon.process.kill()
            daemon.process.wait()
        prometheus.stop()


# -- all is well ----------------------------------------------------------------------------


@contextmanager
def cluster(rig: Rig) -> Iterator[None]:
    """A simulated cluster at work, with a broken event now and then."""
    daemon = rig.daemon
    command = [*tied(), sys.executable, "-m", "tunerd", "cluster", STUDY, "--jobs", "100000"]
    command += ["--stream-folder", str(rig.stream), "--rate", str(RATE)]
    command += ["--jobs-topic", daemon.jobs, "--recommendations-topic", daemon.recommendations]
    with (daemon.folder / "cluster.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    ended = threading.Event()

    def spoil() -> None:
        while not ended.wait(4):
            rig.send([b"a broken line"])

    spoiler = threading.Thread(target=spoil)
    spoiler.start()
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError((daemon.folder / "cluster.log").read_text()[-2000:])
    finally:
        ended.set()
        spoiler.join()
        process.kill()
        process.wait()


def while_well(rig: Rig, least_s: float) -> None:
    """Everything can be asked, has an answer, and nothing is wrong."""
    bars, prometheus = rig.bars, rig.prometheus
    begin = time.monotonic()
    with cluster(rig):
        silent = fill(rig, asked())
        bars.say("well: seconds until every panel shows something", time.monotonic() - begin, "s")
        time.sleep(max(begin + least_s - time.monotonic(), 0))
        health = prometheus.targets()
        up = health.count("up")
        bars.hold("well: targets that are up", up, health == ["up"], "1 of 1")
        wrong = {name: told for name, told in prometheus.rules().items() if told != "ok"}
        loaded = len(prometheus.rules())
        wanted = len(alerts())
        bars.hold("well: rules", loaded, not wrong and loaded == wanted, f"{wanted}, ok")
        for name, told in wrong.items():
            print(f"    {name}: {told}", file=sys.stderr)
    print_missing(bars, "well: dashboard's queries that show nothing", silent, len(asked()))
    measured = [(name, part) for name, rule in alerts().items() for part in parts(rule)]
    unmeasured = {
        f"{name}: {part}": told for name, part in measured if (told := nothing(prometheus, part))
    }
    total = len(measured)
    print_missing(bars, "well: parts of alerts that measure nothing", unmeasured, total)
    variables = [one for one in dashboard()["templating"]["list"] if "definition" in one]
    for variable in variables:
        found = choices(prometheus, variable)
        bars.hold(f"well: values of ${variable['name']}", len(found), len(found) == 1, "1")
    fired = prometheus.fired()
    for name in sorted(fired):
        print(f"    {name} fired", file=sys.stderr)
    bars.hold("well: alerts that fired", len(fired), not fired, "0")


def asked() -> dict[str, str]:
    """Every query of the dashboard, by its panel and legend, with the variables filled in."""
    made = dashboard()
    found = {
        f"{panel['title']} [{target['legendFormat']}]": filled(target["expr"])
        for panel in made["panels"]
        for target in panel.get("targets", ())
    }
    marks = {one["name"]: filled(one["expr"]) for one in made["annotations"]["list"]}
    return found | marks


def show(rig: Rig) -> None:
    """What an operator would see, without the curves."""
    for name, expression in asked().items():
        print(f"    {name}")
        for one in rig.prometheus.query(expression):
            labels = ", ".join(one["metric"].values())
            print(f"        {float(one['value'][1]):12.4g}  {labels}")


def fill(rig: Rig, queries: dict[str, str]) -> dict[str, str]:
    """Wait until every query has shown something once; those that never did, and why."""
    left = dict.fromkeys(queries, "not asked")
    deadline = time.monotonic() + PANELS_S
    while left and time.monotonic() < deadline:
        rig.ask()
        for name in list(left):
            told = nothing(rig.prometheus, queries[name])
            if told:
                left[name] = told
            else:
                del left[name]
        time.sleep(EVERY_S)
    return left


def nothing(prometheus: PrometheusServer, expression: str) -> str:
    """What is wrong with an expression's answer; empty if it has a number."""
    try:
        series = prometheus.query(expression)
    except QueryError as error:
        return f"{error} in {expression}"
    if not series:
        return f"no series: {expression}"
    return "" if any(float(one["value"][1]) == float(one["value"][1]) for one in series) else "NaN"


def shorter_rules() -> str:
    """The rule file, with less time for everything."""
    rules = alert_rules()
    for time_, shorter in SHORTER.items():
        rules = re.sub(time_, shorter, rules, flags=re.MULTILINE)
    return rules


def alerts() -> dict[str, str]:
    """Expressions of all rules, by the alert's name."""
    groups = yaml.safe_load(shorter_rules())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def parts(expression: str) -> list[str]:
    """What an alert measures, without the conditions."""
    return [STEP.sub("", part) for part in expression.split(" and ")]


def filled(expression: str) -> str:
    """An expression as Grafana sends it."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def choices(prometheus: PrometheusServer, variable: dict[str, Any]) -> list[str]:
    """What can be chosen at the top of the dashboard."""
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
    assert found is not None
    return prometheus.label_values(found[2], filled(found[1]))


def print_missing(bars: Bars, title: str, missing: dict[str, str], of: int) -> None:
    for name, told in missing.items():
        print(f"    {name}: {told}", file=sys.stderr)
    bars.hold(f"{title} (of {of})", len(missing), not missing, "0")


# -- something is wrong ---------------------------------------------------------------------


def fed_rubbish(rig: Rig) -> None:
    """A sender breaks its events."""
    with rig.causing("rubbish", ["TunerdRejects"], 30):
        rig.send([b'{"schema": "tunerd.job/1", "study": 7}'] * 200)


def starved(rig: Rig) -> None:
    """Jobs come in, somebody asks, and the tuner process stands still."""
    tuner = rig.daemon.tuner_pid
    assert tuner is not None
    try:
        stuck = ["TunerdStalled", "TunerdBehindHistory", "TunerdRequestsUnanswered"]
        with rig.causing("tuner stopped", stuck, 60):
            os.kill(tuner, signal.SIGSTOP)
            rig.send(rig.jobs(FLOOD))
            rig.ask()
    finally:
        os.kill(tuner, signal.SIGCONT)


def cut_off(rig: Rig) -> None:
    """The stream goes away while the tuner works off what it has, and comes back."""
    away = rig.stream.with_name("away")
    try:
        with rig.causing("stream away", ["TunerdUnreachable", "TunerdOutboxOld"], 60):
            rig.stream.rename(away)
            rig.stream.touch()  # also root cannot read a file as a folder
    finally:
        rig.stream.unlink()
        away.rename(rig.stream)
    rest(
        rig,
        [
            "TunerdUnreachable",
            "TunerdOutboxOld",
            "TunerdStalled",
            "TunerdBehindHistory",
            "TunerdRequestsUnanswered",
        ],
    )


def rest(rig: Rig, names: Collection[str]) -> None:
    """Hold that these alerts end by themselves."""
    begin = time.monotonic()
    while (still := rig.prometheus.firing() & set(names)) and time.monotonic() - begin < 60:
        time.sleep(EVERY_S)
    seconds = time.monotonic() - begin
    told = f"all within 60 s ({', '.join(sorted(still)) or 'none fires'})"
    rig.bars.hold("stream back: alerts end after", seconds, not still, told, "s")


def tuner_dies(rig: Rig) -> None:
    """The tuner process is killed, again and again."""
    before = None
    with rig.causing("tuner killed, four times", ["TunerdTunerRestarts"], 60):
        for _ in range(4):
            before = settled(lambda: rig.daemon.tuner_pid, before)
            os.kill(before, signal.SIGKILL)
            time.sleep(2 * EVERY_S)  # an increase is one between two scrapes


def fed_nonsense(rig: Rig) -> None:
    """Jobs report a speed that has nothing to do with how they ran."""
    metric = parse_study(shipped_study(STUDY), STUDY).objective.metric
    rng = random.Random(1)
    lines = []
    for line in rig.jobs(NONSENSE):
        job = json.loads(line)
        if job["metrics"].get(metric):
            job["metrics"][metric] *= math.exp(rng.gauss(0, 1.5))
            lines.append(json.dumps(job).encode())
    with rig.causing("nonsense", ["TunerdRankCorrelationLow", "TunerdCoverageLow"], 90):
        rig.send(lines)


def left_alone(rig: Rig) -> None:
    """An operator pauses the study and forgets it, and no job comes in any more."""
    command = [sys.executable, "-m", "tunerd", "pause", STUDY, "--why", "a look", "--yes"]
    command += ["--settings", str(rig.daemon.file)]
    rig.send(rig.jobs(5))
    with rig.causing("left alone", ["TunerdStudyPaused", "TunerdNoJobs"], DAY_S + 30):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def set_aside(rig: Rig) -> None:
    """The tuner process is killed whenever it is in the middle of this study's step."""
    log = rig.daemon.folder / "daemon.log"
    tuner = settled(lambda: rig.daemon.tuner_pid, None)
    os.kill(tuner, signal.SIGSTOP)
    rig.send(rig.jobs(FLOOD))  # so that a step takes a while
    waiting = f'tunerd_unlearned_observations{{study="{STUDY}"}}'
    rig.daemon.wait_for(waiting, FLOOD, 120)
    with rig.causing("killed in every step", ["TunerdStudySetAside"], 60):
        for _ in range(6):
            loaded = log.read_text().count("study loaded")
            os.kill(tuner, signal.SIGKILL)
            tuner = settled(lambda: rig.daemon.tuner_pid, tuner)
            deadline = time.monotonic() + 20
            while log.read_text().count("study loaded") == loaded and time.monotonic() < deadline:
                time.sleep(0.02)
            if rig.daemon.metric(f'tunerd_study_set_aside{{study="{STUDY}"}}'):
                break
            time.sleep(0.1)


def settled(find: Callable[[], int | None], before: int | None) -> int:
    """A process id that is not the one before."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = find()
        if found is not None and found != before:
            return found
        time.sleep(0.05)
    raise RuntimeError("the tuner process was not replaced")


def flooded(rig: Rig) -> None:
    """Records come in faster than they are ingested: copies, which teach nothing."""
    line = rig.jobs(1)
    ended = threading.Event()

    def pour() -> None:
        while not ended.wait(0.1):
            rig.send(line * 500)

    pouring = threading.Thread(target=pour)
    try:
        with rig.causing("flooded", ["TunerdBehindStream"], 60):
            pouring.start()
    finally:
        ended.set()
        pouring.join()


def killed(rig: Rig) -> None:
    """``kill -9``."""
    assert rig.daemon.process is not None
    with rig.causing("daemon killed", ["TunerdDown"], 30):
        rig.daemon.process.kill()


def restarted(rig: Rig) -> None:
    """It is started anew and killed again, several times."""
    with rig.causing("started five times", ["TunerdRestarting"], 60):
        for _ in range(5):
            rig.daemon.spawn()
            rig.daemon.wait_for(
                'tunerd_stage_last_progress_timestamp_seconds{stage="ingest"}', 1, 30
            )
            time.sleep(3 * EVERY_S)
            assert rig.daemon.process is not None
            rig.daemon.process.kill()
            rig.daemon.process.wait()


def forgotten(rig: Rig) -> None:
    """Somebody takes it out of Prometheus' configuration."""
    with rig.causing("not scraped", ["TunerdMissing"], 30):
        rig.prometheus.scrape_nothing()


if __name__ == "__main__":
    sys.exit(main())
