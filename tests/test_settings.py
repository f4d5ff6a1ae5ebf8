"""Settings: every mistake at once, with file and key; secrets never in a message."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.errors import MisconfiguredError
from tunerd.settings import Settings, dump_settings, load_settings, restore_settings
from tunerd.settings.load import variable
from tunerd.settings.model import leaves
from tunerd.settings.reference import settings_page

DOCS = Path(__file__).parent.parent / "docs"
STUDY = """
schema = 1
name = "{name}"
[objective]
metric = "speed"
goal = "maximize"
unit = "1/s"
[parameters]
tp = {{ type = "int", values = [1, 2, 4] }}
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def problems(file: Path | None, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(MisconfiguredError) as caught:
        load_settings(file, environ or {})
    return [str(problem) for problem in caught.value.problems]


def only(found: list[str]) -> str:
    assert len(found) == 1, found
    return found[0]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "tunerd.toml", "")


def test_defaults_are_beside_the_file(file: Path) -> None:
    settings = load_settings(file, {})
    folder = file.parent
    assert settings.data_dir == folder / "tunerd-data"
    assert settings.studies == folder / "studies"
    assert settings.stream.kind == "jsonl"
    assert settings.stream.folder == folder / "tunerd-data" / "stream"
    assert settings.store.url == f"sqlite:///{folder}/tunerd-data/tunerd.sqlite"
    assert settings.stream.kafka.group == settings.name == "tunerd"


def test_without_a_file_the_current_folder_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings(None, {}).data_dir == tmp_path / "tunerd-data"
    write(tmp_path / "tunerd.toml", 'data_dir = "here"')
    assert load_settings(None, {}).data_dir == tmp_path / "here"
    other = write(tmp_path / "else" / "where.toml", 'data_dir = "there"')
    found = load_settings(None, {"TUNERD_SETTINGS": str(other)})
    assert found.data_dir == tmp_path / "else" / "there"


def test_the_environment_is_over_the_file(file: Path) -> None:
    write(file, 'name = "a"\n[http]\nport = 1\nhost = "::1"\n[stream]\nkind = "jsonl"')
    settings = load_settings(
        file,
        {
            "TUNERD_HTTP__PORT": "0",
            "TUNERD_STREAM__KIND": "kafka",
            "TUNERD_STREAM__KAFKA__BOOTSTRAP_SERVERS": "a:9092, b:9092",
            "TUNERD_TOPICS__CREATE": "false",
            "TUNERD_NAME": "",
            "HOME": "/root",
        },
    )
    assert (settings.name, settings.http.port, settings.http.host) == ("a", 0, "::1")
    assert settings.stream.kafka.bootstrap_servers == "a:9092, b:9092"
    assert settings.stream.kafka.client_id == "a"
    assert settings.topics.create is False


