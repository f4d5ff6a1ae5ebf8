"""The simulated cluster as a scheduler: follows a hand-written recommendation, reports its jobs."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tunerd.cli import run as run_tunerd
from tunerd.client import JobReporter, Recommendations
from tunerd.core.observation import Observation, Scalar, Status, Value
from tunerd.core.recommendation import (
    Candidate,
    Incumbent,
    Kind,
    MadeFrom,
    Predicted,
    Recommendation,
    State,
    StatedObjective,
    candidate_id,
)
from tunerd.core.study import Study
from tunerd.events import read_job, to_bytes
from tunerd.lab.simulation.cluster import FinishedJob, SimulatedCluster
from tunerd.lab.simulation.shipped import ads_study, demo_contexts
from tunerd.lab.simulation.simulator import FaultModel, simulator_for

CONTEXT = demo_contexts("ads-fsdp")[0]
NOW = datetime.now(UTC)
CALM = FaultModel(noise=0.02, gpu_hours_per_failure=float("inf"), preempted=0.0)


def config(**changes: Any) -> dict[str, Value]:
    base: dict[str, Value] = {
        "sharding": ["SHARD_GRAD_OP"] * 8,
        "hbm_reserved": 0.8,
        "row_wise_tables": 36,
    }
    return {**base, **changes}


def candidate(
    study: Study, rank: int, values: dict[str, Value], share: float = 0.0, wanted: int = 0
) -> Candidate:
    return Candidate(
        candidate_id=candidate_id(study.name, study.context_key(CONTEXT), values),
        rank=rank,
        kind=Kind.EXPLORE if wanted else Kind.EXPLOIT,
        share=share,
        wanted=wanted,
        config=values,
        predicted=Predicted(median=7e5, low=6e5, high=8e5),
        feasible=0.9,
        gain=None,
    )


def recommended(study: Study, *candidates: Candidate, **changes: Any) -> Recommendation:
    key = study.context_key(CONTEXT)
    values: dict[str, Any] = {
        "revision": 1,
        "study": study.name,
        "context_key": key,
        "context": study.clean_context(CONTEXT),
        "objective": StatedObjective(metric="qps", goal="maximize", unit="samples/s"),
        "issued_at": NOW,
        "valid_until": NOW + timedelta(days=1),
        "candidates": candidates,
        "incumbent": Incumbent(
            config=config(hbm_reserved=0.79), median=7e5, low=6e5, high=8e5, jobs=9
        ),
        "baseline": study.baseline(CONTEXT),
        "reason": "because a test says so",
        "made_from": MadeFrom(
            sequence=1, model="sha256:0", study=study.content_hash, seeds=(1,), tunerd="0"
        ),
        **changes,
    }
    return Recommendation(**values)


class Stream:
    """A folder as a daemon would leave it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reporter = JobReporter.jsonl(folder, "tunerd.jobs", "sim")
        self.recommendations = Recommendations.follow_jsonl(folder, "tunerd.recommendations")

    def publish(self, message: Recommendation) -> None:
        line = {
            "key": message.context_key,
            "value": json.loads(to_bytes(message)),
            "headers": {},
        }
        with (self.folder / "tunerd.recommendations.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def observations(self) -> list[Observation]:
        lines = (self.folder / "tunerd.jobs.jsonl").read_bytes().splitlines()
        read = [read_job(line, [], datetime.now(UTC)) for line in lines]
        assert all(isinstance(event, Observation) for event in read), read
        return [event for event in read if isinstance(event, Observation)]


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    stream = Stream(tmp_path)
    yield stream
    stream.recommendations.close()
    stream.reporter.close()


def cluster(
    study: Study, stream: Stream, troubles: FaultModel = CALM, **options: Any
) -> SimulatedCluster:
    contexts: list[dict[str, Scalar]] = options.pop("contexts", [CONTEXT])
    simulator = simulator_for(study, troubles)
    return SimulatedCluster(simulator, contexts, stream.reporter, stream.recommendations, **options)


def test_without_advice_every_job_runs_the_baseline(ads: Study, stream: Stream) -> None:
    finished = list(cluster(ads, stream).run(12))
    assert {job.kind for job in finished} == {"unasked"}
    assert all(job.config == ads.baseline(CONTEXT) for job in finished)
    assert all(job.recommendation_id is None for job in finished)


def test_every_event_is_a_valid_observation_of_its_job(ads: Study, stream: Stream) -> None:
    contexts = list(demo_contexts("ads-fsdp"))
    finished = list(cluster(ads, stream, policy="random", contexts=contexts, seed=5).run(40))
    events = stream.observations()
    assert [event.job_id for event in events] == [job.job_id for job in finished]
    assert len({event.event_id for event in events}) == 40
    for event, job in zip(events, finished, strict=True):
        assert event.study == "ads-fsdp"
        assert event.status is job.status
        assert event.config == job.config
        assert ads.context_key(event.context) == job.context_key
        assert event.metrics.get("qps") == job.objective
        assert event.gpus == 256
        assert (event.measured_s is None) == (job.objective is None)
        assert event.recommendation_id is None
    statuses = Counter(job.status for job in finished)
    assert statuses[Status.SUCCEEDED]
    assert statuses[Status.OUT_OF_MEMORY]
    assert {job.context_key for job in finished} == {ads.context_key(c) for c in contexts}


def test_shares_are_followed_as_the_contract_says(ads: Study, stream: Stream) -> None:
    first = candidate(ads, 1, config(hbm_reserved=0.82), share=0.3)
    second = candidate(ads, 2, config(row_wise_tables=30), share=0.2)
    message = recommended(ads, first, second)
    stream.publish(message)
    finished = list(cluster(ads, stream, seed=11).run(60))
    for job in finished:
        digest = hashlib.sha256(f"{job.context_key}|{job.job_id}".encode()).digest()
        lot = int.from_bytes(digest[:8], "big") / 2**64
        followed = first if lot < 0.3 else second if lot < 0.5 else None
        if followed is None:
            assert job.kind == "incumbent"
            assert job.config == config(hbm_reserved=0.79)
            assert job.candidate_id is None
        else:
            assert job.kind == "exploit"
            assert job.config == followed.config
            assert job.candidate_id == followed.candidate_id
        assert job.recommendation_id == message.recommendation_id
    assert {job.candidate_id for job in finished} == {None, first.candidate_id, second.candidate_id}
    told = {(e.recommendation_id, e.candidate_id) for e in stream.observations()}
    assert told == {(job.recommendation_id, job.candidate_id) for job in finished}


def test_wanted_runs_come_first_best_predicted_first(ads: Study, stream: Stream) -> None:
    asked = [
        candidate(ads, rank, config(row_wise_tables=20 + rank), wanted=wanted)
        for rank, wanted in ((1, 2), (2, 1), (3, 3))
    ]
    stream.publish(recommended(ads, *asked, round=0))
    finished = sorted(cluster(ads, stream, concurrency=3).run(10), key=lambda job: job.index)
    launched = [job.candidate_id for job in finished]
    one, two, three = (ask.candidate_id for ask in asked)
    assert launched == [one, one, two, three, three, three, None, None, None, None]
    assert [job.kind for job in finished[6:]] == ["incumbent"] * 4


def test_a_wanted_run_that_taught_nothing_is_launched_again(ads: Study, stream: Stream) -> None:
    ask = candidate(ads, 1, config(), wanted=1)
    stream.publish(recommended(ads, ask, round=0))
    lossy = FaultModel(noise=0.02, gpu_hours_per_failure=float("inf"), preempted=0.5)
    finished = list(cluster(ads, stream, lossy, concurrency=1, seed=2).run(30))
    tries = [job.status for job in finished if job.candidate_id == ask.candidate_id]
    assert tries
    assert tries[:-1] == [Status.PREEMPTED] * (len(tries) - 1)
    assert tries[-1] is Status.SUCCEEDED


def test_advice_that_comes_later_is_followed_from_then_on(ads: Study, stream: Stream) -> None:
    everyone = candidate(ads, 1, config(hbm_reserved=0.82), share=1.0)
    message = recommended(ads, everyone)
    running = cluster(ads, stream, concurrency=4).run(20)
    first = [next(running) for _ in range(6)]
    stream.publish(message)
    rest = list(running)
    assert {job.kind for job in first} == {"unasked"}
    # What was launched before the message came still runs the baseline.
    assert {job.kind for job in rest if job.index < 9} == {"unasked"}
    assert {job.candidate_id for job in rest if job.index >= 10} == {everyone.candidate_id}


def test_withdrawn_and_expired_advice_is_not_followed(ads: Study, stream: Stream) -> None:
    everyone = candidate(ads, 1, config(hbm_reserved=0.82), share=1.0)
    message = recommended(ads, everyone)
    stream.publish(message)
    stream.publish(replace(message, revision=2, state=State.WITHDRAWN, reason="the study ended"))
    assert {job.kind for job in cluster(ads, stream).run(5)} == {"unasked"}
    past = recommended(
        ads,
        everyone,
        revision=3,
        issued_at=NOW - timedelta(days=2),
        valid_until=NOW - timedelta(days=1),
    )
    stream.publish(past)
    assert {job.kind for job in cluster(ads, stream, name="again").run(5)} == {"unasked"}


def test_a_partial_baseline_in_a_message_is_completed(ads: Study, stream: Stream) -> None:
    partly = recommended(ads, incumbent=None, baseline={"hbm_reserved": 0.83})
    stream.publish(partly)
    expected = {**(ads.baseline(CONTEXT) or {}), "hbm_reserved": 0.83}
    assert all(job.config == expected for job in cluster(ads, stream).run(3))


@pytest.mark.slow
def test_two_runs_with_one_seed_are_the_same(ads: Study, tmp_path: Path) -> None:
    def once(name: str, seed: int) -> list[FinishedJob]:
        (tmp_path / name).mkdir()
        contexts = list(demo_contexts("ads-fsdp"))
        stream = Stream(tmp_path / name)
        return list(
            cluster(ads, stream, FaultModel(), policy="random", contexts=contexts, seed=seed).run(
                30
            )
        )

    assert once("a", 1) == once("b", 1)
    assert once("c", 2) != once("d", 1)


def test_jobs_overlap_and_time_moves_on(ads: Study, stream: Stream) -> None:
    finished = list(cluster(ads, stream, policy="random", concurrency=5).run(40))
    ends = [job.ended_s for job in finished]
    assert ends == sorted(ends)
    order = [job.index for job in finished]
    assert sorted(order) == list(range(40))
    assert order != sorted(order)  # a job that dies early overtakes one launched before it
    # Never more than five were under way: the k-th to end was among the first k + 4 launched.
    assert all(index <= done + 4 for done, index in enumerate(order))


def test_a_context_without_a_baseline_is_refused(ads: Study, stream: Stream) -> None:
    partial = replace(ads, baselines=())
    with pytest.raises(ValueError, match="no baseline for sharding, hbm_reserved"):
        cluster(partial, stream)


def test_the_command_line_runs_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "stream")
    options = ["--stream-folder", folder, "--jobs", "6", "--policy", "random", "--seed", "4"]
    assert run_tunerd(["cluster", "ads-fsdp", *options, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(line["job"] for line in lines) == list(range(6))
    for line in lines:
        assert {"job_id", "context_key", "status", "objective", "expected", "kind"} <= set(line)
        assert (line["expected"] is None) == (line["status"] == "out_of_memory")
    assert len((tmp_path / "stream" / "tunerd.jobs.jsonl").read_text().splitlines()) == 6


def test_the_command_line_takes_a_file_and_contexts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ads.toml"
    file.write_text(ads_study(24), encoding="utf-8")
    options = ["--stream-folder", str(tmp_path), "--jobs", "2", "--rate", "50"]
    context = "gpu=H100,n_gpus=128,dense_params=4e9,global_batch=65536"
    assert run_tunerd(["cluster", str(file), *options, "--context", context]) == 0
    assert "sim-0-00001" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ads-fsdp"], "either --stream-folder or --bootstrap"),
        (["bakery", "--stream-folder", "here"], "bakery: neither a readable study file"),
        (["ads-fsdp", "--stream-folder", "here", "--context", "gpu=H100"], "missing: n_gpus"),
    ],
)
def test_the_command_line_says_what_is_wrong(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_tunerd(["cluster", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_on_a_real_kafka(
    ads: Study, kafka_bootstrap: str, unique: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

    jobs, advice = f"{unique}-jobs", f"{unique}-recommendations"
    admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    admin.create_topics({jobs: {"num_partitions": 1}, advice: {"num_partitions": 2}})
    admin.close()
    everyone = candidate(ads, 1, config(hbm_reserved=0.82), share=1.0)
    message = recommended(ads, everyone)
    producer = KafkaProducer(bootstrap_servers=kafka_bootstrap)
    producer.send(advice, key=message.context_key.encode(), value=to_bytes(message)).get(timeout=30)
    producer.close()

    given = ",".join(f"{name}={value}" for name, value in CONTEXT.items())
    topics = ["--jobs-topic", jobs, "--recommendations-topic", advice]
    options = ["--bootstrap", kafka_bootstrap, *topics, "--jobs", "5", "--context", given]
    assert run_tunerd(["cluster", "ads-fsdp", *options, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["candidate_id"] for line in lines] == [everyone.candidate_id] * 5

    consumer = KafkaConsumer(bootstrap_servers=kafka_bootstrap)
    partition = TopicPartition(jobs, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning()
    received: list[Observation] = []
    deadline = time.monotonic() + 30
    while len(received) < 5 and time.monotonic() < deadline:
        for record in consumer.poll(timeout_ms=500).get(partition, []):
            event = read_job(record.value, (), datetime.now(UTC))
            assert isinstance(event, Observation)
            received.append(event)
    consumer.close()
    assert [event.job_id for event in received] == [line["job_id"] for line in lines]
