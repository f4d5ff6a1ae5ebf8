"""The client chooses as the contract says, keeps the newest, and reports what tunerd accepts."""

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tunerd.client
from tunerd.client import (
    MOST_WANTED,
    SORTED_LINE,
    Choice,
    JobReporter,
    RecommendationFile,
    Recommendations,
    Requests,
    context_key,
)
from tunerd.core.decisions import context_search
from tunerd.core.observation import END_STATUSES, Observation, Scalar, Status
from tunerd.core.recommendation import (
    Candidate,
    Incumbent,
    Kind,
    MadeFrom,
    Recommendation,
    StatedObjective,
)
from tunerd.core.study.context_key import BucketValue, ValueType, canonical_context_key, clean_value
from tunerd.events import read_job, to_bytes
from tunerd.streams.base import StreamMessage, StreamRecord, TopicContent, TopicSpec
from tunerd.streams.jsonl.stream import JsonlStream

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
KEY = "llm|gpu=H100"
INCUMBENT = Incumbent(config={"tp": 4}, median=1.0, low=0.9, high=1.1, jobs=3)


def recommendation(
    *shares: float, key: str = KEY, revision: int = 1, wanted: tuple[int, ...] = (), **changes: Any
) -> Recommendation:
    runs = wanted or (0,) * len(shares)
    candidates = tuple(
        Candidate(
            candidate_id=f"c{rank}",
            rank=rank,
            kind=Kind.EXPLOIT,
            share=share,
            wanted=run,
            config={"tp": rank},
        )
        for rank, (share, run) in enumerate(zip(shares or (0.0,) * len(runs), runs, strict=True), 1)
    )
    values: dict[str, Any] = {
        "revision": revision,
        "study": "llm",
        "context_key": key,
        "context": {},
        "objective": StatedObjective(metric="tps", goal="maximize", unit="tokens/s"),
        "issued_at": NOW,
        "valid_until": NOW + timedelta(days=2),
        "candidates": candidates,
        "incumbent": INCUMBENT,
        "baseline": {"tp": 1},
        "reason": "…",
        "made_from": MadeFrom(sequence=1, model=None, study="s", seeds=(1,), tunerd="0.1.0"),
    }
    return Recommendation(**{**values, **changes})


