"""Reading ``tunerd.toml``, the environment over it, and secrets from files.

Every mistake is found in one go: what pydantic finds wrong is reported and taken out, so that the
rest (secrets, studies) is still looked at. No message repeats the value of a key that may hold a
secret.
"""

import difflib
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, SettingsError

from tunerd.core.toml import MOST_BYTES, load_toml
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.files import SECRET_BYTES, read_text
from tunerd.settings.model import SECRETS, Settings, leaves

__all__ = [
    "FILE_VARIABLE",
    "dump_settings",
    "is_there",
    "load_settings",
    "restore_settings",
    "variable",
]

FILE_VARIABLE = "TUNERD_SETTINGS"
"""Environment variable that names the settings file."""

DEFAULT_FILE = "tunerd.toml"

TOKEN_CHARACTERS = 16
"""Of a token, at least."""
MOST_PROBLEMS = 100
"""Mistakes of a settings file that are said at a time."""

_KEYS = dict(leaves())
_SECTIONS = {key[:dot] for key in _KEYS for dot, char in enumerate(key) if char == "."}

# Kubernetes puts the address of every Service of the namespace into the environment; a Service
# that is called tunerd, or tunerd-something, must not look like a misspelt setting.
_KUBERNETES = re.compile(
    r"TUNERD_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)"
)

# What `tunerd exec`, `tunerd webhook` and deploy/slurm tell the program, which may call tunerd.
_TO_PROGRAMS = re.compile(
    r"TUNERD_(CONFIG|CONFIG_FILE|METRICS|PARAM_\w+|SLURM_\w+"
    r"|JOB_ID|ATTEMPT|CLUSTER|RECOMMENDATION_ID|CANDIDATE_ID)"
)

Tree = dict[str, Any]


def load_settings(
    file: Path | None, environ: Mapping[str, str], *, check_studies: bool = True
) -> Settings:
    """Read the settings: defaults, the file over them, ``TUNERD_*`` variables over that.

    Without ``file`` it is the one that ``TUNERD_SETTINGS`` names, else ``tunerd.toml`` in the
    current folder if there is one. Relative paths, from variables too, are relative to the
    settings file's folder. An empty variable counts as not set. Variables that start with
    ``TUNERD_TEST_`` belong to the tests and are left alone, as is what Kubernetes sets for a
    Service of our name.

    Raises:
        MisconfiguredError: with every mistake in the file, the variables, the files that hold
            secrets, and (unless ``check_studies`` is off) the study files and the mappings.
    """
    problems: list[ValidationProblem] = []
    path, named = _settings_file(file, environ)
    tree = _read_toml(path, named, problems)
    variables = _read_environment(environ, problems)
    for key, value in variables.items():
        _put(tree, key, value)
    studies_named = "studies" in tree
    _anchor(tree, variables.keys(), path, problems)
    settings = _validate(tree, variables.keys(), path, problems)
    _read_secrets(settings, environ, problems)
    if check_studies:
        problems += _study_problems(settings, studies_named)
        problems += _mapping_problems(settings)
    if problems:
        raise MisconfiguredError(problems)
    return settings


def dump_settings(settings: Settings) -> bytes:
    """One line for :func:`restore_settings` in a child of this process. It holds the secrets."""
    secrets = {
        attribute: secret.get_secret_value()
        for section, _, attribute in SECRETS
        if (secret := getattr(_section(settings, section), attribute)) is not None
    }
    return json.dumps([settings.model_dump(), secrets], default=str).encode()