def test_a_named_file_that_is_missing_is_a_mistake(tmp_path: Path) -> None:
    missing = tmp_path / "no.toml"
    assert only(problems(missing)) == f"{missing}: there is no such file"
    assert "no.toml" in only(problems(None, {"TUNERD_SETTINGS": str(missing)}))


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"[http\n", "is not TOML"), (b"\xff\xfe", "UTF-8"), (b"a = 1\na = 2\n", "is not TOML")],
)
def test_a_file_that_is_no_toml(file: Path, content: bytes, said: str) -> None:
    file.write_bytes(content)
    assert said in only(problems(file))


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("[http]\nprt = 1", "http.prt", "did you mean http.port?"),
        ("[htpp]\nport = 1", "htpp", "did you mean http?"),
        ('"a.b" = 1', "a.b", "there is no such key"),
        ("[http]\nport = 65536", "http.port", "less than or equal to 65535, not 65536"),
        ('[http]\nport = "x"', "http.port", "valid integer"),
        ("[ingest]\nbatch_records = true", "ingest.batch_records", "should be a number"),
        ("[tune]\nbudget_s = nan", "tune.budget_s", "finite"),
        ("[tune]\nbudget_s = -1", "tune.budget_s", "greater than 0"),
        ("[tune]\nactive_days = 1e6", "tune.active_days", "less than or equal to 365000"),
        ("[ingest]\nmax_future_hours = 1e300", "ingest.max_future_hours", "less than or equal"),
        ('stream = "kafka"', "stream", "valid dictionary"),
        ('[stream]\nkind = "kafak"', "stream.kind", "'jsonl' or 'kafka'"),
        ('[stream]\nkind = "kafka"', "stream", "bootstrap_servers is missing"),
        ('[stream.kafka]\nbootstrap_servers = "a"', "bootstrap_servers", "host:port"),
        ('[topics]\njobs = "a b"', "topics.jobs", "letters"),
        ('[topics]\njobs = "tunerd.rejected"', "topics", "five different topics"),
        ('name = "A"', "name", "pattern"),
        ('[store]\nurl = "mysql://x"', "store.url", "sqlite:///FILE or postgresql://"),
        ('[log]\nlevel = "loud"', "log.level", "'debug', 'info'"),
        ('[signals.prometheus]\nurl = "p:9090"', "signals.prometheus.url", "http(s)://HOST"),
        ('[signals.prometheus]\nurl = "http://p:x"', "signals.prometheus.url", "http(s)://HOST"),
        ('[signals.prometheus]\nurl = "http://p/?a"', "signals.prometheus.url", "http(s)://HOST"),
        ('[signals.prometheus.queries]\nrps = "a"', "signals.prometheus", "url is missing"),
        ('[signals.prometheus.queries]\n"r s" = "a"', "prometheus.queries", "'r s'"),
        ('[signals.prometheus.queries]\nrps = " "', "prometheus.queries", "PromQL"),
        ("[signals.prometheus.queries]\nrps = 1", "prometheus.queries.rps", "valid string"),
        ("[signals.prometheus]\nstep_s = 1", "signals.prometheus.step_s", "or equal to 5"),
        (f"[signals.prometheus]\nstep_s = 1{'0' * 400}", "prometheus.step_s", "or equal to 86400"),
        ("[signals.prometheus]\nstep_s = 3600\nbackfill_days = 0.05", "prometheus", "twice"),
        ('[signals.prometheus]\npassword_file = "b"', "signals.prometheus", "user is missing"),
        ('[signals.prometheus]\nuser = ""', "signals.prometheus.user", "at least 1"),
        ('studies = "nowhere"', "nowhere", "folder of studies"),
    ],
)
def test_mistakes_say_where_and_what_would_be_right(
    file: Path, text: str, where: str, said: str
) -> None:
    write(file, text)
    found = only(problems(file))
    place, _, message = found.partition(": ")
    assert where in found
    assert said in found
    assert place == str(file) or where == "nowhere"
    assert message


def test_kafka_needs_what_its_protocol_needs(file: Path) -> None:
    kafka = '[stream]\nkind = "kafka"\n[stream.kafka]\nbootstrap_servers = "a:1"\n'
    write(file, kafka + 'security_protocol = "SASL_SSL"')
    assert "sasl_mechanism is missing" in only(problems(file))
    write(file, kafka + 'sasl_mechanism = "PLAIN"')
    assert "security_protocol" in only(problems(file))
    login = 'security_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\n'
    write(file, kafka + login)
    assert "sasl_username is missing" in only(problems(file))
    write(file, kafka + login + 'sasl_username = "u"')
    assert "sasl_password_file: is missing" in only(problems(file))
    write(file, kafka + login + 'sasl_username = "u"\nsasl_password_file = "pw"')
    write(file.parent / "pw", "secret\n")
    password = load_settings(file, {}).stream.kafka.sasl_password
    assert password is not None
    assert password.get_secret_value() == "secret"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("TUNERD_HTTP_PORT", "TUNERD_HTTP__PORT"),
        ("TUNERD_STREAM__KAFKA__BOOTSTRAP_SERVER", "TUNERD_STREAM__KAFKA__BOOTSTRAP_SERVERS"),
        ("TUNERD_SETTING", "TUNERD_SETTINGS"),
        ("TUNERD_NAEM", "TUNERD_NAME"),
        ("tunerd_naem", "TUNERD_NAME"),
    ],
)
def test_misspelt_variables_are_mistakes(file: Path, name: str, hint: str) -> None:
    found = only(problems(file, {name: "1"}))
    assert found == f"environment: {name}: there is no such setting; did you mean {hint}?"


