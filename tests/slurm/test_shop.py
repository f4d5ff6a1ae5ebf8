"""A Slurm shop: a real Slurm, a real daemon, and a script that knows nothing of tunerd."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.needs import need_program, without
from tests.servers import MissingServerError, free_ports, wait_until
from tests.servers.slurm import SlurmServer
from tests.test_client import message
from tunerd.client import RecommendationFile, Recommendations, context_key
from tunerd.errors import TunerdError
from tunerd.store import open_store

DEPLOY = Path(__file__).parents[2] / "deploy" / "slurm"
STUDY = """
schema = 1
name = "compress"
mode = "publish"
explore_share = 0.5
objective = { metric = "elapsed_s", goal = "minimize", unit = "s", scale = "log" }
context.dataset = { type = "category" }
parameters.level = { type = "int", values = [1, 2, 3] }
parameters.how = { type = "category", values = ["plain", "very thorough"] }
[[baseline]]
config = { level = 3, how = "plain" }
"""
FEATURES = {"dataset": "category"}
KEY = context_key("compress", FEATURES, {"dataset": "logs é"})
SCRIPT = """#!/bin/sh
env >"$SLURM_SUBMIT_DIR/seen.$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"
sleep "${PAUSE:-${LEVEL:-3}}"
exit "${CODE:-0}"
"""
STUDIES = """
return {
  cluster = "a",
  file = %(file)s,
  spool = %(spool)s,
  task_prolog = true,
  studies = {
    {
      study = "compress",
      match = { name = "^compress" },
      features = { dataset = "category" },
      context = { dataset = function(job) return job.environment.DATASET end },
      variables = { level = "LEVEL", how = "HOW" },
      defaults = { level = 3, how = "plain" },
      elapsed = "elapsed_s",
    },
  },
}
"""
SUBMITS_WITHIN_S = 5.0
"""sbatch takes 0.03 s; the rest is for a busy machine."""


class Shop:
    """A folder with everything, and jobs in it."""

    def __init__(self, folder: Path, jobcomp: str) -> None:
        self.folder = folder
        self.file, self.spool = (
            folder / "local" / "recommendations.jsonl",
            folder / "local" / "events",
        )
        self.file.parent.mkdir(parents=True)
        (folder / "studies").mkdir()
        (folder / "studies" / "compress.toml").write_text(STUDY)
        (port,) = free_ports(1)
        (folder / "tunerd.toml").write_text(f"[http]\nport = {port}\n")
        self.script = folder / "compress.sh"
        self.script.write_text(SCRIPT)
        self.script.chmod(0o755)
        paths = {"file": json.dumps(str(self.file)), "spool": json.dumps(str(self.spool))}
        settings = {
            "JobSubmitPlugins": "lua",
            "JobCompType": jobcomp,
            "JobCompLoc": str(folder / "slurm" / "jobcomp_script"),
            "TaskProlog": str(DEPLOY / "task_prolog"),
        }
        try:
            self.slurm = SlurmServer(folder / "slurm", settings)
        except MissingServerError as error:
            without("real Slurm", str(error))
        # The plugins look for their files beside slurm.conf.
        for name in ("tunerd.lua", "job_submit.lua", "jobcomp.lua", "jobcomp_script"):
            (folder / "slurm" / name).symlink_to(DEPLOY / name)
        (folder / "slurm" / "tunerd_studies.lua").write_text(STUDIES % paths)
        self._programs: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        return {k: v for k, v in os.environ.items() if not k.startswith(("TUNERD_", "SLURM_"))}

    def tunerd(self, *arguments: object) -> str:
        command = [sys.executable, "-m", "tunerd", *map(str, arguments)]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    def start(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "tunerd", *map(str, arguments)]
        with (self.folder / f"{arguments[0]}.log").open("ab") as log:
            self._programs.append(
                subprocess.Popen(command, cwd=self.folder, env=self.environment, stderr=log)
            )

    def stop(self) -> None:
        self.slurm.stop()
        for program in self._programs:
            program.send_signal(signal.SIGTERM)
        for program in self._programs:
            program.wait(60)

    def submit(self, *arguments: object, **environment: str) -> str:
        """A job of the unmodified script; that it was taken within the time is checked."""
        began = time.monotonic()
        job = self.slurm.sbatch(*arguments, self.script, env={"DATASET": "logs é", **environment})
        assert time.monotonic() - began < SUBMITS_WITHIN_S
        return job

    def seen(self, job: str, restarts: int = 0) -> dict[str, str]:
        """The environment that a job had, without what Slurm itself sets."""
        text = (self.folder / "slurm" / f"seen.{job}.{restarts}").read_text()
        found = dict(line.partition("=")[::2] for line in text.splitlines())
        return {k: v for k, v in found.items() if k in ("LEVEL", "HOW") or k.startswith("TUNERD_")}

    def numbers(self, array: str) -> dict[int, str]:
        """The job of each task of an array, by the task's number."""
        said = self.slurm.run(
            "squeue", "--noheader", "--states=all", "--jobs", array, "--array", "--format=%K %A"
        )
        return {int(line.split()[0]): line.split()[1] for line in said.splitlines()}

    def halves(self) -> list[dict[str, Any]]:
        """What the plugin told, whether it was sent or waits."""
        topic = self.folder / "tunerd-data" / "stream" / "tunerd.jobs.jsonl"
        files = [topic, self.spool.with_name("events.sending"), self.spool]
        found = [line for file in files if file.exists() for line in file.read_text().splitlines()]
        return [json.loads(line) for line in dict.fromkeys(found)]

    def log(self) -> str:
        return self.slurm.controller_log.read_text()

    def recommend(self, *shares: float, **changes: Any) -> None:
        """A local file as tunerd subscribe writes it."""
        now = datetime.now(UTC)
        times = {"issued_at": now, "valid_until": now + timedelta(days=7)}
        said = message(*shares, key=KEY, **(times | changes))
        for candidate, level in zip(said["candidates"], (1, 3), strict=False):
            candidate["config"] = {"level": level, "how": "very thorough"}
        said["incumbent"]["config"] = {"level": 2, "how": 'it\'s "plain"'}
        known = Recommendations()
        known.take(KEY, said)
        known.save(self.file)


