"""``tunerd pause``, ``resume``, ``pin``, ``forbid``, ``lift``, ``decline``, ``commands``: what they
leave in the store, what they say, and what of it the status shows."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from tests.cli.conftest import Installation, Said
from tests.cli.test_status import VALUE, recommend
from tests.stages.tuning import tamper
from tunerd.core.decisions.overrides import Override
from tunerd.metrics import MetricsExporter
from tunerd.store import OperatorCommand
from tunerd.ui.server import HttpServer

Tunerd = Callable[..., Said]


def commands(installation: Installation) -> list[OperatorCommand]:
    with installation.open_store() as store:
        return store.commands(pending=False)


def stands(installation: Installation, *orders: Override) -> None:
    """As the tune stage saves it."""
    with installation.open_store() as store, store.transaction() as tx:
        state = {"ended": False, "orders": [order.dump() for order in orders]}
        tx.save_study_state("llm", state, epoch=1, now=datetime.now(UTC))


@contextmanager
def daemon(installation: Installation, result: str | None) -> Iterator[None]:
    """Something that answers as a daemon does, and carries out every command with a result."""
    server = HttpServer("127.0.0.1", 0, MetricsExporter().render, ready=list)
    installation.file.write_text(f"[http]\nport = {server.port}\n")
    over = threading.Event()

    def work() -> None:
        with installation.open_store() as store:
            while not over.wait(0.05):
                for one in store.commands() if result is not None else ():
                    with store.transaction() as tx:
                        tx.finish_command(one.id, result or "", datetime.now(UTC))

    worker = threading.Thread(target=work)
    worker.start()
    yield
    over.set()
    worker.join()
    server.close()


# ── what is left in the store ────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "command", "arguments", "said"),
    [
        ("pause llm", "pause", {"context": {}}, "llm: pause."),
        (
            "pause llm --context n_gpus=8",
            "pause",
            {"context": {"n_gpus": 8}},
            "pause where n_gpus = 8.",
        ),
        ("resume llm --context gpu=~", "resume", {"context": {"gpu": None}}, "where gpu = ~"),
        (
            "pin llm --set tp=4 --context gpu=H100",
            "pin",
            {"context": {"gpu": "H100"}, "config": {"tp": 4}},
            "pin tp = 4 where gpu = H100",
        ),
        (
            "forbid llm --set tp=4 --set pp=2",
            "forbid",
            {"context": {}, "config": {"tp": 4, "pp": 2}},
            "forbid tp = 4, pp = 2.",
        ),
    ],
)
def test_a_command(
    tunerd: Tunerd,
    installation: Installation,
    line: str,
    command: str,
    arguments: dict[str, object],
    said: str,
) -> None:
    shown = tunerd(*line.split(), "--settings", installation.file, "--why", "new switches")
    assert shown.code == 0, shown.err
    assert said in shown.out
    assert "No daemon answers here" in shown.out
    (given,) = commands(installation)
    assert (given.command, given.arguments, given.why) == (command, arguments, "new switches")
    assert "@" in given.who


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pin llm --set tp=3", "tp = 3 is outside the space: its values are 1, 2, 4"),
        ("pin llm --set tp=many", "tp = many is outside the space"),
        ("forbid llm --set tpp=4", "no parameter 'tpp'; did you mean 'tp'?"),
        ("forbid llm --set tp=4 --set tp=2", "tp is given twice"),
        ("forbid llm --set tp", "should be name=value"),
        ("pin llm --set tp[0]=4", "tp is a single value"),
        ("pin llm", "--set"),
        ("pin lmm --set tp=4", "no study lmm; it knows: llm"),
        ("pause lmm", "no study lmm; it knows: llm"),
        ("resume lmm", "no study lmm; it knows: llm"),
        ("lift lmm 3", "no study lmm; it knows: llm"),
        ("commands lmm", "no study lmm; it knows: llm"),
        ("end lmm", "no study lmm; it knows: llm"),
        ("approve --study lmm", "no study lmm; it knows: llm"),
        ("pause llm --context gpus=8", "no context feature 'gpus'"),
        ("pause llm --context n_gpus=many", "should be an integer"),
        ("lift llm 3", "no order 3 stands for llm; there are: none"),
        ("decline r-1", "nothing waits"),
        ("campaign llm --cancel --jobs 3 --context gpu=a --context n_gpus=8", "leave out --jobs"),
        ("campaign llm --context gpu=a --context n_gpus=8", "how many --jobs"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_left(
    tunerd: Tunerd, installation: Installation, line: str, said: str
) -> None:
    shown = tunerd(*line.split(), "--settings", installation.file)
    assert shown.code == 2
    assert said in shown.err
    assert commands(installation) == []


def test_declining(tunerd: Tunerd, installation: Installation) -> None:
    recommend(installation, state="pending")
    assert "r-1" in tunerd("decline", "--settings", installation.file).out
    said = tunerd("decline", "r-1", "--settings", installation.file, "--why", "too bold")
    assert said.code == 0, said.err
    (command,) = commands(installation)
    assert (command.command, command.why) == ("decline", "too bold")
    assert command.arguments["recommendation_id"] == "r-1"


def test_what_waits_only_waits_in_mode_approve(tunerd: Tunerd, installation: Installation) -> None:
    recommend(installation, state="pending")
    with installation.open_store() as store:
        generation = store.generation("llm")
        assert generation is not None
        text = generation.text.replace('"approve"', '"observe"')
        store.publish_generation("llm", "other", text, "test", datetime.now(UTC))
    assert "Nothing waits" in tunerd("approve", "--settings", installation.file).out


def test_cancelling_a_campaign(tunerd: Tunerd, installation: Installation) -> None:
    said = tunerd(
        "campaign", "llm", "--cancel", "--context", "gpu=a", "--context", "n_gpus=8",
        "--settings", installation.file,
    )  # fmt: skip
    assert "cancel the campaign in llm|gpu=a|n_gpus=8" in said.out
    (command,) = commands(installation)
    assert (command.command, command.arguments) == (
        "cancel",
        {"context_key": "llm|gpu=a|n_gpus=8"},
    )


def test_an_order_that_is_still_to_be_carried_out_can_be_lifted(
    tunerd: Tunerd, installation: Installation
) -> None:
    tunerd("pin", "llm", "--set", "tp=4", "--settings", installation.file)
    assert tunerd("lift", "llm", 1, "--settings", installation.file).code == 0
    stands(installation, Override(7, "pin", {}, {"tp": 4}))
    assert tunerd("lift", "llm", 7, "--settings", installation.file).code == 0
    wrong = tunerd("lift", "llm", 8, "--settings", installation.file)
    assert (wrong.code, "there are: 7" in wrong.err) == (2, True)


# ── what comes of them ───────────────────────────────────────────────────────────────────────


def test_what_the_daemon_says_is_waited_for(tunerd: Tunerd, installation: Installation) -> None:
    with daemon(installation, "in force; 2 recommendations broke it"):
        said = tunerd("pin", "llm", "--set", "tp=4", "--settings", installation.file)
    assert said.code == 0
    assert "Command 1: in force; 2 recommendations broke it." in said.out
    with daemon(installation, "refused: it would leave nothing feasible"):
        said = tunerd("pin", "llm", "--set", "tp=1", "--settings", installation.file)
    assert said.code == 2
    assert "refused: it would leave nothing feasible" in said.err


def test_what_a_campaign_brings_is_said_once_it_is_accepted(
    tunerd: Tunerd, installation: Installation
) -> None:
    context = ("--context", "gpu=a", "--context", "n_gpus=8")
    line = ("campaign", "llm", *context, "--jobs", 3, "--rounds", 1)
    with daemon(installation, "refused: the study has ended"):
        said = tunerd(*line, "--settings", installation.file)
    assert (said.code, "refused: the study has ended" in said.err) == (2, True)
    assert "runs in all" not in said.out
    assert "Round 0" not in said.out
    with daemon(installation, "campaign begun"):
        said = tunerd(*line, "--settings", installation.file)
    assert said.code == 0
    places = [said.out.index(part) for part in ("campaign begun", "6 runs in all", "Round 0")]
    assert places == sorted(places)


def test_a_daemon_that_is_busy_is_not_waited_for_long(
    tunerd: Tunerd, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunerd.cli.command_submission.PATIENCE_S", 0.3)
    with daemon(installation, None):
        began = time.monotonic()
        said = tunerd("end", "llm", "--settings", installation.file)
        assert time.monotonic() - began < 3
    assert said.code == 0
    assert "carried out in the next step on llm" in said.out


# ── on a terminal ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("line", ["pause llm", "end llm"])
def test_on_a_terminal_it_says_what_will_happen_and_asks(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    from click.testing import CliRunner

    from tunerd.cli import cli

    recommend(installation, state="active")
    monkeypatch.setattr("tunerd.cli.command_submission._on_a_terminal", lambda: True)
    arguments = [*line.split(), "--settings", str(installation.file)]
    said = CliRunner().invoke(cli, arguments, input="n\n")
    assert "1 recommendation of llm will be withdrawn" in said.output
    assert commands(installation) == []
    assert "Go on?" in CliRunner().invoke(cli, arguments, input="y\n").output
    assert "Go on?" not in CliRunner().invoke(cli, [*arguments, "--yes"]).output
    assert len(commands(installation)) == 2
    part = ["pause", "llm", "--context", "n_gpus=8", "--settings", str(installation.file)]
    assert "Go on?" not in CliRunner().invoke(cli, part).output


# ── what is shown ────────────────────────────────────────────────────────────────────────────


def test_the_commands_that_were_given(tunerd: Tunerd, installation: Installation) -> None:
    assert "No commands yet" in tunerd("commands", "--settings", installation.file).out
    options = ("--settings", installation.file)
    tunerd("pin", "llm", "--set", "tp=4", "--context", "gpu=H100", "--why", "fibre cut", *options)
    with daemon(installation, "in force"):
        tunerd("pause", "llm", *options)
    stands(installation, Override(1, "pin", {"gpu": "H100"}, {"tp": 4}))
    installation.file.write_text("[http]\nenabled = false\n")
    tunerd("lift", "llm", 1, *options)
    shown = tunerd("commands", "llm", *options).out
    for part in ("pin tp = 4 where gpu = H100", "“fibre cut”", "in force", "waits since", "@"):
        assert part in shown
    told = tunerd("commands", "llm", "--json", *options).json
    assert [(one["id"], one["words"]) for one in told] == [
        (1, "pin tp = 4 where gpu = H100"),
        (2, "pause"),
        (3, "lift 1"),
    ]
    assert told[0]["why"] == "fibre cut"
    assert told[2]["result"] is None
    last = tunerd("commands", "--limit", 1, "--json", *options).json
    assert [one["id"] for one in last] == [3]


def test_the_status_shows_what_stands_and_how_to_answer(
    tunerd: Tunerd, installation: Installation
) -> None:
    recommend(installation, state="active", proposal=VALUE.replace("r-1", "r-2"))
    options = ("--settings", installation.file)
    tunerd("pin", "llm", "--set", "tp=4", "--why", "fibre cut", *options)
    stands(
        installation,
        Override(1, "pin", {"gpu": "H100"}, {"tp": 4}, "fibre cut"),
        Override(2, "pause"),
        Override(3, "forbid", {}, {"tpp": 4}),
    )
    shown = tunerd("status", "llm", *options).out
    for part in (
        "limit     1: pin tp = 4 where gpu = H100, by ",
        "“fibre cut”",
        "paused    2: pause",
        "`tunerd resume llm` brings advice back",
        "does nothing: the study has no parameter 'tpp'",
        "approve   1 waits: `tunerd approve --study llm` lists them",
    ):
        assert part in shown
    report = tunerd("status", "llm", "--json", *options).json
    (study,) = report["studies"]
    assert [order["number"] for order in study["orders"]] == [1, 2, 3]
    assert study["waiting_for_approval"] == 1
    assert "@" in study["orders"][0]["who"]


@pytest.mark.parametrize("orders", ["null", '["pin"]', '[{"number": 1}]', '{"number": 1}'])
def test_damaged_orders_are_told_and_not_passed_over(
    tunerd: Tunerd, installation: Installation, orders: str
) -> None:
    options = ("--settings", installation.file)
    stands(installation, Override(1, "pause"))
    assert "limits" not in tunerd("status", "llm", *options).out
    with installation.open_store() as store:
        tamper(
            store, "UPDATE study_states SET state = json_set(state, '$.orders', json(?))", orders
        )
    shown = " ".join(tunerd("status", "llm", *options).out.split())
    assert "what was saved of pauses and limits is damaged" in shown
    (study,) = tunerd("status", "llm", "--json", *options).json["studies"]
    assert (study["orders"], study["orders_damaged"]) == ([], True)
    tunerd("lift", "llm", 1, "--why", "over", *options)
    assert [given.command for given in commands(installation)] == ["lift"]


@pytest.mark.parametrize("tuner", ["null", "[]", '{"watch": 3, "training": null}'])
def test_status_outlives_what_is_damaged(
    tunerd: Tunerd, installation: Installation, tuner: str
) -> None:
    stands(installation, Override(1, "pause"))
    with installation.open_store() as store:
        tamper(store, "UPDATE study_states SET state = json_set(state, '$.tuner', json(?))", tuner)
    shown = tunerd("status", "llm", "--json", "--settings", installation.file)
    (study,) = shown.json["studies"]
    assert (study["drift"], study["unusable"], len(study["orders"])) == ([], None, 1)