def test_variables_of_tests_and_of_kubernetes_are_left_alone(file: Path) -> None:
    load_settings(
        file,
        {
            "TUNERD_TEST_KAFKA": "a:1",
            "TUNERD_SERVICE_HOST": "10.0.0.1",
            "TUNERD_SERVICE_PORT": "9464",
            "TUNERD_SERVICE_PORT_METRICS": "9464",
            "TUNERD_PORT": "tcp://10.0.0.1:9464",
            "TUNERD_PORT_9464_TCP": "tcp://10.0.0.1:9464",
            "TUNERD_PORT_9464_TCP_ADDR": "10.0.0.1",
            "TUNERD_METRICS_SERVICE_HOST": "10.0.0.1",
        },
    )
    assert "TUNERD_HTTP__PORT" in only(problems(file, {"TUNERD_PORT": "9464"}))


def test_a_wrong_value_names_its_variable(file: Path) -> None:
    found = only(problems(file, {"TUNERD_HTTP__PORT": "http"}))
    assert found.startswith("environment: TUNERD_HTTP__PORT: should be a valid integer")


def test_everything_is_reported_at_once(file: Path) -> None:
    write(file, '[http]\nport = "x"\nprt = 1\n[store]\npassword_file = "none"\n[tune]\nactive = 1')
    write(file.parent / "studies" / "a.toml", "schema = 2")
    write(file.parent / "studies" / "b.toml", "is not toml")
    found = "\n".join(problems(file, {"TUNERD_LOG__LEVEL": "x", "TUNERD_LGO": "x"}))
    for said in (
        "http.port",
        "http.prt",
        "store.password_file: cannot read",
        "tune.active",
        "a.toml",
        "b.toml",
        "TUNERD_LOG__LEVEL",
        "TUNERD_LGO",
    ):
        assert said in found


def test_studies_that_share_a_name(file: Path) -> None:
    write(file.parent / "studies" / "a.toml", STUDY.format(name="same"))
    write(file.parent / "studies" / "b.toml", STUDY.format(name="same"))
    found = only(problems(file))
    assert "b.toml: name: 'same'" in found
    assert "a.toml" in found
    load_settings(file, {}, check_studies=False)


def test_secrets_come_from_files(file: Path) -> None:
    write(file, '[store]\npassword_file = "pw"')
    write(file.parent / "pw", "hunter2\r\n")
    settings = load_settings(file, {})
    assert settings.store.password is not None
    assert settings.store.password.get_secret_value() == "hunter2"
    write(file.parent / "pw", "another\n")
    copy = restore_settings(dump_settings(settings))  # what the tuner process goes by
    assert copy == settings
    assert copy.store.password == settings.store.password
    assert "hunter2" not in f"{settings!r}{settings}{settings.model_dump_json()}"


def test_queries_come_from_a_variable_too_and_secrets_of_two_places_are_kept_apart(
    file: Path,
) -> None:
    write(
        file, '[store]\npassword_file = "a"\n[signals.prometheus]\nuser = "me"\npassword_file = "b"'
    )
    for name in "ab":
        write(file.parent / name, name)
    queries = {"TUNERD_SIGNALS__PROMETHEUS__QUERIES": '{"rps": "sum(x)"}'}
    settings = load_settings(file, queries | {"TUNERD_SIGNALS__PROMETHEUS__URL": "http://p:9090"})
    assert settings.signals.prometheus.queries == {"rps": "sum(x)"}
    copy = restore_settings(dump_settings(settings))
    for section, secret in ((copy.store, "a"), (copy.signals.prometheus, "b")):
        assert section.password is not None
        assert section.password.get_secret_value() == secret