@pytest.fixture
def jobcomp() -> str:
    """Which of Slurm's plugins tells how jobs end."""
    return "jobcomp/lua"


both = pytest.mark.parametrize("jobcomp", ["jobcomp/lua", "jobcomp/script"])


@pytest.fixture
def shop(tmp_path: Path, jobcomp: str) -> Iterator[Shop]:
    need_program("lua5.1", "lua5.1")
    made = Shop(tmp_path, jobcomp)
    made.slurm.start()
    yield made
    made.stop()


def observed(shop: Shop) -> int:
    """Jobs that the daemon has learned."""
    file = shop.folder / "tunerd-data" / "tunerd.sqlite"
    try:
        with open_store(f"sqlite:///{file}", upgrade=False) as store:
            row = store.study("compress")
            return 0 if row is None else row.learned_sequence
    except TunerdError:  # it is being made
        return 0


@pytest.mark.timeout(300)
@both
def test_thirty_jobs_of_a_script_that_knows_nothing(shop: Shop) -> None:
    """Each is joined once, recommendations are followed, and slurmctld is killed on the way."""
    shop.start("run")
    wait_until((shop.folder / "tunerd-data" / "stream").exists, 60, "the daemon starts")
    shop.start("subscribe", "--file", shop.file, "--spool", shop.spool)
    wait_until(shop.file.exists, 60, "a file of recommendations")
    jobs = [shop.submit() for _ in range(2)]  # then half of the jobs are to try something
    shop.slurm.wait_for(jobs, 60)
    wait_until(lambda: observed(shop) >= 2, 60, "the daemon learns")
    wait_until(lambda: KEY in shop.file.read_text(), 30, "a recommendation")
    running = [shop.submit(PAUSE="15") for _ in range(2)]
    jobs += [shop.submit() for _ in range(9)]
    shop.slurm.wait_for(jobs, 60)
    # Slurm keeps ended jobs in memory until the script has run for them.
    wait_until(lambda: len(shop.halves()) >= 2 * len(jobs), 30, "ends are told")
    shop.slurm.wait_until_saved()
    assert {shop.slurm.states()[job] for job in running} == {"RUNNING"}
    shop.slurm.kill_controller()
    shop.slurm.start_controller()
    jobs += running + [shop.submit() for _ in range(17)]
    shop.slurm.wait_for(jobs, 90)
    wait_until(lambda: observed(shop) >= 30, 60, "the daemon learns all")

    assert len(jobs) == len(set(jobs)) == 30
    events = shop.halves()
    told = Counter((one["type"], one["job_id"], one["attempt"]) for one in events)
    assert told == Counter({(kind, job, 1): 1 for job in jobs for kind in ("started", "completed")})
    kinds: Counter[str] = Counter()
    for one in events:
        if one["type"] == "started":
            seen = shop.seen(one["job_id"])
            recommended = "recommendation_id" in one
            assert seen.get("LEVEL", "3") == str(one["config"]["level"])
            assert ("TUNERD_CONFIG" in seen) == recommended
            if recommended:
                assert json.loads(seen["TUNERD_CONFIG"]) == one["config"]
                assert seen["TUNERD_PARAM_HOW"] == seen["HOW"] == one["config"]["how"]
            kinds[
                "candidate" if "candidate_id" in one else "none" if not recommended else "other"
            ] += 1
    assert kinds["none"] == 2
    assert kinds["candidate"] >= 1
    assert kinds["candidate"] + kinds["other"] == 28
    (study,) = json.loads(shop.tunerd("status", "compress", "--json"))["studies"]
    assert study["observations"] == 30
    ledger = json.loads(shop.tunerd("ledger", "compress", "--json"))
    # Some of the first ones end when there is something to follow, as if they had ignored it.
    following = Counter(ledger["total"]["following"])
    assert following["followed"] == 28
    assert following["unasked"] + following["ignored"] == 2
    assert sum(ledger["total"]["tried"].values()) == kinds["candidate"]
    assert (shop.folder / "tunerd-data" / "stream" / "tunerd.rejected.jsonl").read_text() == ""
    assert "error: tunerd" not in shop.log().replace("No such file", "")