def message(*args: Any, **kwargs: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(to_bytes(recommendation(*args, **kwargs)))
    return decoded


def holding(*messages: dict[str, Any]) -> Recommendations:
    recommendations = Recommendations()
    for each in messages:
        recommendations.take(each["context_key"], each)
    return recommendations


def lot(key: str, job_id: str) -> float:
    digest = hashlib.sha256(f"{key}|{job_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


class TestChoosing:
    def test_nothing_known_is_none(self) -> None:
        assert holding().choose(KEY, "1", now=NOW) is None

    def test_the_exact_key_then_the_empty_context_then_nothing(self) -> None:
        both = holding(message(1.0, key="llm", baseline=None), message(1.0, revision=5))
        exact = both.choose(KEY, "1", now=NOW)
        empty = both.choose("llm|gpu=A100", "1", now=NOW)
        assert exact is not None
        assert empty is not None
        assert exact.recommendation_id != empty.recommendation_id
        assert both.choose("ads|gpu=H100", "1", now=NOW) is None

    def test_a_withdrawn_or_expired_entry_makes_way_for_the_empty_context(self) -> None:
        general = message(1.0, key="llm", baseline=None)
        exact = recommendation(1.0)
        gone = exact.withdrawn(revision=2, issued_at=NOW, reason="over")
        both = holding(general, json.loads(to_bytes(exact)))
        later = NOW + timedelta(days=2)
        assert both.find(KEY, NOW + timedelta(hours=47)) != general
        assert both.find(KEY, later) is None
        both.take(KEY, json.loads(to_bytes(gone)))
        assert both.find(KEY, NOW) == general

    def test_the_lot_is_compared_with_the_cumulated_shares(self) -> None:
        recommendations = holding(message(0.2, 0.3, 0.1))
        for number in range(300):
            choice = recommendations.choose(KEY, str(number), now=NOW)
            assert choice is not None
            at = lot(KEY, str(number))
            expected = 1 if at < 0.2 else 2 if at < 0.5 else 3 if at < 0.6 else None
            assert choice.candidate_id == (f"c{expected}" if expected else None)
            assert choice.kind == ("exploit" if expected else "incumbent")
            assert choice.config == {"tp": expected or 4}

    @pytest.mark.slow
    @settings(max_examples=30)
    @given(st.lists(st.integers(0, 10), min_size=1, max_size=5), st.integers(0, 10))
    def test_jobs_are_distributed_by_the_shares(self, weights: list[int], rest: int) -> None:
        total = sum(weights) + rest or 1
        shares = [weight / total for weight in weights]
        recommendations = holding(message(*shares))
        jobs = 2_000
        chosen = [recommendations.choose(KEY, f"job-{i}", now=NOW) for i in range(jobs)]
        for rank, share in enumerate(shares, 1):
            counted = sum(1 for c in chosen if c is not None and c.candidate_id == f"c{rank}")
            # Six standard deviations of a binomial count: fails by chance once in 10^9.
            assert abs(counted - share * jobs) <= 6 * math.sqrt(share * (1 - share) * jobs) + 1e-6

    def test_the_order_is_that_of_ranks(self) -> None:
        shuffled = message(0.5, 0.5)
        shuffled["candidates"].reverse()
        for number in range(50):
            job = str(number)
            assert holding(shuffled).choose(KEY, job, now=NOW) == holding(message(0.5, 0.5)).choose(
                KEY, job, now=NOW
            )

    def test_what_no_share_claims_goes_to_incumbent_then_baseline_then_nobody(self) -> None:
        incumbent = holding(message()).choose(KEY, "1", now=NOW)
        baseline = holding(message(incumbent=None)).choose(KEY, "1", now=NOW)
        assert incumbent is not None
        assert baseline is not None
        assert (incumbent.kind, incumbent.config) == ("incumbent", {"tp": 4})
        assert (baseline.kind, baseline.config) == ("baseline", {"tp": 1})
        assert incumbent.candidate_id is baseline.candidate_id is None
        nobody = holding(message(incumbent=None, baseline=None))
        assert nobody.choose(KEY, "1", now=NOW) is None

    def test_a_retry_gets_the_incumbent(self) -> None:
        recommendations = holding(message(1.0))
        first = recommendations.choose(KEY, "1", now=NOW)
        retry = recommendations.choose(KEY, "1", attempt=2, now=NOW)
        assert first is not None
        assert retry is not None
        assert (first.kind, retry.kind) == ("exploit", "incumbent")


class TestProfilingRounds:
    def launch(self, recommendations: Recommendations, *jobs: object) -> list[str | None]:
        choices = [recommendations.choose(KEY, str(job), now=NOW) for job in jobs]
        return [choice.candidate_id if choice else None for choice in choices]

    def test_each_candidate_is_launched_as_often_as_wanted_best_first(self) -> None:
        recommendations = holding(message(wanted=(2, 1), round=1))
        assert self.launch(recommendations, *range(5)) == ["c1", "c1", "c2", None, None]

    def test_the_same_job_gets_the_same_answer_and_counts_once(self) -> None:
        recommendations = holding(message(wanted=(1, 1), round=1))
        assert self.launch(recommendations, "a", "a", "b", "a", "b") == [
            "c1",
            "c1",
            "c2",
            "c1",
            "c2",
        ]

    def test_wanted_goes_before_shares(self) -> None:
        recommendations = holding(message(0.0, 1.0, wanted=(3, 0), round=1))
        assert self.launch(recommendations, *range(5)) == ["c1", "c1", "c1", "c2", "c2"]

    def test_a_revision_that_counts_down_what_ended_asks_for_nothing_more(self) -> None:
        recommendations = holding(message(wanted=(3,), round=1))
        assert self.launch(recommendations, 1, 2) == ["c1", "c1"]
        recommendations.take(KEY, message(wanted=(2,), round=1, revision=2))
        assert self.launch(recommendations, 3, 4) == ["c1", None]

    def test_a_lost_job_is_wanted_once_more(self) -> None:
        recommendations = holding(message(wanted=(1,), round=1))
        assert self.launch(recommendations, "a", "b") == ["c1", None]
        recommendations.lost("a")
        assert self.launch(recommendations, "b", "c") == ["c1", None]

    def test_a_new_round_counts_anew(self) -> None:
        recommendations = holding(message(wanted=(1,), round=1))
        assert self.launch(recommendations, "a", "b") == ["c1", None]
        recommendations.take(KEY, message(wanted=(1,), round=2, revision=2))
        assert self.launch(recommendations, "c", "d") == ["c1", None]

    @pytest.mark.parametrize("other", [(1, 1, 1), (2, 1), (1, 2)])
    def test_another_campaign_counts_anew_in_a_round_of_the_same_number(
        self, other: tuple[int, ...]
    ) -> None:
        """It took the place of the first, and wants what was launched for that one too."""
        recommendations = holding(message(wanted=(1, 1), round=0))
        assert self.launch(recommendations, 1, 2, 3) == ["c1", "c2", None]
        recommendations.take(KEY, message(wanted=other, round=0, revision=2))
        asked = [f"c{rank}" for rank, runs in enumerate(other, 1) for _ in range(runs)]
        assert self.launch(recommendations, 4, 5, 6, 7) == [*asked, None, None][:4]

    def test_what_had_ended_and_is_wanted_again_is_of_another_campaign(self) -> None:
        recommendations = holding(message(wanted=(1, 1), round=0))
        assert self.launch(recommendations, 1, 2) == ["c1", "c2"]
        recommendations.take(KEY, message(wanted=(0, 1), round=0, revision=2))
        assert self.launch(recommendations, 3) == [None]
        recommendations.take(KEY, message(wanted=(1, 1), round=0, revision=3))
        assert self.launch(recommendations, 4, 5, 6) == ["c1", "c2", None]

    def test_a_round_of_which_one_message_holds_a_part_goes_on(self) -> None:
        """The next candidates are named as runs end, and one may give way to a better one."""
        wanted = (1,) * MOST_WANTED
        recommendations = holding(message(wanted=wanted, round=0))
        launched = self.launch(recommendations, *range(MOST_WANTED))
        assert None not in launched
        recommendations.take(KEY, message(wanted=(0, *wanted), round=0, revision=2))
        assert self.launch(recommendations, "a", "b") == [f"c{MOST_WANTED + 1}", None]
        recommendations.take(KEY, message(wanted=(1, *wanted[1:]), round=0, revision=3))
        assert self.launch(recommendations, "c") == [None]

    def test_both_sides_agree_on_how_much_one_message_asks_for(self) -> None:
        assert context_search.MOST_WANTED == MOST_WANTED

    def test_what_others_launched_is_taken_off(self) -> None:
        recommendations = holding(message(wanted=(2, 1), round=1))
        others = {"c1": 1}
        first = recommendations.choose(KEY, "a", now=NOW, launched=others)
        second = recommendations.choose(KEY, "b", now=NOW, launched=others)
        assert first is not None
        assert second is not None
        assert (first.candidate_id, second.candidate_id) == ("c1", "c2")

    def test_threads_share_one_count(self) -> None:
        recommendations = holding(message(wanted=(20,), round=1))
        seen: list[str | None] = []

        def work(name: int) -> None:
            seen.extend(self.launch(recommendations, *(f"{name}-{i}" for i in range(20))))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen.count("c1") == 20


class TestKeeping:
    @given(st.permutations(list(range(1, 7))), st.sampled_from(range(1, 7)))
    def test_the_newest_revision_wins_in_any_order(self, order: list[int], withdrawn: int) -> None:
        messages = {n: message(1.0, revision=n) for n in order}
        messages[withdrawn]["state"] = "withdrawn"
        found = holding(*(messages[n] for n in order)).find(KEY, NOW)
        assert found == (None if withdrawn == 6 else messages[6])

    def test_a_null_frees_the_key_and_an_old_revision_stays_dropped(self) -> None:
        recommendations = holding(message(1.0, revision=5))
        recommendations.take(KEY, None)
        assert recommendations.find(KEY, NOW) is None
        recommendations.take(KEY, message(1.0, revision=4))
        assert recommendations.find(KEY, NOW) is None
        recommendations.take(KEY, message(1.0, revision=6))
        assert recommendations.find(KEY, NOW) is not None

    @pytest.mark.parametrize(
        "change",
        [
            {"schema": "tunerd.recommendation/2"},
            {"revision": "7"},
            {"context_key": None},
            {"valid_until": "tomorrow"},
            {"valid_until": "2026-11-20T10:00:00"},
            {"valid_until": 1},
            {"candidates": None},
            {"candidates": [{}]},
            {"candidates": ["c"]},
            {"incumbent": []},
            {"incumbent": {"config": 1}},
            {"baseline": "tp=8"},
        ],
        ids=str,
    )
    def test_what_it_does_not_understand_is_skipped(self, change: dict[str, Any]) -> None:
        recommendations = holding(message(1.0))
        recommendations.take(KEY, {**message(1.0, revision=2), **change})
        assert recommendations.skipped == 1
        found = recommendations.find(KEY, NOW)
        assert found is not None
        assert found["revision"] == 1

    @pytest.mark.slow
    @given(
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5),
            lambda x: st.lists(x) | st.dictionaries(st.sampled_from(sorted(message(0.5))), x),
        )
    )
    def test_no_message_raises(self, anything: Any) -> None:
        recommendations = holding()
        recommendations.take(KEY, anything)
        recommendations.take(
            KEY, {**message(0.5), **(anything if isinstance(anything, dict) else {})}
        )
        recommendations.choose(KEY, "1", now=NOW)


