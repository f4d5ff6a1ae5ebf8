"""Acting on the page: off by default; with the token, a name and a reason, from the page itself."""

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.ui.conftest import Site, serving
from tests.ui.world import World
from tunerd.errors import MisconfiguredError
from tunerd.settings import load_settings
from tunerd.store import OperatorCommand
from tunerd.ui import app

pytestmark = pytest.mark.slow

TOKEN = "a-token-of-some-length"  # noqa: S105 - of this test alone
GIVEN = {"who": "ann", "why": "fans", "token": TOKEN}


@pytest.fixture
def own(world: World, tmp_path: Path) -> World:
    return world.copy(tmp_path / "own")


@pytest.fixture
def acting(own: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(app, "WRONG_TOKEN_S", 0.01)
    with serving(own, TOKEN) as site:
        yield site


def give(
    site: Site,
    study: str = "toy",
    origin: str | None = "",
    site_is: str = "same-origin",
    **form: str,
) -> tuple[int, dict[str, str], str]:
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": site_is}
    if origin is not None:
        headers["Origin"] = origin or site.url
    path = f"/studies/{study}/commands"
    status, told, body = site.get(path, "POST", urlencode(form).encode(), **headers)
    return status, told, body.decode()


def commands(world: World, study: str = "toy") -> list[OperatorCommand]:
    with world.opened() as store:
        return store.commands(study)


@pytest.mark.parametrize(
    ("form", "command", "arguments"),
    [
        ({"command": "pause"}, "pause", {"context": {}}),
        ({"command": "resume", "context_key": "toy|n=8"}, "resume", {"context": {"n": 8}}),
        (
            {"command": "pin", "set": "x=4  y=a", "context_key": "toy|n=8"},
            "pin",
            {"context": {"n": 8}, "config": {"x": 4, "y": "a"}},
        ),
        ({"command": "forbid", "set": "z=true"}, "forbid", {"context": {}, "config": {"z": True}}),
    ],
)
def test_a_command_is_kept_as_the_command_line_s_are(
    acting: Site, own: World, form: dict[str, str], command: str, arguments: object
) -> None:
    status, headers, _ = give(acting, **GIVEN, **form)
    assert status == 303
    (kept,) = commands(own)
    assert (kept.command, dict(kept.arguments)) == (command, arguments)
    assert (kept.who, kept.why) == ("ann (page)", "fans")
    page = acting.page(headers["location"])
    assert f"Command {kept.id}, {command}, is given" in page


def test_what_waits_is_approved_and_declined(acting: Site, own: World) -> None:
    for command, key in (("approve", "waiting|n=8"), ("decline", "waiting|n=16")):
        assert give(acting, "waiting", **GIVEN, command=command, context_key=key)[0] == 303
    approved, declined = commands(own, "waiting")
    assert (approved.command, declined.command) == ("approve", "decline")
    with own.opened() as store:
        row = store.recommendation("waiting", "waiting|n=8")
    assert row is not None
    assert approved.arguments["context_key"] == "waiting|n=8"
    assert approved.arguments["recommendation_id"] in (row.proposal or row.value)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"command": "approve", "context_key": "toy|n=8"}, "nothing waits"),
        ({"command": "approve"}, "nothing waits"),
        ({"command": "pin"}, "name at least one value"),
        ({"command": "pin", "set": "x=99 q=1 y"}, "y: should be name=value"),
        ({"command": "forbid", "set": "nope=1"}, "nope"),
        ({"command": "end"}, "should be one of"),
        ({"command": "pause", "context_key": "toy|n=5"}, "no such context"),
        ({"command": "pause", "why": " "}, "say who you are, and why"),
        ({"command": "pause", "who": ""}, "say who you are, and why"),
    ],
)
def test_what_makes_no_sense_does_nothing(
    acting: Site, own: World, form: dict[str, str], said: str
) -> None:
    status, _, page = give(acting, **GIVEN | form)
    assert status == 400
    assert said in page
    assert commands(own) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": "a-token-of-some-lengti"},
        {"token": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": None},
        {"site_is": "cross-site"},
        {"site_is": "same-site"},
    ],
    ids=str,
)
def test_nobody_else_gives_one(acting: Site, own: World, wrong: dict[str, str]) -> None:
    status, _, page = give(acting, **GIVEN | {"command": "pause"} | wrong)
    assert status == 403
    assert TOKEN not in page
    assert commands(own) == []


def test_another_name_for_this_host_gives_none(acting: Site, own: World) -> None:
    body = urlencode({**GIVEN, "command": "pause"}).encode()
    headers = {"Host": "evil.example", "Origin": "http://evil.example"}
    assert acting.get("/studies/toy/commands", "POST", body, **headers)[0] == 421
    assert commands(own) == []


def test_a_form_is_small(acting: Site, own: World) -> None:
    assert give(acting, **GIVEN, command="pause", more="x" * 100_000)[0] == 413
    many = {f"f{number}": "1" for number in range(100)}
    assert give(acting, **GIVEN, command="pause", **many)[0] == 400
    assert commands(own) == []


def test_by_default_nobody_acts(site: Site, world: World) -> None:
    assert give(site, **GIVEN, command="pause")[0] == 404
    assert '<form class="try"' not in site.page("/studies/toy")
    assert commands(world) == []


def test_actions_need_a_token_that_nobody_guesses(tmp_path: Path) -> None:
    file = tmp_path / "tunerd.toml"
    (tmp_path / "studies").mkdir()
    (tmp_path / "token").write_text(TOKEN + "\n")
    (tmp_path / "short").write_text("secret\n")
    for more, said in (("", "is missing for http.actions"), ('token_file = "short"', "fewer than")):
        file.write_text(f"[http]\nactions = true\n{more}\n")
        with pytest.raises(MisconfiguredError, match=said):
            load_settings(file, {}, check_studies=False)
    file.write_text('[http]\nactions = true\ntoken_file = "token"\n')
    http = load_settings(file, {}, check_studies=False).http
    assert http.token is not None
    assert http.token.get_secret_value() == TOKEN
    assert TOKEN not in repr(http)


@pytest.mark.parametrize("field", ["who", "why", "context_key", "set", "command"])
def test_what_no_database_keeps_is_refused(acting: Site, own: World, field: str) -> None:
    before = commands(own)
    status, _, text = give(acting, **{**GIVEN, "command": "pause", field: "a\0b"})
    assert (status, "NUL" in text) == (400, True)
    assert commands(own) == before


def test_a_client_that_goes_away_is_no_fault(
    acting: Site, caplog: pytest.LogCaptureFixture
) -> None:
    head = "POST /studies/toy/commands HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\n"
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", acting.port)) as client:
            client.sendall(f"{head}Content-Length: 100\r\n\r\ntoken=".encode())
    assert give(acting, **{**GIVEN, "command": "pause"})[0] == 303
    assert "HTTP request failed" not in caplog.text