def restore_settings(dump: bytes) -> Settings:
    """The settings that another process has read, whatever their files hold by now."""
    tree, secrets = json.loads(dump)
    settings = Settings(**tree)
    for section, _, attribute in SECRETS:
        if attribute in secrets:
            setattr(_section(settings, section), attribute, SecretStr(secrets[attribute]))
    return settings


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder. Where this user may not look there may be one:
    whoever reads it says so."""
    try:
        return path.exists()
    except PermissionError:
        return True


def variable(key: str) -> str:
    """Name of the environment variable for a dotted key."""
    return "TUNERD_" + key.upper().replace(".", "__")


def _settings_file(file: Path | None, environ: Mapping[str, str]) -> tuple[Path, bool]:
    named = file or environ.get(FILE_VARIABLE) or None
    return Path(named or DEFAULT_FILE), named is not None


def _read_toml(path: Path, named: bool, problems: list[ValidationProblem]) -> Tree:
    try:
        return load_toml(read_text(path, MOST_BYTES))
    except FileNotFoundError:
        if named:
            problems.append(ValidationProblem(str(path), "there is no such file"))
    except OSError as error:
        problems.append(ValidationProblem(str(path), f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        problems.append(ValidationProblem(str(path), f"should be UTF-8; byte {error.start} is not"))
    except ValueError as error:
        problems.append(ValidationProblem(str(path), f"is not TOML: {error}"))
    return {}


def _read_environment(
    environ: Mapping[str, str], problems: list[ValidationProblem]
) -> dict[str, Any]:
    """Values by dotted key, after a look at every name: pydantic-settings ignores misspelt ones."""
    names = {variable(key): key for key in _KEYS}
    known: dict[str, str] = {}
    for name in sorted(environ):
        upper = name.upper()
        if not upper.startswith("TUNERD_") or upper.startswith("TUNERD_TEST_"):
            continue
        if upper == FILE_VARIABLE or _KUBERNETES.fullmatch(upper) or _TO_PROGRAMS.fullmatch(upper):
            continue
        if upper == "TUNERD_PORT" and "://" in environ[name]:  # Kubernetes again
            continue
        if upper in names:
            known[name] = environ[name]
        else:
            hint = _did_you_mean(upper, [*names, FILE_VARIABLE])
            problems.append(
                ValidationProblem(f"environment: {name}", f"there is no such setting{hint}")
            )
    try:
        given = _EnvironmentSource(known)()
    except SettingsError as error:
        problems.append(ValidationProblem("environment", str(error)))
        return {}
    return {key: value for key in _KEYS if (value := _get(given, key)) is not None}


class _EnvironmentSource(EnvSettingsSource):
    """The environment source of pydantic-settings, over a mapping that was passed in."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        super().__init__(Settings)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._environ.items() if value}


def _anchor(
    tree: Tree, variables: Collection[str], path: Path, problems: list[ValidationProblem]
) -> None:
    """Make paths absolute, given and default ones alike."""
    base = Path(os.path.abspath(path)).parent
    for key, field in _KEYS.items():
        if field.annotation not in (Path, Path | None):
            continue
        value = _get(tree, key)
        if value is None and "." not in key:
            value = str(field.default)
        if isinstance(value, str) and value:
            try:
                _put(tree, key, base / Path(value).expanduser())
            except RuntimeError:
                name = Path(value).parts[0]
                refusal = (
                    f"{name}: there is no such user, or no home folder; write the path in full"
                )
                problems.append(ValidationProblem(_where(key, variables, path), refusal))
                _remove(tree, tuple(key.split(".")))
    url = _get(tree, "store.url")
    if isinstance(url, str) and url.startswith("sqlite:///"):
        _put(tree, "store.url", f"sqlite:///{base / url.removeprefix('sqlite:///')}")


def _where(key: str, variables: Collection[str], path: Path) -> str:
    """Where a setting was set."""
    return f"environment: {variable(key)}" if key in variables else f"{path}: {key}"


def _validate(
    tree: Tree, variables: Collection[str], path: Path, problems: list[ValidationProblem]
) -> Settings:
    """The settings without what is wrong in them; what is wrong is added to ``problems``."""
    while True:
        try:
            return Settings(**tree)
        except ValidationError as error:
            for detail in error.errors(include_url=False, include_context=False):
                key = ".".join(map(str, detail["loc"]))
                if len(problems) < MOST_PROBLEMS:  # each is compared with all keys that there are
                    problems.append(
                        ValidationProblem(_where(key, variables, path), _explain(key, detail))
                    )
                _remove(tree, detail["loc"])