def test_what_is_chosen_is_in_the_jobs_environment_and_record(shop: Shop) -> None:
    shop.recommend(1.0)
    job = shop.submit(PAUSE="0")
    array = shop.submit("--array=0-1", PAUSE="0")
    own = shop.submit(PAUSE="0", LEVEL="2")
    hostile = shop.submit(PAUSE="0", LEVEL='2\n[2026] error: \x1b[31m"é')
    other = shop.submit("--job-name=other", PAUSE="0")
    asked = shop.submit("--job-name=other", PAUSE="0", TUNERD_SLURM_STUDY="compress")
    none = shop.submit(PAUSE="0", TUNERD_SLURM_STUDY="none")
    shop.slurm.wait_for_all(60)
    for one in (job, asked):
        seen = shop.seen(one)
        assert (seen["LEVEL"], seen["HOW"]) == ("1", "very thorough")
        assert seen["TUNERD_PARAM_HOW"] == "very thorough"
    record = shop.slurm.run("scontrol", "show", "job", job)
    assert '"match": "exact"' in record
    assert '"revision": 1' in record
    assert not shop.seen(other)
    assert set(shop.seen(none)) == {"TUNERD_SLURM_STUDY"}
    assert shop.seen(own) == {"LEVEL": "2"}
    started = {one["job_id"]: one for one in shop.halves() if one["type"] == "started"}
    assert set(started) == {job, f"{array}_0", f"{array}_1", own, hostile, asked}
    assert started[hostile]["config"]["level"] == '2\n[2026] error: \x1b[31m"é'
    assert "\x1b" not in shop.log()
    assert not any(line.startswith("[2026] ") for line in shop.log().splitlines())
    assert started[own]["config"] == {"how": "plain", "level": 2}
    assert "recommendation_id" not in started[own]
    assert started[job]["candidate_id"] == "c1"
    for task in (f"{array}_0", f"{array}_1"):
        assert started[task]["candidate_id"] == "c1"


TRAINER = """#!%(python)s
import time, tunerd.client
with tunerd.client.job("compress", {"dataset": "logs \u00e9"}, halves=True, warmup_steps=0) as job:
    for _ in range(30):
        time.sleep(0.01)
        job.step(samples=job.config["level"])
"""


