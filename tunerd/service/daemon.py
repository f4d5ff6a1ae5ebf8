"""The daemon: which stages run where, and the order of side effects.

The parent keeps ingest, requests, publish and HTTP, each in a thread, and supervises one tuner
process. A stage that fails for a reason outside (broker or database away) waits and goes on; any
other exception is a fault of ours and ends the process with status 1: what is committed is
committed, and a fresh start goes on from there.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs
from starlette.types import ASGIApp

from tunerd import logs, telemetry
from tunerd.connections import instance_name, stream_of, unchecked_store_of
from tunerd.errors import (
    AlreadyRunningError,
    CannotStartError,
    FencedOutError,
    MisconfiguredError,
    StoreBehindError,
    StoreUnavailableError,
    StreamUnavailableError,
    ValidationProblem,
)
from tunerd.events import EventFormat
from tunerd.files import make_folder
from tunerd.metrics import MetricsExporter
from tunerd.service.gauges import GaugeSampler
from tunerd.service.health import HealthMonitor
from tunerd.service.idle import IdlePause
from tunerd.service.membership import BEAT_S, Membership, refuse_strangers
from tunerd.service.systemd import SystemdNotifier
from tunerd.service.topic_watch import TopicWatch
from tunerd.service.tuner_process import TunerProcess
from tunerd.settings import Settings, dump_settings, load_settings
from tunerd.settings.model import HttpSettings
from tunerd.stages import Stage
from tunerd.stages.build_info import whole_code
from tunerd.stages.forecast import ForecastStage
from tunerd.stages.ingest import IngestStage
from tunerd.stages.prometheus import PrometheusStage
from tunerd.stages.publish import PublishStage
from tunerd.stages.requests import RequestStage
from tunerd.stages.topic_check import why_behind
from tunerd.stages.upkeep import TopicRepair
from tunerd.store import InstanceLock, Store, folder_guard
from tunerd.streams.base import Stream
from tunerd.ui import LazyPages, is_loopback
from tunerd.ui.certificate import ReloadingCertificate
from tunerd.ui.server import HttpServer

__all__ = ["STAGES", "run"]

Answer = TypeVar("Answer")

STAGES = ("ingest", "requests", "tune", "publish")

STOPPED, CRASHED, MISCONFIGURED = 0, 1, 2

SWITCH_S = 0.0005
"""How long a thread may keep the interpreter while others want it. A stage gives it up with every
query and every message; with Python's 5 ms it waited as long each time for a page that is made."""
TROUBLE_S = 1.0
SLOW_S = 3.0
"""A start that waits for longer says what for."""
STREAM_WAIT_S = 60.0
"""How long a start waits for brokers that are slow or start again. Then it ends, and is started
again by whoever started it: systemd waits for three minutes, the startup probe for five."""
STOP_S = 4.0
"""How long the stages may take to end their steps: of the five seconds that the daemon has."""
SUPERVISE_S = 0.1
LATEST_S = 4.6
"""When the process ends after a signal, whatever it is at: where others want the cores too, freeing
its memory and joining its threads took up to six seconds more."""
GIVES_BACK_S = 0.5
"""What giving the store back may take where that has passed."""
GAUGES_S = 2.0
BESIDE_AGAIN_S = 300.0
"""How long a stage that no job waits for waits after it failed."""
TOPICS_S = 5.0
"""How often it is seen whether the topics are as they should be."""


