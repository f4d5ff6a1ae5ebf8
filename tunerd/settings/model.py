"""What can be set: frozen sections, each key with its unit, default and meaning.

The text under a key is its documentation: ``tunerd schema settings`` and ``docs/settings.md`` are
made from it. Nothing here reads a file or the environment; see :mod:`tunerd.settings.load`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

__all__ = [
    "SECRETS",
    "KafkaSettings",
    "PrometheusSettings",
    "Settings",
    "SettingsSection",
    "StreamSettings",
    "leaves",
]


def _not_a_bool(value: object) -> object:
    if isinstance(value, bool):  # pydantic would take true for 1
        raise ValueError("should be a number")
    return value


def _topic_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value) or value in {".", ".."}:
        raise ValueError("should be 1 to 249 letters, digits, '.', '_' or '-'")
    return value


def _servers(value: str) -> str:
    for server in filter(None, (part.strip() for part in value.split(","))):
        host, colon, port = server.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise ValueError("should be host:port, several separated by commas")
    return value


def _url_without_password(value: str) -> str:
    if value.startswith("sqlite:///"):
        return value  # a path, whatever stands in it
    if re.match(r"[^/]*://[^/@]*:[^/]*@", value) or "password=" in value:
        raise ValueError("holds a password; put the password into a file, store.password_file")
    if value and not value.startswith(("postgresql://", "postgresql+psycopg://")):
        raise ValueError("should be sqlite:///FILE or postgresql://USER@HOST:PORT/DATABASE")
    return value


def _http_url(value: str) -> str:
    try:
        url = urlsplit(value)
        fine = bool(re.fullmatch(r"https?://[!-~]+", value) and url.hostname) and url.port != 0
    except ValueError:  # a port that is none
        fine = False
    if value and (not fine or re.search("[@?#]", value)):
        raise ValueError(
            "should be http(s)://HOST:PORT, a path behind it where need be; a user goes into"
            " signals.prometheus.user, a password into a file, password_file or token_file"
        )
    return value


_SIGNAL = re.compile(r"[A-Za-z_:][A-Za-z0-9_:.]{0,199}")


def _signal_queries(value: dict[str, str]) -> dict[str, str]:
    wrong = [name for name in value if not _SIGNAL.fullmatch(name)]
    if wrong:
        raise ValueError(f"{', '.join(map(repr, wrong))}: a signal's name should be like rps")
    if empty := [name for name, query in value.items() if not query.strip()]:
        raise ValueError(f"{', '.join(empty)}: should be an expression in PromQL")
    return value


Count = Annotated[int, Field(ge=1), BeforeValidator(_not_a_bool)]
Seconds = Annotated[float, Field(gt=0), BeforeValidator(_not_a_bool)]
MOST_DAYS = 365_000
"""A thousand years stands for "for ever": what lies much further from now than that is no date."""
Days = Annotated[float, Field(gt=0, le=MOST_DAYS), BeforeValidator(_not_a_bool)]
Port = Annotated[int, Field(ge=0, le=65535), BeforeValidator(_not_a_bool)]
TopicName = Annotated[str, AfterValidator(_topic_name)]


class SettingsSection(BaseModel):
    """One table of ``tunerd.toml``."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )


class KafkaSettings(SettingsSection):
    """How to reach Apache Kafka; read when ``stream.kind`` is ``"kafka"``."""

    bootstrap_servers: Annotated[str, AfterValidator(_servers)] = ""
    """Where to find the brokers first: host:port, several separated by commas."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """How connections are protected and authenticated."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """How to log in; needed with SASL_PLAINTEXT and SASL_SSL."""
    sasl_username: str | None = None
    """User name for SASL."""
    sasl_password_file: Path | None = None
    """File that holds the password for SASL."""
    ssl_cafile: Path | None = None
    """PEM file of the authorities that sign the brokers' certificates; else the system's."""
    ssl_certfile: Path | None = None
    """PEM file with this client's certificate, for mutual TLS."""
    ssl_keyfile: Path | None = None
    """PEM file with the key of that certificate."""
    client_id: str = ""
    """What the brokers' logs and quotas call this client; the installation's name by default."""
    group: str = ""
    """Consumer group that shares the jobs topic; the installation's name by default."""
    partitions: Count = 6
    """Partitions of a topic that tunerd creates."""
    replication_factor: Count | None = None
    """Copies of a topic that tunerd creates; the brokers' default when not set."""
    session_timeout_s: Seconds = 10.0
    """How long the group waits for a silent instance before it takes its partitions away."""

    _sasl_password: SecretStr | None = PrivateAttr(default=None)

    @property
    def sasl_password(self) -> SecretStr | None:
        """What ``sasl_password_file`` holds."""
        return self._sasl_password