def test_a_training_takes_what_was_chosen_and_tells_its_speed(shop: Shop) -> None:
    """The plugin tells how it was launched and ended, the training how fast it was."""
    study = shop.folder / "studies" / "compress.toml"
    text = study.read_text().replace(
        '"elapsed_s", goal = "minimize"', '"samples_per_s", goal = "maximize"'
    )
    study.write_text(
        text.replace("samples_per_s", "samples_per_second").replace('"s"', '"samples/s"')
    )
    studies = shop.folder / "slurm" / "tunerd_studies.lua"
    studies.write_text(studies.read_text().replace('elapsed = "elapsed_s",', ""))
    shop.script.write_text(TRAINER % {"python": sys.executable})
    shop.recommend(1.0)
    shop.start("run")
    wait_until((shop.folder / "tunerd-data" / "stream").exists, 60, "the daemon starts")
    settings = str(shop.folder / "tunerd.toml")
    root = str(Path(__file__).parents[2])
    job = shop.submit(TUNERD_SETTINGS=settings, PYTHONPATH=root)
    shop.slurm.wait_for([job], 60)
    shop.tunerd("subscribe", "--once", "--file", shop.folder / "unused", "--spool", shop.spool)
    wait_until(lambda: observed(shop) == 1, 60, "the daemon learns")
    halves = shop.halves()
    assert {(one["type"], one["job_id"]) for one in halves} == {
        (kind, job) for kind in ("started", "reported", "completed")
    }
    started = [one for one in halves if one["type"] == "started"]
    assert len(started) == 2
    for one in started:
        assert one["config"] == {"level": 1, "how": "very thorough"}
        assert (one["recommendation_id"], one["candidate_id"]) == (
            started[0]["recommendation_id"],
            "c1",
        )
    (row,) = json.loads(shop.tunerd("status", "compress", "--json"))["studies"]
    assert row["observations"] == 1


def test_a_job_that_submits_the_next_one_hands_its_environment_on(shop: Shop) -> None:
    """What was set for the outer job is no wish of a user, and not for the inner one."""
    outer = {"LEVEL": "1", "HOW": "very thorough", "TUNERD_SLURM_RETRY": "export LEVEL=9"}
    variables = {"LEVEL": "1", "HOW": "very thorough"}
    outer["TUNERD_SLURM_SET"] = json.dumps({"study": "compress", "variables": variables})
    outer |= {"TUNERD_RECOMMENDATION_ID": "r", "TUNERD_CONFIG": '{"level": 1, "depth": 5}'}
    unknown = shop.submit(PAUSE="0", **outer)
    shop.recommend(0.0)
    known = shop.submit(PAUSE="0", **outer)
    changed = shop.submit(PAUSE="0", **outer | {"LEVEL": "3"})
    shop.slurm.wait_for_all(60)
    started = {one["job_id"]: one for one in shop.halves() if one["type"] == "started"}
    # Nothing is known: it runs with what it has, and that is told.
    assert shop.seen(unknown)["LEVEL"] == "1"
    assert started[unknown]["config"] == {"how": "very thorough", "level": 1, "depth": 5}
    assert shop.seen(unknown)["TUNERD_RECOMMENDATION_ID"] == ""
    assert shop.seen(known)["LEVEL"] == "2"
    assert started[known]["config"]["level"] == 2
    assert shop.seen(changed)["LEVEL"] == "3"
    assert started[changed]["config"] == {"how": "very thorough", "level": 3, "depth": 5}
    for job in (unknown, known, changed):
        assert shop.seen(job)["TUNERD_SLURM_RETRY"] == ""


@both
def test_each_task_of_an_array_draws_its_own_lot(shop: Shop) -> None:
    shop.recommend(0.3, 0.3)
    array = shop.submit("--array=0-11", PAUSE="0")
    shop.slurm.wait_for_all(60)
    wait_until(lambda: len(shop.halves()) >= 24, 20, "all ends are told")
    started = {one["job_id"]: one for one in shop.halves() if one["type"] == "started"}
    file = RecommendationFile(shop.file)
    kinds: Counter[str | None] = Counter()
    for number, job in shop.numbers(array).items():
        task, choice = f"{array}_{number}", file.choose(KEY, f"{array}_{number}")
        assert choice is not None
        kinds[choice.candidate_id] += 1
        assert started[task]["config"] == choice.config
        assert started[task].get("candidate_id") == choice.candidate_id
        seen = shop.seen(job)
        assert json.loads(seen["TUNERD_CONFIG"]) == choice.config
        assert (seen["LEVEL"], seen["HOW"]) == (str(choice.config["level"]), choice.config["how"])
        assert seen["TUNERD_CANDIDATE_ID"] == (choice.candidate_id or "")
    assert len(started) == 12


