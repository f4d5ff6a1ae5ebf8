"""The page that lists every key, made from the model so that it cannot drift."""

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from tunerd.settings.model import Settings, leaves

__all__ = ["settings_page"]

_INTRODUCTION = """\
# Settings

<!-- Made by `tunerd schema settings --markdown`; a test compares the two. -->

tunerd reads `tunerd.toml` (`--settings FILE`, else the file that `TUNERD_SETTINGS` names, else
`tunerd.toml` in the current folder if there is one), and over it the environment: the variable of
a key is `TUNERD_` and the key in capitals, with `__` for the dots. An empty variable counts as
not set. Relative paths are relative to the settings file's folder, whichever way they are given.

A misspelt key is a mistake, and so is a variable that starts with `TUNERD_` and is no setting;
only `TUNERD_TEST_*` (the tests' own) and what Kubernetes sets for a Service called `tunerd` are
left alone. `tunerd check` says everything that is wrong at once and exits with 2.

Secrets are read from files and never from `tunerd.toml` or a variable. A secret that no key names
a file for is taken from systemd's credentials if there is one of its name
(`LoadCredential=store.password:/etc/tunerd/store.password`): `store.password`,
`stream.kafka.sasl_password`.
"""


def settings_page() -> str:
    """``docs/settings.md``."""
    parts = [_INTRODUCTION]
    section = None
    for key, field in leaves():
        table, _, name = key.rpartition(".")
        if table != section:
            section = table
            parts.append(_heading(table))
        parts.append(f"| `{name}` | {_default(field)} | {_meaning(field)} |\n")
    return "".join(parts)


def _heading(table: str) -> str:
    title, about = "At the top", ""
    if table:
        model: Any = Settings
        for part in table.split("."):
            model = model.model_fields[part].annotation
        title, about = f"[{table}]", f"{model.__doc__}\n\n"
    heading = f"\n## {title}\n\n{about}| key | default | meaning |\n|---|---|---|\n"
    return heading.replace("``", "`")


def _default(field: FieldInfo) -> str:
    default = field.default
    if default is None or default in ("", Path(), {}):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:g}`" if isinstance(default, int | float) else f'`"{default}"`'


def _meaning(field: FieldInfo) -> str:
    meaning = " ".join((field.description or "").split()).replace("``", "`")
    for option in (field.annotation, *get_args(field.annotation)):
        if get_origin(option) is Literal:
            choices = [f'`"{choice}"`' for choice in get_args(option)]
            return f"{meaning} {', '.join(choices[:-1])} or {choices[-1]}."
    return meaning