def line(key: str, value: Any) -> str:
    return json.dumps({"key": key, "value": value, "headers": {}}) + "\n"


class TestFollowingAFolder:
    def test_new_lines_are_read_up_to_the_last_newline(self, tmp_path: Path) -> None:
        recommendations = Recommendations.follow_jsonl(tmp_path, "recommendations")
        assert recommendations.poll() == 0
        file = tmp_path / "recommendations.jsonl"
        whole = line(KEY, message(1.0, revision=2))
        file.write_text(line(KEY, message(1.0)) + whole[:50])
        assert recommendations.poll() == 1
        with file.open("a") as more:
            more.write(whole[50:])
        assert recommendations.poll() == 1
        assert recommendations.poll() == 0
        assert recommendations.catch_up()
        found = recommendations.find(KEY, NOW)
        assert found is not None
        assert found["revision"] == 2
        recommendations.close()

    def test_a_file_that_compaction_replaced_is_read_from_its_start(self, tmp_path: Path) -> None:
        file = tmp_path / "recommendations.jsonl"
        file.write_text(line(KEY, message(1.0)) + line(KEY, None))
        recommendations = Recommendations.follow_jsonl(tmp_path, "recommendations")
        assert recommendations.poll() == 2
        new = tmp_path / "new"
        new.write_text(line(KEY, message(1.0, revision=3)))
        new.replace(file)
        assert recommendations.poll() == 1
        assert recommendations.find(KEY, NOW) is not None

    def test_a_longer_file_with_the_inode_of_the_former_is_read_from_its_start(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "recommendations.jsonl"
        file.write_text(line("llm|gpu=A", message(1.0, key="llm|gpu=A")))
        recommendations = Recommendations.follow_jsonl(tmp_path, "recommendations")
        recommendations.poll()
        revised = message(1.0, key="llm|gpu=A", revision=3)
        file.write_text(line("llm|gpu=A", revised) + line(KEY, message(1.0)))
        assert recommendations.poll() == 2
        assert recommendations.find(KEY, NOW) is not None
        assert recommendations.skipped == 0

    def test_reading_a_file_anew_ends_where_it_was(self, tmp_path: Path) -> None:
        history = line(KEY, message(1.0)) + line(KEY, None) + line(KEY, message(1.0, revision=2))
        file = tmp_path / "recommendations.jsonl"
        file.write_text(history)
        recommendations = Recommendations.follow_jsonl(tmp_path, "recommendations")
        recommendations.poll()
        (tmp_path / "new").write_text(history)
        (tmp_path / "new").replace(file)
        assert recommendations.poll() == 3
        assert recommendations.find(KEY, NOW) is not None

    def test_a_broken_line_is_skipped(self, tmp_path: Path) -> None:
        file = tmp_path / "recommendations.jsonl"
        broken = ["{", "[]", "null", "\udcff", '{"key": "x"}', "[" * 100_000]
        text = "".join(f"{each}\n" for each in broken) + line(KEY, message(1.0))
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
        recommendations = Recommendations.follow_jsonl(tmp_path, "recommendations")
        assert recommendations.poll() == len(broken) + 1
        assert recommendations.skipped == len(broken)
        assert recommendations.find(KEY, NOW) is not None


class TestWithTheFolderOfTunerd:
    TOPICS = (
        TopicSpec("tunerd.jobs", TopicContent.EVENT),
        TopicSpec("tunerd.recommendations", TopicContent.JSON, compacted=True),
    )

    def test_it_follows_what_the_sink_writes_and_compacts(self, tmp_path: Path) -> None:
        stream = JsonlStream(tmp_path, self.TOPICS, compact_bytes=10_000)
        stream.ensure_topics()
        sink = stream.sink()
        recommendations = Recommendations.follow_jsonl(tmp_path)
        for revision in range(1, 60):
            value = to_bytes(recommendation(1.0, revision=revision))
            sink.send([StreamMessage("tunerd.recommendations", KEY.encode(), value)])
            recommendations.poll()
            found = recommendations.find(KEY, NOW)
            assert found is not None
            assert found["revision"] == revision
        assert (tmp_path / "tunerd.recommendations.jsonl").stat().st_size < 20_000
        sink.send([StreamMessage("tunerd.recommendations", KEY.encode(), None)])
        recommendations.poll()
        assert recommendations.find(KEY, NOW) is None
        assert recommendations.skipped == 0

    def test_the_source_reads_what_it_reports(self, tmp_path: Path) -> None:
        stream = JsonlStream(tmp_path, self.TOPICS)
        stream.ensure_topics()
        reporter = JobReporter.jsonl(tmp_path)
        job: dict[str, Any] = {"study": "s", "status": "failed", "context": {}, "config": {}}
        sent = [reporter.report(**job, job_id=str(i)) for i in range(3)]
        source = stream.source("tunerd.jobs", "g", lambda *_: {})
        records: list[StreamRecord] = []
        deadline = time.monotonic() + 30
        while len(records) < 3 and time.monotonic() < deadline:
            records += source.poll(0.2, 10)
        source.close()
        seen = [read_job(r.value, r.headers, datetime.now(UTC)) for r in records]
        assert [one.event_id for one in seen if isinstance(one, Observation)] == sent


class TestReporting:
    def read(self, tmp_path: Path) -> list[Observation]:
        observations = []
        for raw in (tmp_path / "jobs.jsonl").read_bytes().splitlines():
            seen = read_job(raw, (), datetime.now(UTC))
            assert isinstance(seen, Observation), seen
            observations.append(seen)
        return observations

    def test_a_report_is_an_event_that_tunerd_accepts(self, tmp_path: Path) -> None:
        reporter = JobReporter.jsonl(tmp_path, "jobs", source="slurm/a")
        event_id = reporter.report(
            study="llm",
            job_id="4711",
            status="succeeded",
            context={"gpu": "H100", "n_gpus": np.int64(128)},
            config={"tp": 8, "sharding": ("FULL", "NONE"), "split": np.array([1, 2])},
            metrics={"tps": np.float64(412.7), "loss": float("nan")},
            started_at=NOW - timedelta(hours=1),
            measured_s=840,
            gpus=128,
            choice=Choice({"tp": 8}, "exploit", "r-1", "c-1"),
            labels={"team": "x"},
        )
        reporter.close()
        (seen,) = self.read(tmp_path)
        assert (seen.event_id, seen.source, seen.status) == (event_id, "slurm/a", Status.SUCCEEDED)
        assert seen.context == {"gpu": "H100", "n_gpus": 128}
        assert seen.config == {"tp": 8, "sharding": ["FULL", "NONE"], "split": [1, 2]}
        assert seen.extra["started_at"] == "2026-11-20T09:00:00+00:00"
        assert seen.metrics == {"tps": 412.7}
        assert (seen.recommendation_id, seen.candidate_id) == ("r-1", "c-1")
        assert (seen.measured_s, seen.gpus) == (840, 128)
        assert datetime.now(UTC) - seen.finished_at < timedelta(minutes=1)

    def test_the_event_id_tells_attempts_apart_and_repeats_not(self, tmp_path: Path) -> None:
        reporter = JobReporter.jsonl(tmp_path, "jobs")
        job: dict[str, Any] = {
            "study": "llm", "job_id": "1", "status": "failed", "context": {}, "config": {},
        }  # fmt: skip
        first = reporter.report(**job)
        assert reporter.report(**job) == first
        assert reporter.report(**job, attempt=2) != first
        assert reporter.report(**job, event_id="mine") == "mine"

    def test_a_torn_line_of_another_writer_is_closed_first(self, tmp_path: Path) -> None:
        (tmp_path / "jobs.jsonl").write_text('{"schema": "tuner')
        reporter = JobReporter.jsonl(tmp_path, "jobs")
        reporter.report(study="s", job_id="1", status="timeout", context={}, config={})
        torn, whole = (tmp_path / "jobs.jsonl").read_bytes().splitlines()
        assert torn == b'{"schema": "tuner'
        assert isinstance(read_job(whole, (), datetime.now(UTC)), Observation)

    def test_what_is_plainly_of_no_use_is_refused_before_sending(self, tmp_path: Path) -> None:
        reporter = JobReporter.jsonl(tmp_path, "jobs")
        job: dict[str, Any] = {"study": "s", "job_id": "1", "context": {}, "config": {}}
        with pytest.raises(ValueError, match="status: expected one of succeeded"):
            reporter.report(**job, status="ok")
        with pytest.raises(ValueError, match="zone"):
            reporter.report(**job, status="failed", finished_at=NOW.replace(tzinfo=None))
        with pytest.raises(ValueError, match="zone"):
            reporter.report(**job, status="failed", started_at=NOW.replace(tzinfo=None))
        with pytest.raises(ValueError, match=r"cannot send .*: it is a set"):
            reporter.report(**job, status="failed", labels={"team": {1}})
        with pytest.raises(ValueError, match="more than 262,144"):
            reporter.report(**job, status="failed", labels={"log": "x" * 300_000})
        for wrong in (4711, "", "x" * 257):
            with pytest.raises(ValueError, match="job_id: expected a text of 1 to 256 characters"):
                reporter.report(**job | {"job_id": wrong}, status="failed", event_id="e")
        with pytest.raises(ValueError, match="event_id: expected a text of 1 to 256 characters"):
            reporter.report(**job | {"job_id": "x" * 256}, status="failed")
        for metric in ("412.7", True, [1.0]):
            with pytest.raises(ValueError, match=r"metrics\.speed: expected a number, got"):
                reporter.report(**job, status="failed", metrics={"speed": metric})
        assert not (tmp_path / "jobs.jsonl").exists()

    def test_many_writers_never_mix_their_lines(self, tmp_path: Path) -> None:
        def write(name: int) -> None:
            reporter = JobReporter.jsonl(tmp_path, "jobs")
            for i in range(25):
                reporter.report(
                    study="s",
                    job_id=f"{name}-{i}",
                    status="failed",
                    context={"x": "y" * 1000},
                    config={},
                )

        threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({seen.job_id for seen in self.read(tmp_path)}) == 100

    def test_the_statuses_are_those_of_the_contract(self) -> None:
        assert END_STATUSES == tunerd.client.STATUSES


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["1", "1.5", "-0", "1e3", "true", "False", "nan", "~", "a|b=c", "\ud800"])
    | st.lists(st.integers(), max_size=1)
)
KINDS: list[ValueType] = ["int", "float", "category", "bool"]