def _explain(key: str, detail: ErrorDetails) -> str:
    if detail["type"] == "extra_forbidden":
        secret = next((f"{s}.{f}" for s, f, _ in SECRETS if f"{s}.{f}" == f"{key}_file"), None)
        if secret:
            return f"secrets are read from files; name the file in {secret}"
        return f"there is no such key{_did_you_mean(key, [*_KEYS, *_SECTIONS])}"
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
    field = _KEYS.get(key)
    given = detail["input"]
    if field is None or key.endswith(".url") or not isinstance(given, str | int | float):
        return message
    about = " ".join((field.description or "").split()).replace("``", "").rstrip(".")
    return f"{message}, not {given!r} ({about})"


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def _read_secrets(
    settings: Settings, environ: Mapping[str, str], problems: list[ValidationProblem]
) -> None:
    """Read each secret's file; without one, systemd's credential of the secret's dotted name."""
    credentials = environ.get("CREDENTIALS_DIRECTORY")
    for section, key, attribute in SECRETS:
        holder = _section(settings, section)
        file: Path | None = getattr(holder, key)
        name = f"{section}.{key.removesuffix('_file')}"
        if file is None and credentials and is_there(Path(credentials) / name):
            file = Path(credentials) / name
        if file is None:
            continue
        try:
            secret = read_text(file, SECRET_BYTES).rstrip("\r\n")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            problems.append(ValidationProblem(f"{section}.{key}", f"cannot read {file}: {why}"))
            continue
        if secret:
            setattr(holder, attribute, SecretStr(secret))
        else:
            problems.append(ValidationProblem(f"{section}.{key}", f"{file} is empty"))
    token = settings.http.token
    if settings.http.actions and token is None and not problems:
        problems.append(ValidationProblem("http.token_file", "is missing for http.actions"))
    short = f"holds a token of fewer than {TOKEN_CHARACTERS} characters: anybody may guess it"
    for name, given in (("token_file", token), ("read_token_file", settings.http.read_token)):
        if given is not None and len(given.get_secret_value()) < TOKEN_CHARACTERS:
            problems.append(ValidationProblem(f"http.{name}", short))
    kafka = settings.stream.kafka
    if settings.stream.kind == "kafka" and kafka.sasl_mechanism and not kafka.sasl_password:
        problems.append(
            ValidationProblem(
                "stream.kafka.sasl_password_file", f"is missing for {kafka.sasl_mechanism}"
            )
        )


def _section(settings: Settings, name: str) -> Any:
    holder: Any = settings
    for part in name.split("."):
        holder = getattr(holder, part)
    return holder


def _study_problems(settings: Settings, named: bool) -> tuple[ValidationProblem, ...]:
    if not named and not is_there(settings.studies):
        return ()
    from tunerd.settings.studies import load_studies

    try:
        load_studies(settings.studies)
    except MisconfiguredError as error:
        return error.problems
    return ()


def _mapping_problems(settings: Settings) -> tuple[ValidationProblem, ...]:
    if settings.ingest.mappings is None:
        return ()
    from tunerd.events.mapping import load_mappings

    try:
        load_mappings(settings.ingest.mappings)
    except MisconfiguredError as error:
        return error.problems
    return ()


def _get(tree: Tree, key: str) -> Any:
    value: Any = tree
    for part in key.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def _put(tree: Tree, key: str, value: object) -> None:
    *sections, name = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):  # a value where a section belongs: reported by pydantic
            return
    tree[name] = value


def _remove(tree: Tree, keys: tuple[int | str, ...]) -> None:
    *sections, name = map(str, keys)
    for section in sections:
        tree = tree[section]
    tree.pop(name, None)