def test_without_task_prolog_no_array_gets_a_candidate(shop: Shop) -> None:
    studies = shop.folder / "slurm" / "tunerd_studies.lua"
    studies.write_text(studies.read_text().replace("task_prolog = true", "task_prolog = false"))
    shop.recommend(1.0)
    array = shop.submit("--array=0-1", PAUSE="0")
    shop.slurm.wait_for_all(60)
    started = [one for one in shop.halves() if one["type"] == "started"]
    assert [one["config"]["level"] for one in started] == [2, 2]
    assert not any("candidate_id" in one for one in started)
    assert {shop.seen(job)["LEVEL"] for job in shop.numbers(array).values()} == {"2"}


@both
def test_a_requeue_is_an_attempt_of_its_own_without_a_candidate(shop: Shop) -> None:
    shop.recommend(1.0)
    job = shop.submit(PAUSE="30")
    wait_until(lambda: shop.slurm.states()[job] == "RUNNING", 20, "it runs")
    wait_until(lambda: (shop.folder / "slurm" / f"seen.{job}.0").exists(), 20, "it has begun")
    shop.slurm.run("scontrol", "requeue", job)
    wait_until(lambda: shop.slurm.states()[job] == "PENDING", 20, "it is queued again")

    def queued_again() -> bool:
        """Slurm waits for two minutes before, unless it is told not to, which it may refuse yet.
        slurmd takes no job that was killed within the same second."""
        sooner = ("scontrol", "update", f"jobid={job}", "starttime=now+3")
        return not shop.slurm.run(*sooner, check=False).strip()

    wait_until(queued_again, 30, "it is queued again")
    again_there = shop.folder / "slurm" / f"seen.{job}.1"
    wait_until(again_there.exists, 60, "it runs again")
    shop.slurm.run("scancel", job)
    shop.slurm.wait_for_all(30)
    first, again = shop.seen(job), shop.seen(job, restarts=1)
    assert (first["LEVEL"], first["HOW"]) == ("1", "very thorough")
    assert (again["LEVEL"], again["HOW"]) == ("2", 'it\'s "plain"')
    assert json.loads(again["TUNERD_CONFIG"])["level"] == 2
    wait_until(lambda: len(shop.halves()) >= 4, 20, "both ends are told")
    halves = {(one["type"], one["attempt"]): one for one in shop.halves()}
    assert len(halves) == len(shop.halves()) == 4
    assert halves["started", 1]["candidate_id"] == "c1"
    assert halves["started", 2]["config"]["level"] == 2
    assert "candidate_id" not in halves["started", 2]
    assert halves["completed", 1]["status"] == "preempted"
    assert halves["completed", 2]["status"] == "cancelled"


@both
def test_ends_are_told_apart(shop: Shop) -> None:
    jobs = {
        "succeeded": shop.submit(PAUSE="0"),
        "failed": shop.submit(PAUSE="0", CODE="3"),
        "cancelled": shop.submit(PAUSE="60"),
    }
    never = shop.submit("--hold")
    began = shop.folder / "slurm" / f"seen.{jobs['cancelled']}.0"
    wait_until(began.exists, 20, "it runs")
    shop.slurm.run("scancel", jobs["cancelled"])
    shop.slurm.run("scancel", never)
    shop.slurm.wait_for_all(30)
    wait_until(lambda: len(shop.halves()) >= 6, 20, "three ends are told")
    ends = {one["job_id"]: one for one in shop.halves() if one["type"] == "completed"}
    assert {one["status"]: job for job, one in ends.items()} == jobs
    # Slurm counts whole seconds, and 0 is no speed.
    assert ends[jobs["succeeded"]]["metrics"]["elapsed_s"] >= 1
    assert "metrics" not in ends[jobs["failed"]]
    assert ends[jobs["failed"]]["labels"]["exit_code"] == "3:0"