class StreamSettings(SettingsSection):
    """Where events come from and recommendations go to."""

    kind: Literal["jsonl", "kafka"] = "jsonl"
    """``"jsonl"``: a folder of JSON-lines files, needs nothing installed. ``"kafka"``: a broker."""
    folder: Path = Path()
    """Folder of the topics' files for ``"jsonl"``; ``stream`` in ``data_dir`` by default."""
    kafka: KafkaSettings = KafkaSettings()

    @model_validator(mode="after")
    def _kafka_is_complete(self) -> Self:
        kafka = self.kafka
        if self.kind != "kafka":
            return self
        if not kafka.bootstrap_servers:
            raise ValueError("kafka.bootstrap_servers is missing, stream.kind is kafka")
        if kafka.security_protocol.startswith("SASL"):
            if kafka.sasl_mechanism is None:
                raise ValueError(f"kafka.sasl_mechanism is missing for {kafka.security_protocol}")
            if not kafka.sasl_username:
                raise ValueError(f"kafka.sasl_username is missing for {kafka.security_protocol}")
        elif kafka.sasl_mechanism is not None:
            raise ValueError(
                f"kafka.sasl_mechanism has no effect with {kafka.security_protocol}; "
                "set kafka.security_protocol to SASL_SSL or SASL_PLAINTEXT"
            )
        return self


class TopicSettings(SettingsSection):
    """What the topics are called."""

    jobs: TopicName = "tunerd.jobs"
    """Finished jobs come in here."""
    requests: TopicName = "tunerd.requests"
    """Questions come in here: what should be launched in this context?"""
    recommendations: TopicName = "tunerd.recommendations"
    """Recommendations go out here, keyed by context; compacted."""
    rejected: TopicName = "tunerd.rejected"
    """Records that are no usable event go here, with the reason."""
    drift: TopicName = "tunerd.drift"
    """Where jobs no longer are as they were is said here, keyed by study."""
    create: bool = True
    """Whether to create topics that do not exist."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = {self.jobs, self.requests, self.recommendations, self.rejected, self.drift}
        if len(names) < 5:
            raise ValueError(
                "jobs, requests, recommendations, rejected and drift should be five different"
                " topics"
            )
        return self


class StoreSettings(SettingsSection):
    """Where history and everything learned is kept."""

    url: Annotated[str, AfterValidator(_url_without_password)] = ""
    """``sqlite:///FILE``, the path as it stands, or ``postgresql://USER@HOST:PORT/DATABASE``,
    without a password; the SQLite file ``tunerd.sqlite`` in ``data_dir`` by default."""
    password_file: Path | None = None
    """File that holds the database's password."""

    _password: SecretStr | None = PrivateAttr(default=None)

    @property
    def password(self) -> SecretStr | None:
        """What ``password_file`` holds."""
        return self._password


class HttpSettings(SettingsSection):
    """Metrics and health for machines, and pages for people. Read-only without ``actions``."""

    enabled: bool = True
    """Whether to listen at all."""
    host: str = "127.0.0.1"
    """Address to listen on. Beyond loopback set ``read_token_file`` and a certificate, or put a
    proxy with authentication before it."""
    port: Port = 9464
    """Port to listen on; 0 takes any free one and logs it."""
    pages: bool | None = None
    """Whether it serves the pages and their API, which show jobs, users and configurations to
    whoever can reach the port. Without it: on loopback, and beyond it where `names` or
    `read_token_file` is set."""
    names: str = ""
    """Host names under which the pages may be asked, separated by commas. On loopback they answer
    to ``localhost`` and ``127.0.0.1`` too, and else to any name where none is given. No stranger's
    page can read them under a name of its own then."""
    actions: bool = False
    """Whether people may approve, decline, pause, resume, pin and forbid on the pages, with the
    token and a reason. What they ask for is kept as the command line's commands are."""
    token_file: Path | None = None
    """File that holds the token for that, 16 characters at least; readable by the daemon alone."""
    certificate_file: Path | None = None
    """Certificate to serve HTTPS with, PEM, the chain behind it; read again when it changes."""
    key_file: Path | None = None
    """Its key, PEM, without a password."""
    read_token_file: Path | None = None
    """File that holds a token, 16 characters at least, that every request needs except those for
    ``/livez`` and ``/readyz``: ``Authorization: Bearer TOKEN``. A browser asks for a name and a
    password: any name, and the token. What others may read then needs no loopback, so the pages
    are served. Set a certificate with it, else the token crosses the network as it is."""
    stalled_after_s: Seconds = 120.0
    """``/readyz`` fails once a stage that has work made no progress for so many seconds."""

    _token: SecretStr | None = PrivateAttr(default=None)
    _read_token: SecretStr | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file go together: one of them is missing")
        return self

    @property
    def read_token(self) -> SecretStr | None:
        """What ``read_token_file`` holds."""
        return self._read_token

    @property
    def token(self) -> SecretStr | None:
        """What ``token_file`` holds."""
        return self._token