def run(settings: Settings, stages: Collection[str], file: Path | None) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code: 0 stopped, 1 crashed, 2 misconfigured.

    ``file`` is where the settings came from; it is read again on SIGHUP.
    """
    log = logs.configure(settings.log)
    whole_code()  # as it is now: the files may be replaced later
    sys.setswitchinterval(SWITCH_S)
    daemon = _Daemon(settings, frozenset(stages), file, log)
    try:
        return daemon.run()
    except _StoppedMeanwhileError:
        log.info("stopped")
        return STOPPED
    except (AlreadyRunningError, MisconfiguredError) as error:
        log.error("cannot start", problem=str(error))
        return MISCONFIGURED
    except (CannotStartError, StoreUnavailableError, StreamUnavailableError) as error:
        log.error("cannot start", problem=str(error))
        return CRASHED
    except Exception:
        log.exception("crashed")
        return CRASHED


class _StoppedMeanwhileError(Exception):
    """Somebody wants it to stop that has not started yet."""


@dataclass
class _Daemon:
    settings: Settings
    stages: frozenset[str]
    file: Path | None
    log: logs.Log
    stop: threading.Event = field(default_factory=threading.Event)
    reload: threading.Event = field(default_factory=threading.Event)
    metrics: MetricsExporter = field(default_factory=MetricsExporter)
    systemd: SystemdNotifier = field(
        default_factory=lambda: SystemdNotifier.from_environ(os.environ)
    )
    ingest: IngestStage | None = None
    publish: PublishStage | None = None
    members: Membership | None = None
    """This daemon among others that share its store; None where it has the store to itself."""
    waiting_for: dict[str, str] = field(default_factory=dict)
    """Stages whose last step could not reach the stream or the store."""
    crashed: bool = False
    replaced: bool = False
    """Whether another daemon has this one's name: a new start would only take it back."""
    left_behind: bool = False
    stop_by: float = 0.0
    asked_at: float = 0.0
    """When a signal came."""

    def run(self) -> int:
        settings, started = self.settings, time.monotonic()
        self.health = HealthMonitor(
            [name for name in STAGES if name in self.stages],
            settings.http.stalled_after_s,
            time.monotonic,
            children=["tune"],
        )
        with ExitStack() as open_until_end, self._signals():
            with _had(f"data_dir {settings.data_dir}"):
                make_folder(settings.data_dir)
            with self._store_wait_told():
                store = self._open(open_until_end)
            if settings.stream.kind == "jsonl":
                with _had(f"stream.folder {settings.stream.folder}"):
                    make_folder(settings.stream.folder)
                folder = open_until_end.enter_context(folder_guard(settings.stream.folder, _now()))
                self.guards["folder"] = folder
            stream = stream_of(settings)
            reach_by = time.monotonic() + STREAM_WAIT_S
            # Before it is one of several: it would be silent for as long as it waits.
            self._reach(stream.ensure_topics, reach_by)
            if self._shares(store):
                stages = [name for name in STAGES if name in self.stages]
                self.members = Membership.join(settings, stages, store)
                open_until_end.callback(self.members.leave)
            with self._store_wait_told():
                publish_studies(settings, store, self.log)
            if self.stages & {"tune", "publish"}:
                topic = settings.topics.recommendations
                if problem := self._reach(partial(why_behind, store, stream, topic), reach_by):
                    raise MisconfiguredError([ValidationProblem("store.url", problem)])
            for stage in self.stages:
                self.metrics.hear(telemetry.StageStarting(stage=stage))  # type: ignore[arg-type]
            server = self._serve(store, open_until_end)
            tuner = self._start_tuner(open_until_end)
            self._start_loops(open_until_end, store, stream, tuner)
            self.log.info(
                "started",
                stages=sorted(self.stages),
                stream=settings.stream.kind,
                http=server.url if server else None,
                seconds=round(time.monotonic() - started, 2),
            )
            self.systemd.ready()
            self._supervise(store, tuner)
            self.systemd.stopping()
            self.log.info("stopping")
            self.stop_by = (self.asked_at or time.monotonic()) + STOP_S
            if tuner is not None:
                tuner.ask_to_stop()  # it ends its step while the others end theirs
        self.log.info("stopped")
        return self._code

    def _shares(self, store: Store) -> bool:
        """Whether several daemons can work on this store and stream at once."""
        return store.is_shareable and self.settings.stream.kind == "kafka"

    def _claim(self, store: Store) -> InstanceLock:
        """The store: together with others where that is possible, else alone."""
        if not self._shares(store):
            return store.guard(_now())
        # Two of the same folder would be one and the same instance to everybody else.
        return store.share(instance_name(self.settings), _now())

    @property
    def _code(self) -> int:
        if self.replaced:
            return MISCONFIGURED
        return CRASHED if self.crashed else STOPPED

    def _give_back(self, guard: InstanceLock) -> None:
        """Leave at once where a thread waits for a broker or a database that does not answer:
        giving the store back would wait for it too, and so would the interpreter. What is committed
        is committed; what was on its way is looked for next time. And where nothing has asked the
        database lately, it may not answer this."""
        if not self.stop_by:
            self._release(guard)  # it never ran, and what kept it from starting is still to be told
            return
        if not self.left_behind:
            last = threading.Thread(target=self._release, args=(guard,), name="store", daemon=True)
            last.start()
            last.join(max(GIVES_BACK_S, self.stop_by - time.monotonic()))
            self.left_behind = last.is_alive()
        if self.left_behind:
            self._leave()

    def _leave(self) -> None:
        """End this very moment. What is committed is committed."""
        self.log.info("stopped")
        self._end()

    def _end(self) -> None:
        os._exit(self._code)

    def _asked(self) -> None:
        """Somebody wants it to stop: it does so in order, and in time whatever happens."""
        if not self.stop.is_set():
            self.stop.set()
            self.asked_at = time.monotonic()
            # The second one where even the log stands still.
            for after_s, end in ((LATEST_S, self._leave), (LATEST_S + 0.2, self._end)):
                latest = threading.Timer(after_s, end)
                latest.daemon = True
                latest.start()

    def _release(self, guard: InstanceLock) -> None:
        with suppress(StoreUnavailableError):  # the lock goes with the connection
            guard.release()

    # -- starting ---------------------------------------------------------------------------

    def _reach(self, ask: Callable[[], Answer], by: float) -> Answer:
        """What a start asks of the stream, which may be slow or start again: asked until then."""
        logged = ""
        while not self.stop.is_set():
            try:
                return ask()
            except StreamUnavailableError as error:
                left = by - time.monotonic()
                if not error.may_pass or left <= 0:
                    raise
                problem = str(error)
                if problem != logged:
                    logged = problem
                    self.log.warning("the start waits", for_at_most_s=round(left), problem=problem)
            self.stop.wait(TROUBLE_S)
        raise _StoppedMeanwhileError

    def _pages(self, store: Store, open_until_end: ExitStack) -> ASGIApp | None:
        """The pages, which are imported when the first is asked for."""
        http = self.settings.http
        wanted = http.pages
        if wanted is None:
            wanted = bool(is_loopback(http.host) or http.names or http.read_token)
        if not wanted:
            return None
        pages = LazyPages(
            store,
            metrics=self.metrics.render,
            problems=lambda: [*self.health.problems(), *self.health.remarks()],
            arguments=() if self.file is None else (f"--settings={self.file}",),
            host=http.host,
            token=http.token.get_secret_value() if http.actions and http.token else None,
            names=[name.strip() for name in http.names.split(",") if name.strip()],
        )
        open_until_end.callback(pages.close)
        return pages

    def _serve(self, store: Store, open_until_end: ExitStack) -> HttpServer | None:
        http = self.settings.http
        if not http.enabled:
            return None
        certificate = _certificate(http)
        pages = self._pages(store, open_until_end)
        with _had(f"http.host {http.host}, http.port {http.port}"):
            server = HttpServer(
                http.host,
                http.port,
                self.metrics.render,
                ready=self.health.problems,
                alive=self.health.hung,
                remarks=self.health.remarks,
                pages=pages,
                role=self._role,
                certificate=certificate,
                token=http.read_token.get_secret_value() if http.read_token else None,
            )
        open_until_end.callback(server.close)
        return server

    def _role(self) -> dict[str, Any]:
        """What this one of several instances does; empty where it has the store to itself."""
        members = self.members
        if members is None:
            return {}
        return {
            "instance": members.name,
            "publishes": self.publish is not None and self.publish.leads,
            "partitions": [] if self.ingest is None else self.ingest.partitions(),
            "studies": sorted(members.studies),
            "others": [row.name for row in members.others],
        }

    @property
    def _placed(self) -> Sequence[str]:
        """What the tuner process is told of the other instances."""
        members = self.members
        if members is None:
            return ()
        return f"--instance={members.name}", f"--owner={members.owner}"

    def _start_tuner(self, open_until_end: ExitStack) -> TunerProcess | None:
        if "tune" not in self.stages:
            return None
        tune = self.settings.tune
        tuner = TunerProcess(
            settings=dump_settings(self.settings),
            step_deadline_s=tune.step_deadline_s,
            max_crashes=tune.max_crashes,
            clock=time.monotonic,
            on_report=self._heard_from_tuner,
            on_exit=self._lost_tuner,
            on_return=self._tried_again,
            arguments=[f"--code={whole_code()}", *self._placed],
        )
        if self.members is not None:
            self.members.tuner_is_well = tuner.is_well
        self.health.note("tuner", "tune: the tuner process is starting")
        open_until_end.callback(tuner.stop)
        return tuner

    def _start_loops(
        self, open_until_end: ExitStack, store: Store, stream: Stream, tuner: TunerProcess | None
    ) -> None:
        loops = self._make_stages(store, stream)
        gauges = GaugeSampler(
            store,
            stream,
            self.guards,
            self.settings.topics.recommendations,
            self.ingest,
            tuner,
            self.waiting_for.__contains__,
            self.metrics.hear,
            self._note,
            _now,
            self.members,
        )
        threads = [
            threading.Thread(target=self._measure, args=(gauges,), name="gauges"),
            threading.Thread(target=self._watch, args=(stream, store), name="topics"),
        ]
        for name, make in self._makers_beside(store).items():
            threads.append(threading.Thread(target=self._beside, args=(name, make), name=name))
        threads += [
            threading.Thread(target=self._loop, args=(stage,), name=stage.name) for stage in loops
        ]
        if self.members is not None:
            threads.append(
                threading.Thread(target=self._beat, args=(self.members,), name="heartbeat")
            )
        for thread in threads:
            thread.start()
            open_until_end.callback(self._join, thread)
            open_until_end.callback(self.stop.set)

    def _make_stages(self, store: Store, stream: Stream) -> list[Stage]:
        """The stages that run in threads of this process; tune has a process of its own."""
        settings = self.settings
        stages: list[Stage] = []
        group = settings.stream.kafka.group or settings.name
        reading = (settings.ingest, self.metrics, _now, time.monotonic)
        if "ingest" in self.stages:
            self.ingest = IngestStage(stream, store, settings.topics, group, *reading)
            self.ingest.mappings = _mappings(settings)
            if self.members is not None:
                self.members.ingest = self.ingest
            stages.append(self.ingest)
        if "requests" in self.stages:
            # A group of its own: a member of the jobs' group must not be fenced by this one.
            stages.append(
                RequestStage(stream, store, settings.topics, f"{group}.requests", *reading)
            )
        if "publish" in self.stages:
            self.publish = self._make_publish(store, stream)
            stages.append(self.publish)
        return stages

    def _make_publish(self, store: Store, stream: Stream) -> PublishStage:
        settings = self.settings
        publish = PublishStage(
            stream,
            store,
            settings.publish,
            settings.topics,
            settings.name,
            self,
            _now,
            time.monotonic,
            None if self.members is None else self.members.owner,
        )
        # Beside others it might say what one of them has just said otherwise.
        alone = self.members is None or self.members.alone
        if alone and (again := publish.say_again()):
            topic = settings.topics.recommendations
            self.log.info("an empty topic gets what is active", topic=topic, messages=again)
        return publish

    def _join(self, thread: threading.Thread) -> None:
        """Wait for a stage's step to end, but not for longer than a stop may take."""
        thread.join(max(0.0, self.stop_by - time.monotonic()))
        if thread.is_alive():
            self.log.warning("not waiting for a step that takes too long", stage=thread.name)
            self.left_behind = True

    # -- running ----------------------------------------------------------------------------

    def _loop(self, stage: Stage) -> None:
        """One stage, step by step, until the daemon stops."""
        pause = IdlePause()
        try:
            while not self.stop.is_set():
                try:
                    worked = stage.step()
                except (StreamUnavailableError, StoreUnavailableError) as error:
                    self._trouble(stage.name, error)
                    self.stop.wait(TROUBLE_S)
                    continue
                self._well(stage.name, worked)
                self.stop.wait(pause.after(worked))
        except FencedOutError as error:
            self.log.error(
                "another daemon has taken over; this one ends",
                stage=stage.name,
                problem=f"{error}. Two daemons with the name {self.settings.name} run on this "
                "Kafka, and the later one wins: stop one, or give it another `name`",
            )
            self.replaced = True
            self.stop.set()
        except StoreBehindError as error:
            self._end_behind(error)
        except Exception:
            self.log.exception("stage crashed", stage=stage.name)
            self.crashed = True
            self.stop.set()
        finally:
            stage.close()

    def _end_behind(self, error: StoreBehindError) -> None:
        self.log.error("the store lost what it knew", problem=str(error))
        self.crashed = True
        self.stop.set()

    def _open(self, open_until_end: ExitStack) -> Store:
        """Open the store, claim it and bring its schema up to date."""
        store = open_until_end.enter_context(unchecked_store_of(self.settings))
        self.guards = {"store": self._claim(store)}
        open_until_end.callback(self._give_back, self.guards["store"])
        # Whoever may not have the store must not change it either.
        if self._shares(store):
            refuse_strangers(self.settings, store)
        store.upgrade_schema()
        self.guards["store"].check()  # a new store had no room for the name of its holder
        return store

    @contextmanager
    def _store_wait_told(self) -> Iterator[None]:
        """Say that a start waits for the store, where nothing else would be heard of it."""
        event = "the start waits for the store: another may hold it locked"
        timer = threading.Timer(SLOW_S, self.log.warning, [event])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _supervise(self, store: Store, tuner: TunerProcess | None) -> None:
        """The parent's own loop: the tuner process, reloads and the watchdog."""
        while not self.stop.wait(SUPERVISE_S):
            if tuner is not None:
                tuner.supervise()
            if self.reload.is_set():
                self.reload.clear()
                self._reload(store)
            if not self.health.hung():
                self.systemd.alive()

    def _beat(self, members: Membership) -> None:
        """Say to the other instances that this one is there."""
        try:
            while not self.stop.is_set():
                with suppress(StoreUnavailableError):  # the stages say so; leases run out meanwhile
                    members.beat()
                self.stop.wait(BEAT_S)
        except AlreadyRunningError as error:
            self.log.error("another daemon has taken over; this one ends", problem=str(error))
            self.replaced = True
            self.stop.set()
        except Exception:
            self.log.exception("heartbeat crashed")
            self.crashed = True
            self.stop.set()

    def _measure(self, gauges: GaugeSampler) -> None:
        try:
            while not self.stop.is_set():
                for event, problem in gauges.measure():
                    self.log.error(event, problem=problem)
                    self.crashed = True
                    self.stop.set()
                if self.ingest is not None:
                    self.health.remark("jobs", "; ".join(self.ingest.remarks()))
                self.stop.wait(GAUGES_S)
        except Exception:
            self.log.exception("measuring crashed")
            self.crashed = True
            self.stop.set()

    def _makers_beside(self, store: Store) -> dict[str, Callable[[], Stage]]:
        """Stages that no job waits for."""
        # The same after every start where it has the store to itself: what a killed one held would
        # keep this one waiting for a quarter of an hour.
        owner = self.settings.name if self.members is None else self.members.owner
        topics, prometheus = self.settings.topics, self.settings.signals.prometheus
        makers: dict[str, Callable[[], Stage]] = {}
        if "tune" in self.stages:
            names = topics.recommendations, topics.drift
            makers["forecasts"] = partial(ForecastStage, store, owner, self.log, _now, *names)
        if "ingest" in self.stages and prometheus.queries:
            asking = (store, prometheus, owner, self.metrics, self.log, self.health.remark, _now)
            makers["prometheus"] = partial(PrometheusStage, *asking)
        return makers

    def _beside(self, name: str, make: Callable[[], Stage]) -> None:
        """A stage that no job waits for: where it fails, the rest goes on."""
        stage = make()
        while not self.stop.is_set():
            worked = False
            try:
                worked = stage.step()
            except StoreUnavailableError:  # the stages say so
                self.stop.wait(TROUBLE_S)
            except Exception:
                self.log.exception(f"{name} failed")
                stage = make()
                self.stop.wait(BESIDE_AGAIN_S)
            if not worked:
                self.stop.wait(GAUGES_S)
        with suppress(StoreUnavailableError):  # the lease runs out by itself
            stage.close()

    def _watch(self, stream: Stream, store: Store) -> None:
        """Whether the topics are as they should be, and what holds is on its topic."""
        watch = TopicWatch(
            stream,
            TopicRepair.of(stream, store, self.settings.topics.recommendations, _now)
            if "publish" in self.stages
            else None,
            self.settings.topics,
            self.health,
            self.log,
            self.metrics.hear,
            lambda: self.publish is not None and self.publish.leads,
        )
        try:
            while not self.stop.is_set():
                watch.step()
                self.stop.wait(TOPICS_S)
        except StoreBehindError as error:
            self._end_behind(error)
        except Exception:
            self.log.exception("watching the topics crashed")
            self.crashed = True
            self.stop.set()
        finally:
            watch.close()

    def _note(self, subject: str, problem: str) -> None:
        if self.health.note(subject, problem) and problem:
            self.log.error("not ready", problem=problem)

    def _reload(self, store: Store) -> None:
        self.systemd.reloading()
        try:
            settings = load_settings(self.file, os.environ)
            publish_studies(settings, store, self.log, explicit=True)
            if self.ingest is not None:
                self.ingest.mappings = _mappings(settings)
        except (MisconfiguredError, StoreUnavailableError) as error:
            self.log.error("studies not reloaded, the old ones stay", problem=str(error))
        self.systemd.ready()

    def _well(self, stage: str, worked: bool) -> None:
        if self.health.stepped(stage, worked):
            what = self.waiting_for.pop(stage)
            self.log.info(f"{what} available again", stage=stage)
        reachable = stage not in self.waiting_for
        self.metrics.hear(
            telemetry.StageProgressed(stage=stage, worked=worked, reachable=reachable)  # type: ignore[arg-type]
        )

    def _trouble(self, stage: str, error: Exception) -> None:
        what = "stream" if isinstance(error, StreamUnavailableError) else "store"
        self.waiting_for[stage] = what
        self.metrics.hear(
            telemetry.DependencyUnreachable(stage=stage, what=what, problem=str(error))  # type: ignore[arg-type]
        )
        if self.health.troubled(stage, str(error)):
            self.log.warning(f"{what} unavailable, trying again", stage=stage, problem=str(error))

    def hear(self, report: telemetry.Report, /) -> None:
        """What the publish stage says: for the metrics, and for the log what somebody must see."""
        self.metrics.hear(report)
        if isinstance(report, telemetry.MessageDropped):
            self.log.error(
                "message let go: the stream can never take it",
                kind=report.kind,
                id=report.message_id,
                problem=report.problem,
            )

    def _heard_from_tuner(self, report: telemetry.Report) -> None:
        if isinstance(report, telemetry.StageProgressed):
            report = structs.replace(report, reachable=not self.health.is_away("tune"))
        self.metrics.hear(report)
        match report:
            case telemetry.StepStarted():
                self.health.working("tune")
            case telemetry.StageProgressed() | telemetry.StepCommitted():
                self.health.stepped("tune", worked=isinstance(report, telemetry.StepCommitted))
                if isinstance(report, telemetry.StepCommitted):
                    self._quarantined(report)
                self.health.note("tuner", "")
            case telemetry.TunerReady():
                self.health.note("tuner", "")
            case telemetry.DependencyUnreachable():
                self.health.troubled("tune", report.problem)
            case telemetry.StudySetAside():
                self._aside(report.study, report.why)
            case telemetry.StudyLoaded() | telemetry.StudyReleased():
                self.health.remark(f"{report.study} aside", "")
                self._quarantined(report)
            case telemetry.StudyRelearned():
                sentence = (
                    f"study {report.study}: what was saved of it was damaged ({report.why}); "
                )
                sentence += f"it was learned anew from its history, {_now():%Y-%m-%d %H:%M} UTC"
                self.health.remark(f"{report.study} anew", sentence)

    def _quarantined(self, report: telemetry.StudyStatus | telemetry.StudyReleased) -> None:
        """Somebody must see that jobs wait; a study that is another's is theirs to show."""
        jobs = report.quarantined if isinstance(report, telemetry.StudyStatus) else 0
        what = f"study {report.study}: {jobs} jobs in quarantine, which nothing is learned from; "
        what += "`tunerd quarantine list` names them"
        self.health.remark(f"{report.study} quarantine", what if jobs else "")

    def _aside(self, study: str, why: str) -> None:
        self.health.remark(f"{study} aside", f"study {study} is set aside and not tuned: {why}")

    def _tried_again(self, study: str) -> None:
        self.health.remark(f"{study} aside", "")
        self.metrics.hear(telemetry.StudySetAside(study=study, aside=False))
        self.log.info("study tried again that was too slow", study=study)

    def _lost_tuner(self, study: str, cause: str, set_aside: str) -> None:
        self.health.note("tuner", f"tune: the tuner process is being replaced: {cause}")
        self.metrics.hear(
            telemetry.TunerRestarted(why="deadline" if "took more than" in cause else "died")
        )
        self.log.error("tuner process replaced", study=study or None, cause=cause)
        if set_aside:
            self.metrics.hear(telemetry.StudySetAside(study=study, why=set_aside))
            self._aside(study, f"{set_aside}; the log says more")
            self.log.error("study set aside", study=study, problem=set_aside)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop, SIGHUP reloads; the old handlers come back at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield  # a test that runs the daemon in a thread stops it by its event
            return
        wanted: dict[int, Callable[..., None]] = {
            signal.SIGTERM: lambda *_: self._asked(),
            signal.SIGINT: lambda *_: self._asked(),
            signal.SIGHUP: lambda *_: self.reload.set(),
        }
        before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, wanted)  # what came during the start comes now
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _had(what: str) -> Iterator[None]:
    """The machine's refusal in one line that names the setting, and no traceback."""
    try:
        yield
    except OSError as error:
        raise CannotStartError(f"{what}: {error.strerror or error}") from error