def rubbish() -> dict[str, Callable[[Shop], object]]:
    """Ways in which the local file can be bad."""

    def half_written(shop: Shop) -> None:
        shop.recommend(1.0)
        shop.file.write_bytes(shop.file.read_bytes()[:-200])

    def huge(shop: Shop, *, sorted_: bool) -> None:
        with shop.file.open("wb") as file:
            if sorted_:
                file.write(b'{"schema":"tunerd.sorted/1"}\n')
            for _ in range(200):
                file.write(b'{"key":"' + b"x" * (1 << 20))

    def deep(shop: Shop) -> None:
        key = json.dumps(KEY).encode()
        line = b'{"key":%b,"value":%b}\n' % (key, b"[" * 500_000)
        shop.file.write_bytes(b'{"schema":"tunerd.sorted/1"}\n' + line)

    def costly(shop: Shop) -> None:
        key = json.dumps(KEY).encode()
        line = b'{"key":%b,"value":[%b0]}\n' % (key, b'{"a":"\\u00e9"},' * 60_000)
        shop.file.write_bytes(b'{"schema":"tunerd.sorted/1"}\n' + line)

    long_ago = datetime.now(UTC) - timedelta(days=400)
    return {
        "missing": lambda shop: shop.file.unlink(missing_ok=True),
        "empty": lambda shop: shop.file.write_bytes(b""),
        "half-written": half_written,
        "ancient": lambda shop: shop.recommend(1.0, issued_at=long_ago, valid_until=long_ago),
        "binary": lambda shop: shop.file.write_bytes(os.urandom(100_000)),
        "200 MB in a line": lambda shop: huge(shop, sorted_=True),
        "200 MB of something else": lambda shop: huge(shop, sorted_=False),
        "nested deeply": deep,
        "costly to read": costly,
        "a pipe": lambda shop: os.mkfifo(shop.file),
        "a folder": lambda shop: shop.file.mkdir(),
        "an endless device": lambda shop: shop.file.symlink_to("/dev/zero"),
        "a variable that cannot be": lambda shop: shop.file.write_text("x"),
    }


def test_no_file_delays_or_fails_a_submission(shop: Shop) -> None:
    jobs = {}
    for name, make in rubbish().items():
        make(shop)
        jobs[name] = shop.submit(PAUSE="0")
        if shop.file.is_dir() and not shop.file.is_symlink():
            shop.file.rmdir()
        else:
            shop.file.unlink(missing_ok=True)
    studies = shop.folder / "slurm" / "tunerd_studies.lua"
    good = studies.read_text()
    for name, text in {
        "no table": "return 7",
        "no Lua": "}{",
        "raises": "error({})",
        "endless": "while true do end",
        "endless context": good.replace("return job.environment.DATASET", "while true do end"),
        "no context": good.replace('dataset = "category"', 'dataset = "categroy"'),
    }.items():
        studies.write_text(text)
        jobs[name] = shop.submit(PAUSE="0")
    studies.unlink()
    jobs["no studies"] = shop.submit(PAUSE="0")
    studies.write_text(good)
    shop.slurm.wait_for_all(60)
    for name, job in jobs.items():
        assert not shop.seen(job), name
        assert shop.slurm.states()[job] == "COMPLETED", name
    log = shop.log()
    for words in (
        "recommendations.jsonl: No such file",
        "is not a file of tunerd subscribe",
        "is not a regular file",
        "took too long",
        "it returns no table",
        "should be category, int, float or bool",
    ):
        assert words in log, words
    shop.recommend(1.0)  # and all is well again
    job = shop.submit(PAUSE="0")
    shop.slurm.wait_for_all(60)
    assert shop.seen(job)["LEVEL"] == "1"


def test_a_spool_that_cannot_be_written_loses_no_end(shop: Shop) -> None:
    shop.spool.mkdir()
    first = shop.submit(PAUSE="0")
    shop.slurm.wait_for_all(30)
    shop.spool.rmdir()
    os.mkfifo(shop.spool)
    second = shop.submit(PAUSE="0")
    shop.slurm.wait_for_all(30)
    shop.spool.unlink()
    shop.spool.write_text('{"torn')
    third = shop.submit(PAUSE="0")
    shop.slurm.wait_for_all(30)
    torn, *lines = shop.spool.read_text().splitlines()
    assert torn == '{"torn'
    ends = [json.loads(line) for line in lines]
    assert [one["job_id"] for one in ends if one["type"] == "completed"] == [first, second, third]
