"""Logs: one line each, readable or JSON, and no secrets in them."""

import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from tunerd.logs import configure, mask
from tunerd.settings.model import LogSettings


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(output: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_json_lines_when_nobody_watches() -> None:
    output = io.StringIO()
    log = configure(LogSettings(), output)
    log.info("daemon ready", seconds=1.2, study="llm")
    log.debug("not worth a line")
    (line,) = lines(output)
    assert str(line.pop("timestamp")).endswith("Z")
    assert line == {"level": "info", "event": "daemon ready", "seconds": 1.2, "study": "llm"}
    assert list(lines(output)[0])[:3] == ["timestamp", "level", "event"]


def test_readable_on_a_terminal() -> None:
    output = Terminal()
    configure(LogSettings(), output).info("daemon ready", seconds=1.2)
    assert "daemon ready" in output.getvalue()
    assert not output.getvalue().startswith("{")


def test_the_format_can_be_set() -> None:
    output = Terminal()
    configure(LogSettings(format="json"), output).info("x")
    assert lines(output)[0]["event"] == "x"
    plain = io.StringIO()
    configure(LogSettings(format="console"), plain).info("x")
    assert "x" in plain.getvalue()
    assert "\x1b" not in plain.getvalue()


@pytest.mark.parametrize("options", [LogSettings(format="json"), LogSettings(format="console")])
def test_exceptions_are_told_without_secrets_and_local_variables(options: LogSettings) -> None:
    output = io.StringIO()
    log = configure(options, output)
    hidden = "local " * 3
    try:
        raise ValueError("no postgresql://user:hunter2@host/db")
    except ValueError:
        log.exception("step failed", stage="tune")
    text = output.getvalue()
    assert "ValueError" in text
    assert "postgresql://user:***@host/db" in text
    assert "hunter2" not in text
    assert hidden not in text
    if options.format == "json":
        (line,) = lines(output)
        assert isinstance(line["exception"], list)
        assert line["exception"][0]["exc_type"] == "ValueError"


def test_libraries_speak_through_it_from_warnings_on() -> None:
    output = io.StringIO()
    configure(LogSettings(), output)
    logging.getLogger("library.net").warning("lost %s, sasl_password=hunter2", "broker 1")
    logging.getLogger("library.net").info("chatter")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", stacklevel=1)
    first, second = lines(output)
    assert first["logger"] == "library.net"
    assert first["event"] == "lost broker 1, sasl_password=***"
    assert second["logger"] == "py.warnings"


def test_configuring_twice_does_not_double() -> None:
    output = io.StringIO()
    configure(LogSettings(), output)
    log = configure(LogSettings(level="warning"), output)
    log.info("no")
    log.warning("yes")
    logging.getLogger("library").error("yes")
    assert [line["event"] for line in lines(output)] == ["yes", "yes"]


@given(
    key=st.sampled_from(
        ["password", "sasl_password", "Authorization", "api_key", "db_passwd", "client_secret"]
    )
)
def test_secrets_are_masked(key: str) -> None:
    secret = {key: "hunter2"}
    for event in (secret, {"a": secret}, {"a": [secret, {"b": (secret,)}]}):
        assert "hunter2" not in str(mask(None, "info", dict(event)))


def test_names_of_secret_files_are_not() -> None:
    assert mask(None, "info", {"password_file": "/etc/pw"}) == {"password_file": "/etc/pw"}


def test_long_texts_are_cut() -> None:
    assert len(str(mask(None, "info", {"event": "x" * 10_000})["event"])) < 3000