def _mappings(settings: Settings) -> Sequence[EventFormat]:
    """Formats of records that a settings file describes."""
    if settings.ingest.mappings is None:
        return ()
    from tunerd.events.mapping import load_mappings

    return load_mappings(settings.ingest.mappings)


def publish_studies(
    settings: Settings, store: Store, log: logs.Log, *, explicit: bool = False
) -> None:
    """Put the study files into the store as generations, where they are newer than what is there.

    ``explicit``: an operator asked for it, so a file with older content counts as newer.
    """
    from tunerd.settings.studies import load_studies, passed_over

    who = f"{settings.name}@{os.uname().nodename}"
    for problem in passed_over(settings.studies):
        log.warning("a file is passed over", problem=problem)
    for study in load_studies(settings.studies):
        published = store.publish_generation(
            study.name, study.content_hash, study.text, who, _now(), force=explicit
        )
        fields = {"study": study.name, "mode": study.mode, "generation": published.generation}
        if published.outcome == "older":
            log.warning(
                "study file is older than the store's and not used; `tunerd reload` forces it",
                **fields,
            )
        else:
            log.info("study", outcome=published.outcome, **fields)


def _now() -> datetime:
    return datetime.now(UTC)


def _certificate(http: HttpSettings) -> ReloadingCertificate | None:
    """What HTTPS is served with; None where HTTP is."""
    if http.certificate_file is None or http.key_file is None:
        return None
    where = "http.certificate_file", "http.key_file"
    return ReloadingCertificate.configured(http.certificate_file, http.key_file, where)