def test_an_empty_secret_is_a_mistake(file: Path) -> None:
    write(file, '[store]\npassword_file = "pw"')
    write(file.parent / "pw", "\n")
    assert "is empty" in only(problems(file))


def test_systemd_credentials_hold_secrets_too(file: Path, tmp_path: Path) -> None:
    write(tmp_path / "credentials" / "store.password", "hunter2\n")
    settings = load_settings(file, {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")})
    assert settings.store.password is not None
    assert settings.store.password.get_secret_value() == "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        '[store]\npassword = "hunter2"',
        '[store]\nurl = "postgresql://user:hunter2@host/db"',
        '[store]\nurl = "postgresql://host/db?user=u&password=hunter2"',
        '[stream.kafka]\nsasl_password = "hunter2"',
        '[stream]\npassword = "hunter2"',
        '[signals.prometheus]\nurl = "https://tunerd:hunter2@prometheus"',
    ],
)
def test_messages_never_hold_secrets(file: Path, text: str) -> None:
    write(file, text)
    found = only(problems(file))
    assert "hunter2" not in found
    assert "file" in found or "no such key" in found


def test_relative_paths_are_relative_to_the_file(file: Path) -> None:
    write(file, 'data_dir = "../d"\n[store]\nurl = "sqlite:///s/x.sqlite"')
    settings = load_settings(file, {"TUNERD_STREAM__FOLDER": "events"})
    assert settings.data_dir == file.parent / "../d"
    assert settings.store.url == f"sqlite:///{file.parent}/s/x.sqlite"
    assert settings.stream.folder == file.parent / "events"


def test_settings_are_frozen(file: Path) -> None:
    settings = load_settings(file, {})
    with pytest.raises(ValueError, match="frozen"):
        settings.http.port = 1


def test_every_key_is_explained() -> None:
    assert all(field.description for _, field in leaves())


def test_the_page_of_settings_is_up_to_date() -> None:
    assert (DOCS / "settings.md").read_text() == settings_page()


@pytest.mark.slow
@given(
    key=st.sampled_from([key for key, _ in leaves()]),
    value=st.one_of(
        st.none().map(lambda _: "{}"),
        st.booleans().map(lambda value: str(value).lower()),
        st.integers().map(str),
        st.floats().map(lambda value: repr(value)),
        st.text(alphabet=st.characters(codec="ascii", exclude_characters="\\\"'\x00")).map(
            lambda text: '"' + "".join(c for c in text if c.isprintable()) + '"'
        ),
        st.just("[1, [2]]"),
    ),
)
def test_any_value_is_taken_or_reported(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: str
) -> None:
    section, _, name = key.rpartition(".")
    folder = tmp_path_factory.getbasetemp() / "any"
    text = f"[{section}]\n{name} = {value}\n" if section else f"{name} = {value}\n"
    file = write(folder / "tunerd.toml", text)
    try:
        settings = load_settings(file, {}, check_studies=False)
    except MisconfiguredError:
        return
    assert isinstance(settings, Settings)


def test_a_home_that_is_not_there_is_told(tmp_path: Path) -> None:
    file = write(tmp_path / "tunerd.toml", 'data_dir = "~nobody-of-this-name/data"\n')
    with pytest.raises(MisconfiguredError) as caught:
        load_settings(file, {"TUNERD_STUDIES": "~nor-this-one"}, check_studies=False)
    told = str(caught.value)
    assert f"{file}: data_dir" in told
    assert "~nobody-of-this-name: there is no such user" in told
    assert "environment: TUNERD_STUDIES" in told


def test_variables_are_named_after_keys() -> None:
    assert variable("stream.kafka.group") == "TUNERD_STREAM__KAFKA__GROUP"
