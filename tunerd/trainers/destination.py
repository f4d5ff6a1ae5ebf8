"""Where a training's event goes: what its call says, else the settings of an installation.

Settings are read here without their model, which needs pydantic: only what a client has to know,
from the same file and the same variables. What is wrong in them the daemon says.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunerd.client import JobReporter, Recommendations
from tunerd.reach import find_folder, knock

__all__ = ["EventDestination", "find_destination", "read_study_file"]

SETTINGS_VARIABLE = "TUNERD_SETTINGS"
DEFAULT_SETTINGS = "tunerd.toml"
SENDER_OPTIONS = (
    "security_protocol",
    "sasl_mechanism",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
)
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class EventDestination:
    """A stream and its topics."""

    stream: str
    """``jsonl`` or ``kafka``."""
    where: str
    """A folder, absolute, or the broker's addresses."""
    jobs_topic: str = "tunerd.jobs"
    recommendations_topic: str = "tunerd.recommendations"
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Of kafka-python. They may hold a password."""
    studies: str = ""
    """The folder of study files, where that is known."""

    def reporter(self, source: str) -> JobReporter:
        """Who sends to the jobs topic. Raises AwayError, and what kafka-python raises."""
        if self.stream == "jsonl":
            find_folder(self.where)
            return JobReporter.jsonl(self.where, self.jobs_topic, source)
        knock(self.where)
        return JobReporter.kafka(self.where, self.jobs_topic, source, **self.options)

    def recommendations(self) -> Recommendations:
        """Who reads recommendations, not yet read. Raises as :meth:`reporter` does."""
        if self.stream == "jsonl":
            find_folder(self.where)
            return Recommendations.follow_jsonl(self.where, self.recommendations_topic)
        knock(self.where)
        return Recommendations.follow_kafka(self.where, self.recommendations_topic, **self.options)


def find_destination(
    stream: str | Path | None,
    kafka: str | None,
    options: Mapping[str, Any],
    environ: Mapping[str, str],
) -> EventDestination:
    """``stream`` is a folder, ``kafka`` addresses; without either, what settings say.

    Raises OSError and ValueError for a settings file that cannot be read.
    """
    settings = _Settings(environ)
    jobs = settings.get("topics", "jobs", "tunerd.jobs")
    recommendations = settings.get("topics", "recommendations", "tunerd.recommendations")
    kind = settings.get("stream", "kind", "jsonl")
    if stream is not None or (kafka is None and kind != "kafka"):
        data = settings.path("data_dir", "tunerd-data")
        folder = stream or settings.path("stream", "folder", os.path.join(data, "stream"))
        kind, where, fields = "jsonl", os.path.abspath(folder), {}
    else:
        kind, where = "kafka", kafka or settings.get("stream", "kafka", "bootstrap_servers", "")
        fields = (settings.kafka_options() if kafka is None else {}) | dict(options)
    studies = settings.path("studies", "studies")
    return EventDestination(kind, where, jobs, recommendations, fields, studies)


def read_study_file(study: str, folder: str) -> tuple[str, dict[str, Any]]:
    """A study's name and file as TOML has it; ``study`` is a name or a file.

    A name without a file has none: then the context's own types make its key. Raises OSError and
    ValueError for a file that cannot be read.
    """
    if study.endswith(".toml"):
        document = _toml(Path(study))
        name = document.get("name")
        if not isinstance(name, str):
            raise ValueError(f"{study}: name is missing")
        return name, document
    try:
        document = _toml(Path(folder, f"{study}.toml"))
    except OSError:
        return study, {}
    return study, document if document.get("name") == study else {}


class _Settings:
    """Settings as they stand in the file, and over them the environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        named = environ.get(SETTINGS_VARIABLE)
        path = Path(os.path.abspath(named or DEFAULT_SETTINGS))
        try:
            self._table = _toml(path)
        except FileNotFoundError:
            if named:
                raise
            self._table = {}
        self._folder = path.parent
        self._environ = {k.upper(): v for k, v in environ.items() if k.upper()[:7] == "TUNERD_"}

    def get(self, *keys: str) -> str:
        """A text; the last of ``keys`` is what it is by default."""
        *names, default = keys
        if given := self._environ.get("TUNERD_" + "__".join(names).upper()):
            return given
        table: Any = self._table
        for name in names:
            table = table.get(name) if isinstance(table, dict) else None
        return table if isinstance(table, str) else default

    def path(self, *keys: str) -> str:
        """A path; a relative one begins at the settings' folder."""
        return os.path.join(self._folder, self.get(*keys))

    def kafka_options(self) -> dict[str, Any]:
        """For kafka-python, the password from its file."""
        options: dict[str, Any] = {}
        for name in SENDER_OPTIONS:
            value = self.get("stream", "kafka", name, "")
            if value:
                options[name] = self.path("stream", "kafka", name, "") if "file" in name else value
        if user := self.get("stream", "kafka", "sasl_username", ""):
            options["sasl_plain_username"] = user
        if self.get("stream", "kafka", "sasl_password_file", ""):
            file = Path(self.path("stream", "kafka", "sasl_password_file", ""))
            options["sasl_plain_password"] = file.read_text().rstrip("\r\n")
        return options


def _toml(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return tomllib.loads(file.read(MOST_BYTES).decode())