VECTORS = json.loads((Path(__file__).parents[1] / "docs" / "context-key-vectors.json").read_text())[
    "vectors"
]


class TestContextKey:
    @pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["note"])
    def test_vectors(self, vector: dict[str, Any]) -> None:
        assert context_key(vector["study"], vector["features"], vector["context"]) == vector["key"]

    @pytest.mark.slow
    @given(st.dictionaries(st.sampled_from("abcd"), st.tuples(st.sampled_from(KINDS), VALUES)))
    def test_it_agrees_with_the_core(self, features: dict[str, tuple[ValueType, Any]]) -> None:
        kinds = {name: kind for name, (kind, _) in features.items()}
        context = {name: value for name, (_, value) in features.items()}
        clean = {name: clean_value(value, kind) for name, (kind, value) in features.items()}
        assert context_key("llm", kinds, context) == canonical_context_key("llm", clean)

    @given(st.sampled_from(["int", "float"]), VALUES, st.sampled_from([1.25, 1.1, 2.0, 10.0]))
    def test_buckets_agree_with_the_core(self, kind: ValueType, value: Any, factor: float) -> None:
        feature = {"type": kind, "scale": "log", "key": {"bucket": factor}}
        clean = clean_value(value, kind)
        edge: Scalar | BucketValue = None
        if isinstance(clean, int | float):
            edge = BucketValue(clean, factor)
        expected = canonical_context_key("s", {"n": edge})
        assert context_key("s", {"n": feature}, {"n": value}) == expected

    def test_numbers_of_numpy_are_numbers_as_in_events(self) -> None:
        kinds = {"n": "int", "x": "float", "big": "bool", "gpu": "category"}
        context = {"n": 8, "x": 1.5, "big": True, "gpu": "H100"}
        of_numpy = {
            "n": np.int64(8), "x": np.float32(1.5), "big": np.bool_(True), "gpu": np.str_("H100"),
        }  # fmt: skip
        assert context_key("s", kinds, of_numpy) == context_key("s", kinds, context)

    def test_the_table_of_the_study_file_will_do(self) -> None:
        features = {
            "model_params": {"type": "float", "scale": "log"},
            "gpu": {"type": "category"},
            "user": {"type": "category", "key": "ignore"},
            "n_gpus": "int",
        }
        context = {"gpu": "H100 SXM", "model_params": 7e9, "user": "anna"}
        key = context_key("llm", features, context)
        assert key == "llm|gpu=H100%20SXM|model_params=7e+09|n_gpus=~"
        assert context_key("llm", {}, context) == "llm"