class IngestSettings(SettingsSection):
    """How events are read."""

    batch_records: Count = 4000
    """At most so many records are committed in one transaction. Large, because a backlog is what
    its fixed cost counts in; a live event never waits for more."""
    max_future_hours: Annotated[
        float, Field(ge=0, le=24 * MOST_DAYS), BeforeValidator(_not_a_bool)
    ] = 24.0
    """An event that finished further in the future than this is rejected."""
    max_age_days: Days = 365.0
    """An event that finished longer ago than this is rejected."""
    halves_wait_days: Days = 7.0
    """An attempt of which something is missing is incomplete when no half of it came for so long;
    a later half still joins it."""
    mappings: Path | None = None
    """TOML file that says what records in formats of others mean (docs/events.md); none by
    default. It is read at the start and by ``tunerd reload``."""
    max_waiting_attempts: Count = 1_000_000
    """Halves of further attempts are rejected while so many attempts wait for theirs."""


class PrometheusSettings(SettingsSection):
    """A Prometheus, or what answers as one, that is asked for signals ([Forecasts](forecasts.md)).
    Nothing is asked without ``queries``."""

    url: Annotated[str, AfterValidator(_http_url)] = ""
    """Its address, such as ``https://prometheus.example.org:9090``, with what stands before
    ``/api/v1`` if anything does. Redirects are not followed."""
    queries: Annotated[dict[str, str], AfterValidator(_signal_queries)] = {}
    """An expression in PromQL for each name of a signal, such as
    ``rps = "sum by (service) (rate(http_requests_total[5m]))"``. Its labels are the signal's."""
    step_s: Annotated[Count, Field(ge=5, le=86_400)] = 60
    """Seconds between two points of a signal, and between two questions."""
    backfill_days: Days = 14.0
    """So far back is asked for what is not known yet: at the first start, and after an outage."""
    timeout_s: Annotated[Seconds, Field(le=600)] = 30.0
    """An answer that takes longer is given up."""
    ca_file: Path | None = None
    """PEM file of the authorities that sign its certificate; else the system's."""
    user: Annotated[str, Field(min_length=1)] | None = None
    """User name, where it asks for one; goes with ``password_file``."""
    password_file: Path | None = None
    """File that holds that user's password; read again for every question."""
    token_file: Path | None = None
    """File that holds a bearer token; read again for every question, since tokens expire."""

    _prometheus_password: SecretStr | None = PrivateAttr(default=None)
    _prometheus_token: SecretStr | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.queries and not self.url:
            raise ValueError("url is missing: there are queries")
        if self.user is not None and self.token_file is not None:
            raise ValueError("user and token_file: only one of them can be sent")
        if self.user is None and self.password_file is not None:
            raise ValueError("user is missing: there is a password_file")
        if self.backfill_days * 86_400 < 2 * self.step_s:
            raise ValueError("backfill_days is less than twice step_s")
        return self

    @property
    def password(self) -> SecretStr | None:
        """What ``password_file`` held at the start."""
        return self._prometheus_password

    @property
    def token(self) -> SecretStr | None:
        """What ``token_file`` held at the start."""
        return self._prometheus_token


class SignalSettings(SettingsSection):
    """Where signals come from beside the jobs topic."""

    prometheus: PrometheusSettings = PrometheusSettings()


