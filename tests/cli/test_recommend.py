"""``tunerd recommend``: what it says where no daemon runs, and of what it was asked wrongly.
What a daemon answers is in ``tests/integration/test_asking.py``."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from tests.cli.conftest import Installation, Said
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.observation import Observation, Status
from tunerd.core.request import RequestAnswer, RequestOutcome
from tunerd.core.study_file import parse_study
from tunerd.store import ContextRow

Tunerd = Callable[..., Said]
GPU = ("--context", "gpu=H100", "--context", "n_gpus=4")


def add_jobs(installation: Installation, count: int = 30) -> None:
    now = datetime.now(UTC)
    jobs = [
        Observation(
            study="llm",
            source="s",
            event_id=f"{i}",
            job_id=f"{i}",
            status=Status.SUCCEEDED,
            finished_at=now,
            context={"gpu": "A100", "n_gpus": 2 ** (1 + i % 3)},
            config={"tp": 2 ** (i % 2), "pp": 1 + i % 2},
            metrics={"speed": 100.0 + 10 * (i % 2) + i % 5},
            sequence=0,
            content_hash=f"h{i}",
        )
        for i in range(count)
    ]
    with installation.open_store() as store, store.transaction() as tx:
        tx.add_observations("llm", jobs, now)


@pytest.mark.slow
def test_without_a_daemon_it_is_computed_and_nothing_is_left(
    installation: Installation, tunerd: Tunerd
) -> None:
    add_jobs(installation)
    said = tunerd("recommend", "llm", *GPU, "--settings", installation.file, "--json")
    assert said.code == 0, said.err
    told = said.json
    assert (told["outcome"], told["context_key"]) == ("computed", "llm|gpu=H100|n_gpus=4")
    assert told["recommendation"]["candidates"][0]["predicted"]
    assert any("nobody publishes it" in note for note in told["notes"])
    with installation.open_store() as store:
        assert store.requests_waiting() == {}
        assert store.recommendations("llm") == []
        row = store.study("llm")
        assert row is not None
        assert row.learned_sequence == 0


@pytest.mark.slow
def test_a_table_for_people(installation: Installation, tunerd: Tunerd) -> None:
    add_jobs(installation)
    said = tunerd("recommend", "llm", *GPU, "--settings", installation.file)
    assert said.code == 0, said.err
    for text in ("llm|gpu=H100|n_gpus=4", "computed here", "share", "predicted, tokens/s", "tp="):
        assert text in said.out
    assert "as asked for" in said.out


def test_before_any_job_it_is_a_random_start(installation: Installation, tunerd: Tunerd) -> None:
    said = tunerd("recommend", "llm", *GPU, "--settings", installation.file, "--json")
    assert said.code == 0
    assert "nothing to predict from" in said.json["reason"]


def test_where_nothing_is_feasible_it_says_so(installation: Installation, tunerd: Tunerd) -> None:
    none = ("--context", "gpu=H100", "--context", "n_gpus=0")
    said = tunerd("recommend", "llm", *none, "--settings", installation.file, "--json")
    assert said.code == 1
    assert said.json["outcome"] == "nothing"
    assert "fits" in said.json["reason"]


def test_it_tells_what_jobs_never_had(installation: Installation, tunerd: Tunerd) -> None:
    with installation.open_store() as store, store.transaction() as tx:
        now = datetime.now(UTC)
        state = ContextState({"gpu": "A100", "n_gpus": 2}).dump()
        tx.save_context_states(
            "llm", [ContextRow(f"llm|gpu=A100|n_gpus={n}", state, now, 0) for n in (2, 8)]
        )
    far = ("--context", "gpu=H 100", "--context", "n_gpus=64")
    said = tunerd("recommend", "llm", *far, "--settings", installation.file, "--json")
    assert said.json["notes"][:2] == [
        "no job ran with gpu = H 100; jobs had A100",
        "no job ran as far out as n_gpus = 64; jobs had 2 to 8",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nope", *GPU), "the store knows no study nope; it knows: llm"),
        (("llm", "--context", "gpu=H100"), "missing: n_gpus"),
        (("llm", *GPU, "--context", "gpus=1"), "no context feature 'gpus'; did you mean"),
        (("llm", "--context", "gpu=H100", "--context", "n_gpus=many"), "should be an integer"),
    ],
)
def test_what_was_asked_wrongly_is_told(
    installation: Installation, tunerd: Tunerd, arguments: tuple[str, ...], message: str
) -> None:
    said = tunerd("recommend", *arguments, "--settings", installation.file)
    assert said.code == 2
    assert message in said.err
    with installation.open_store() as store:
        assert store.requests_waiting() == {}


def test_what_the_shell_made_of_a_tilde_is_told(
    installation: Installation, tunerd: Tunerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bash expands ``NAME=~``, and a folder is a text like any other."""
    monkeypatch.setenv("HOME", "/home/ann")
    mine = ("--settings", installation.file)
    gpu, n = ("--context", "gpu=/home/ann"), ("--context", "n_gpus=/home/ann")
    said = tunerd("recommend", "llm", *gpu, "--context", "n_gpus=4", *mine, "--json")
    assert (said.code, said.json["context_key"]) == (0, "llm|gpu=%2Fhome%2Fann|n_gpus=4")
    assert "'gpu=~' says missing" in said.err
    said = tunerd("recommend", "llm", *gpu[:1], "gpu=H100", *n, *mine)
    assert said.code == 2
    assert "should be an integer; the shell makes your home folder" in said.err
    assert "'n_gpus=~'" in said.err
    said = tunerd("recommend", "llm", *gpu[:1], "gpu=~", *mine)
    assert "say 'n_gpus=~' if jobs come without it" in said.err
    assert "says missing" not in said.err
    assert "'NAME=~'" in tunerd("recommend", "--help").out


@contextmanager
def daemon(installation: Installation, answer: RequestAnswer | None) -> Iterator[None]:
    """Something that holds the store as a daemon does, and answers."""
    over = threading.Event()

    def work() -> None:
        with installation.open_store() as store:
            while not over.wait(0.02):
                for row in store.requests() if answer is not None else ():
                    with store.transaction() as tx:
                        assert answer is not None
                        tx.answer_request(row.id, answer, datetime.now(UTC))

    with installation.open_store() as store, store.guard(datetime.now(UTC)):
        worker = threading.Thread(target=work)
        worker.start()
        yield
        over.set()
        worker.join()


def test_a_daemon_says_why_there_is_nothing(installation: Installation, tunerd: Tunerd) -> None:
    key = parse_study(installation.study_file.read_text()).context_key({"gpu": "H100", "n_gpus": 4})
    answer = RequestAnswer(
        outcome=RequestOutcome.NOTHING, context_key=key, reason="The study has ended."
    )
    with daemon(installation, answer):
        said = tunerd("recommend", "llm", *GPU, "--settings", installation.file)
    assert said.code == 1
    assert "The study has ended." in said.out


def test_a_daemon_that_does_not_answer(installation: Installation, tunerd: Tunerd) -> None:
    with daemon(installation, None):
        said = tunerd("recommend", "llm", *GPU, "--settings", installation.file, "--wait", "0.2")
    assert said.code == 1
    assert "no answer within 0.2 s; the request stays" in said.err
    with installation.open_store() as store:
        assert store.requests_waiting() == {"llm": 1}