@pytest.mark.slow
def test_one_file_copied_elsewhere_needs_only_the_standard_library(tmp_path: Path) -> None:
    shutil.copy(tunerd.client.__file__, tmp_path / "tuning.py")
    (tmp_path / "recommendations.jsonl").write_text(
        line(KEY, {**message(1.0), "valid_until": "2999-01-01T00:00:00Z"})
    )
    program = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tuning import Recommendations, context_key\n"
        "r = Recommendations.follow_jsonl('.', 'recommendations'); r.poll()\n"
        "print(r.choose(context_key('llm', {'gpu': 'category'}, {'gpu': 'H100'}), '1').config)\n"
        "assert not {'kafka', 'msgspec', 'numpy', 'tunerd'} & set(sys.modules)\n"
    )
    out = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout == "{'tp': 1}\n"


class TestFile:
    """A local file of recommendations, saved or written by hand."""

    def saved(self, path: Path, *messages: dict[str, Any]) -> RecommendationFile:
        recommendations = Recommendations()
        for one in messages:
            recommendations.take(one["context_key"], one)
        assert recommendations.save(path) == len({one["context_key"] for one in messages})
        return RecommendationFile(path)

    @pytest.mark.slow
    @given(
        names=st.sets(st.text(min_size=1, max_size=12), min_size=1, max_size=30),
        others=st.lists(st.text(min_size=1, max_size=12), max_size=5),
    )
    @settings(deadline=None)
    def test_every_context_is_found_and_no_other(
        self, names: set[str], others: list[str], tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        path = tmp_path_factory.mktemp("file") / "recommendations.jsonl"
        keys = {context_key("llm", {"gpu": "category"}, {"gpu": name}): name for name in names}
        keys["no|encoded keyé"] = "é"
        file = self.saved(path, *(message(1.0, key=key) for key in keys))
        for key in keys:
            choice = file.choose(key, "1", now=NOW)
            assert choice is not None
            assert choice.match == "exact"
        for other in others:
            key = context_key("llm", {"gpu": "category"}, {"gpu": other})
            assert (file.choose(key, "1", now=NOW) is None) == (key not in keys)

    def test_it_says_whether_it_is_exact_the_fallback_or_the_baseline(self, tmp_path: Path) -> None:
        path = tmp_path / "r.jsonl"
        file = self.saved(
            path,
            message(1.0),
            message(key="llm", incumbent=INCUMBENT),
            message(key="llm|gpu=A100", incumbent=None, baseline={"tp": 3}),
        )
        for key, match, kind in (
            (KEY, "exact", "exploit"),
            ("llm|gpu=L40", "fallback", "incumbent"),
            ("llm|gpu=A100", "baseline", "baseline"),
        ):
            choice = file.choose(key, "1", now=NOW)
            assert choice is not None
            assert (choice.match, choice.kind) == (match, kind)
        assert file.choose("other|gpu=L40", "1", now=NOW) is None

    def test_a_changed_fallback_is_noticed(self, tmp_path: Path) -> None:
        path, empty = tmp_path / "r.jsonl", replace(INCUMBENT, config={"tp": 8})
        file = RecommendationFile(path)
        self.saved(path, message(key="llm", incumbent=INCUMBENT))
        assert self.config(file) == {"tp": 4}
        self.saved(path, message(key="llm", revision=2, incumbent=empty))
        assert self.config(file) == {"tp": 8}
        self.saved(path, message(key="other"))
        assert file.choose(KEY, "1", now=NOW) is None

    @pytest.mark.parametrize("key", ["\\ud800", "a\\udfff|b=1"])
    def test_half_a_surrogate_pair_in_a_key_is_no_key(self, tmp_path: Path, key: str) -> None:
        path = tmp_path / "r.jsonl"
        known = holding(message(1.0))
        known.take("x", message(1.0) | {"context_key": json.loads(f'"{key}"')})
        assert known.skipped == 1
        assert known.save(path) == 1
        path.write_text(SORTED_LINE.decode() + f'{{"key":"{key}","value":{{}}}}\n')
        assert RecommendationFile(path).choose(KEY, "1", now=NOW) is None

    def test_a_changed_file_is_noticed(self, tmp_path: Path) -> None:
        path = tmp_path / "r.jsonl"
        file = RecommendationFile(path)
        assert file.choose(KEY, "1", now=NOW) is None
        self.saved(path, message(1.0, revision=1))
        assert self.config(file) == {"tp": 1}
        self.saved(path, message(revision=2, incumbent=INCUMBENT))
        assert self.config(file) == {"tp": 4}
        self.saved(path, message(key="other"))
        assert file.choose(KEY, "1", now=NOW) is None

    def config(self, file: RecommendationFile) -> dict[str, Any]:
        choice = file.choose(KEY, "1", now=NOW)
        assert choice is not None
        return choice.config

    def test_an_older_copy_of_the_file_is_not_followed_back(self, tmp_path: Path) -> None:
        path = tmp_path / "r.jsonl"
        file = self.saved(path, message(revision=5, incumbent=INCUMBENT))
        assert self.config(file) == {"tp": 4}
        self.saved(path, message(1.0, revision=4))
        assert self.config(file) == {"tp": 4}
        path.unlink()
        assert self.config(file) == {"tp": 4}

    def test_the_topics_own_file_will_do(self, tmp_path: Path) -> None:
        path = tmp_path / "r.jsonl"
        path.write_text(line(KEY, message(1.0, revision=2)) + line(KEY, message(revision=1)))
        file = RecommendationFile(path)
        assert self.config(file) == {"tp": 1}
        with path.open("a") as appended:
            appended.write(line(KEY, message(revision=3, incumbent=INCUMBENT)))
        assert self.config(file) == {"tp": 4}

    def test_a_topic_can_be_followed_into_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "tunerd.recommendations.jsonl"
        path.write_text(line(KEY, message(1.0)))
        recommendations = Recommendations.follow_jsonl(tmp_path)
        recommendations.poll()
        recommendations.save(tmp_path / "saved.jsonl")
        again = Recommendations.follow_jsonl(tmp_path, "saved")
        again.poll()
        choice = again.choose(KEY, "1", now=NOW)
        assert choice is not None
        assert choice.config == {"tp": 1}

    @pytest.mark.parametrize("cut", range(0, 400, 7))
    def test_a_file_that_was_cut_anywhere_does_no_harm(self, tmp_path: Path, cut: int) -> None:
        path = tmp_path / "r.jsonl"
        self.saved(path, *(message(1.0, key=f"llm|gpu={n}") for n in range(3)))
        whole = path.read_bytes()
        path.write_bytes(whole[:-cut] if cut else whole)
        file = RecommendationFile(path)
        for n in range(3):
            choice = file.choose(f"llm|gpu={n}", "1", now=NOW)
            assert choice is None or choice.config == {"tp": 1}

    @pytest.mark.parametrize(
        "content", [b"", b"\0" * 5000, b"{}\n" * 50, b"\xff\xfe\n", b"[" * 100_000, b'{"key":1}\n']
    )
    def test_rubbish_says_nothing(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "r.jsonl"
        for begin in (b"", b'{"schema":"tunerd.sorted/1"}\n'):
            path.write_bytes(begin + content)
            assert RecommendationFile(path).choose(KEY, "1", now=NOW) is None
        path.unlink()
        os.mkfifo(path)
        assert RecommendationFile(path).choose(KEY, "1", now=NOW) is None


class TestNobodyHere:
    """A folder or a topic that no daemon has made."""

    def test_following_says_so_once_and_waits(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        stream = tmp_path / "tunerd-data" / "stream"
        recommendations = Recommendations.follow_jsonl(stream)
        assert recommendations.catch_up()
        assert recommendations.poll() == 0
        (said,) = caplog.messages
        assert f"{stream} does not exist, so no tunerd daemon has been here" in said
        assert "`tunerd run` makes it" in said
        stream.mkdir(parents=True)
        (stream / "tunerd.recommendations.jsonl").write_text("{}\n")
        assert recommendations.poll() == 1

    def test_an_event_is_not_sent_into_nowhere(self, tmp_path: Path) -> None:
        reporter = JobReporter.jsonl(tmp_path / "tunerd-data" / "stream")
        with pytest.raises(FileNotFoundError, match=r"not sent: .*no tunerd daemon has been here"):
            reporter.report(study="s", job_id="1", status="failed", context={}, config={})
        assert not (tmp_path / "tunerd-data").exists()

    def test_a_topic_that_nobody_reads_yet_keeps_the_event(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        reporter = JobReporter.jsonl(tmp_path, "tunerd.job")
        for job in "12":
            reporter.report(study="s", job_id=job, status="failed", context={}, config={})
        (said,) = caplog.messages
        assert "tunerd.job.jsonl does not exist, so no tunerd daemon" in said
        assert len((tmp_path / "tunerd.job.jsonl").read_text().splitlines()) == 2

    def test_a_topic_of_kafka_is_not_created_by_who_follows_or_sends(
        self, kafka_bootstrap: str, unique: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        from kafka import KafkaAdminClient
        from kafka.errors import UnknownTopicOrPartitionError

        recommendations = Recommendations.follow_kafka(kafka_bootstrap, unique)
        assert recommendations.catch_up(timeout_s=5)
        assert [m for m in caplog.messages if f"topic {unique} does not exist" in m]
        sender = Requests.kafka(kafka_bootstrap, unique)
        with pytest.raises(UnknownTopicOrPartitionError, match="no tunerd daemon has been here"):
            sender.ask(study="s", context={})
        admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
        assert unique not in admin.list_topics()
        admin.create_topics({unique: {"num_partitions": 1}})
        admin.close()
        sender.ask(study="s", context={})
        sender.close()
        deadline = time.monotonic() + 30
        while not recommendations.skipped and time.monotonic() < deadline:
            recommendations.poll(timeout_s=0.2)
        assert recommendations.skipped == 1  # a request is no recommendation, but it was read
        recommendations.close()


class TestKafka:
    def test_reported_jobs_arrive_and_recommendations_are_followed(
        self, kafka_bootstrap: str, unique: str
    ) -> None:
        from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

        jobs, topic = f"{unique}-jobs", f"{unique}-recommendations"
        admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
        admin.create_topics({jobs: {"num_partitions": 1}, topic: {"num_partitions": 3}})
        admin.close()
        reporter = JobReporter.kafka(kafka_bootstrap, jobs, source="a")
        job: dict[str, Any] = {"study": "s", "status": "failed", "context": {}, "config": {}}
        sent = [reporter.report(**job, job_id=str(i)) for i in range(5)]
        reporter.close()
        consumer = KafkaConsumer(bootstrap_servers=kafka_bootstrap)
        consumer.assign([TopicPartition(jobs, 0)])
        consumer.seek_to_beginning()
        received: list[str] = []
        deadline = time.monotonic() + 30
        while len(received) < 5 and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                for record in records:
                    seen = read_job(record.value, (), datetime.now(UTC))
                    assert isinstance(seen, Observation)
                    received.append(seen.event_id)
        consumer.close()
        assert received == sent

        producer = KafkaProducer(
            bootstrap_servers=kafka_bootstrap, transactional_id=f"{unique}-publisher"
        )
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, key=KEY.encode(), value=to_bytes(recommendation(1.0, revision=2)))
        producer.send(topic, key=KEY.encode(), value=to_bytes(recommendation(1.0, revision=1)))
        producer.send(topic, key=b"llm|gone", value=None)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, key=KEY.encode(), value=to_bytes(recommendation(1.0, revision=3)))
        producer.flush()
        producer.abort_transaction()
        producer.close()
        recommendations = Recommendations.follow_kafka(kafka_bootstrap, topic)
        assert recommendations.catch_up(timeout_s=30)
        found = recommendations.find(KEY, NOW)
        assert found is not None
        assert found["revision"] == 2
        choice = recommendations.choose(KEY, "1", now=NOW)
        assert choice is not None
        assert choice.candidate_id == "c1"
        recommendations.close()