class TuneSettings(SettingsSection):
    """How much is learned and searched, and how often."""

    budget_s: Seconds = 0.5
    """Seconds of each step for searching contexts again that had no new job."""
    active_days: Days = 30.0
    """A context is searched for so many days after its last job or request."""
    max_contexts: Count = 1000
    """At most so many contexts of a study are active; the stalest fall out."""
    valid_days: Days = 7.0
    """A recommendation holds for so many days; it is renewed at half of that."""
    step_deadline_s: Seconds = 120.0
    """A tuner process that gets no further within a step for longer than this is replaced. Where
    other programs keep the processors busy, its own processor time counts, and a step may take 8
    times as long. A study that was too slow gets twice as long at its next try, up to 16 times,
    until a step of it is finished."""
    checkpoint_every: Count = 500
    """Observations between two checkpoints of what was learned."""
    keep_models: Count = 12
    """Versions of a study's model kept whole, to which ``tunerd models --back`` can go back; of
    ``committee`` each takes 3 to 17 MB, of ``boosted_trees`` 1."""
    keep_predictions_days: Days = 400.0
    """What was predicted of a job is kept for so long after its end, for ``tunerd report``."""
    share_searches: bool = True
    """Where several instances share the store: an instance with little to do searches contexts of
    a study that has more of them waiting than its own instance gets to. What is recommended stays
    the same."""
    max_crashes: Count = 3
    """A study that ends the tuner process so many times in a row is set aside: until the next
    start, or, where it was at work and only took too long, for ten minutes, then for twice as long
    each time."""


class RetentionSettings(SettingsSection):
    """How long history is kept whole: for ever by default. What studies learn from stays anyway."""

    max_age_days: Days | None = None
    """What a job said is dropped so many days after it came in."""
    max_jobs: Annotated[int, Field(ge=20_000), BeforeValidator(_not_a_bool)] | None = None
    """What jobs said is dropped that came in before the latest so many of their study."""


class PublishSettings(SettingsSection):
    """How recommendations and rejected records are sent."""

    batch_messages: Count = 500
    """At most so many messages are sent before they are marked as sent."""


class LogSettings(SettingsSection):
    """One line on standard error per thing that an operator cares about."""

    format: Literal["auto", "console", "json"] = "auto"
    """``"auto"``: for people on a terminal, JSON lines otherwise."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important lines to print."""


class Settings(BaseSettings):
    """Everything that can be set about one installation of tunerd."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        env_prefix="TUNERD_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
    )

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")] = "tunerd"
    """Name of this installation: consumer group, client id and the right to publish go by it."""
    data_dir: Path = Path("tunerd-data")
    """Folder for what tunerd keeps; created when missing."""
    studies: Path = Path("studies")
    """Folder of study files, ``*.toml``."""
    stream: StreamSettings = StreamSettings()
    topics: TopicSettings = TopicSettings()
    store: StoreSettings = StoreSettings()
    http: HttpSettings = HttpSettings()
    ingest: IngestSettings = IngestSettings()
    signals: SignalSettings = SignalSettings()
    tune: TuneSettings = TuneSettings()
    retention: RetentionSettings = RetentionSettings()
    publish: PublishSettings = PublishSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Fill in the defaults that follow from ``data_dir`` and ``name``."""
        data_dir, name = given.get("data_dir"), given.get("name")
        if not isinstance(data_dir, str | Path):  # absent, or wrong and reported by its own check
            data_dir = cls.model_fields["data_dir"].default
        if not isinstance(name, str):
            name = cls.model_fields["name"].default
        stream = _table(given, "stream")
        kafka = _table(stream, "kafka") if isinstance(stream, dict) else stream
        store = _table(given, "store")
        for table, key, value in (
            (stream, "folder", Path(data_dir, "stream")),
            (kafka, "client_id", name),
            (kafka, "group", name),
            (store, "url", f"sqlite:///{Path(data_dir, 'tunerd.sqlite')}"),
        ):
            if isinstance(table, dict):
                table.setdefault(key, value)
        if isinstance(stream, dict):
            stream["kafka"] = kafka
        return given | {"stream": stream, "store": store}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take what :func:`load_settings` gives; a settings object never reads by itself."""
        return (init_settings,)


def _table(given: dict[str, Any], key: str) -> Any:
    table = given.get(key, {})
    return dict(table) if isinstance(table, dict) else table


SECRETS = (
    ("http", "token_file", "_token"),
    ("http", "read_token_file", "_read_token"),
    ("signals.prometheus", "password_file", "_prometheus_password"),
    ("signals.prometheus", "token_file", "_prometheus_token"),
    ("store", "password_file", "_password"),
    ("stream.kafka", "sasl_password_file", "_sasl_password"),
)
"""(section, key that names the file, attribute that holds what is in it)."""


def leaves(
    model: type[BaseModel] = Settings, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, FieldInfo]]:
    """Every key that can be set, in order: its dotted name and its field."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, SettingsSection):
            yield from leaves(field.annotation, (*path, name))
        else:
            yield ".".join((*path, name)), field
