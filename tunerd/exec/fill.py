"""A configuration in the words of a program: arguments, environment, files.

``{name}`` in an argument becomes the value of that parameter. Braces that hold no name are left
alone (``{}``, ``{"a": 1}``), and so are a shell's own (``${name}``); ``{{name}}`` becomes
``{name}``. A name that nothing is called is a mistake: a program that got it as it stands would do
something that nobody asked for.
"""

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.exec.plan import write_whole

__all__ = ["FORMATS", "FilledCommand", "fill", "placeholders", "text_of"]

_PLACE = re.compile(
    r"\{\{([A-Za-z_]\w*)\}\}|(?<![\$\{])\{([A-Za-z_]\w*)\}",
    re.ASCII,  # as names in a study are
)
MOST_BYTES = 4 << 20
"""Of a template."""


@dataclass(frozen=True)
class FilledCommand:
    """A command that can be run."""

    arguments: list[str]
    environment: dict[str, str]
    """What is added."""
    made: list[Path]
    """Files to take away when the program has ended."""


def placeholders(texts: Sequence[str]) -> list[str]:
    """The names in braces, in order, each once."""
    names = (match[2] for text in texts for match in _PLACE.finditer(text) if match[2])
    return list(dict.fromkeys(names))


def text_of(value: Any) -> str:
    """A value as a program reads it: ``true``, ``3``, ``0.83``, a text as it is, a list as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def fill(
    arguments: Sequence[str],
    config: Mapping[str, Any],
    context: Mapping[str, Any],
    *,
    write: Sequence[str] = (),
    templates: Sequence[str] = (),
) -> FilledCommand:
    """Put a configuration into a command.

    ``write`` names formats (then the file is a temporary one and ``{config_file}`` its path) or
    files whose suffix says the format; ``templates`` are ``TEMPLATE=TARGET``, both files.

    Raises:
        MisconfiguredError: with every name that has no value and every file that will not do.
        OSError: a file cannot be read or written.
    """
    known: dict[str, Any] = {**context, **config}
    problems: list[ValidationProblem] = []
    special = {"hydra"} | ({"config_file"} if write else set())
    problems += [
        ValidationProblem("command", _unknown(name, known))
        for name in placeholders(arguments)
        if name not in known and name not in special
    ]
    targets = [_target(text, problems) for text in write]
    pairs = [_pair(text, problems) for text in templates]
    if problems:
        raise MisconfiguredError(problems)
    made: list[Path] = []
    environment = environment_of(config)
    for path, form in targets:
        if path is None:
            path = _temporary(form)
            made.append(path)
        write_whole(path, FORMATS[form](config))
        known["config_file"] = str(path)
        environment["TUNERD_CONFIG_FILE"] = str(path)
    for source, target in pairs:
        write_whole(target, _fill_template(source, known))
    return FilledCommand(_arguments(arguments, known, config), environment, made)


def environment_of(config: Mapping[str, Any]) -> dict[str, str]:
    """``TUNERD_CONFIG`` as JSON, and ``TUNERD_PARAM_NAME`` for each parameter."""
    variables = {f"TUNERD_PARAM_{name.upper()}": text_of(value) for name, value in config.items()}
    return variables | {"TUNERD_CONFIG": json.dumps(dict(config))}


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {{{close[0]}}}?" if close else f"write {{{{{name}}}}} to pass it on as is"
    return f"there is no value for {{{name}}}; {hint}"


def _arguments(
    arguments: Sequence[str], known: Mapping[str, Any], config: Mapping[str, Any]
) -> list[str]:
    filled: list[str] = []
    for argument in arguments:
        if argument == "{hydra}":
            filled += [f"{name}={_hydra(value)}" for name, value in config.items()]
        else:
            filled.append(_fill_text(argument, known))
    return filled


def _fill_text(text: str, known: Mapping[str, Any]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "{" + match[1] + "}"
        return text_of(known[match[2]]) if match[2] in known else match[0]

    return _PLACE.sub(value, text)


def _fill_template(source: Path, known: Mapping[str, Any]) -> str:
    """A file's text with its values; a brace that names nothing is the file's own language."""
    from tunerd.files import read_text

    text = read_text(source, MOST_BYTES)
    if not any(name in known for name in placeholders([text])):
        names = ", ".join(f"{{{name}}}" for name in known)
        raise MisconfiguredError([ValidationProblem(str(source), f"has none of {names}")])
    return _fill_text(text, known)


def _pair(text: str, problems: list[ValidationProblem]) -> tuple[Path, Path]:
    source, equals, target = text.partition("=")
    if not (equals and source and target):
        problems.append(ValidationProblem("--fill", f"{text}: should be TEMPLATE=TARGET"))
    elif os.path.abspath(source) == os.path.abspath(target):
        problems.append(ValidationProblem("--fill", f"{text}: the template would be overwritten"))
    return Path(source), Path(target)


def _target(text: str, problems: list[ValidationProblem]) -> tuple[Path | None, str]:
    """Where to write (None: a temporary file) and in which format."""
    if text in FORMATS:
        return None, text
    path = Path(text)
    suffix = path.suffix.lstrip(".") or path.name.lstrip(".")
    form = {"yml": "yaml", "hydra": "hydra"}.get(suffix, suffix)
    if form not in FORMATS:
        formats = ", ".join(FORMATS)
        problems.append(
            ValidationProblem(
                "--write", f"{text}: should be one of {formats}, or a file that ends like that"
            )
        )
    return path, form


def _temporary(form: str) -> Path:
    descriptor, name = tempfile.mkstemp(f".{form}", "tunerd-")
    os.close(descriptor)
    return Path(name)


# -- formats ----------------------------------------------------------------------------------


def _toml(config: Mapping[str, Any]) -> str:
    # JSON's texts, numbers, booleans and lists are TOML's too, but for DEL, which it escapes.
    return "".join(f"{_key(name)} = {_json(value)}\n" for name, value in config.items())


def _yaml(config: Mapping[str, Any]) -> str:
    # JSON is YAML, but that 1e-05 without a dot is a text for YAML 1.1.
    return "".join(f"{_key(name)}: {_dotted(value)}\n" for name, value in config.items())


def _env(config: Mapping[str, Any]) -> str:
    return "".join(f"{name}={_quoted(text_of(value))}\n" for name, value in config.items())


def _hydra_file(config: Mapping[str, Any]) -> str:
    return "".join(f"{name}={_hydra(value)}\n" for name, value in config.items())


def _json_file(config: Mapping[str, Any]) -> str:
    return json.dumps(dict(config), indent=2) + "\n"


FORMATS = {
    "toml": _toml,
    "yaml": _yaml,
    "json": _json_file,
    "hydra": _hydra_file,
    "env": _env,
}


def _json(value: Any) -> str:
    return json.dumps(value).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else _json(name)


def _dotted(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_dotted, value))}]"
    text = _json(value)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")
    return text


def _quoted(text: str) -> str:
    """For a shell and for dotenv readers: as it is where that is plain, else in quotes."""
    if re.fullmatch(r"[\w.,:/@%+-]*", text, re.ASCII):
        return text
    if "'" not in text:
        return f"'{text}'"
    escaped = re.sub(r'(["\\$`])', r"\\\1", text)
    return f'"{escaped}"'


def _hydra(value: Any) -> str:
    """A value in Hydra's grammar of overrides: what is not a plain word is quoted."""
    if isinstance(value, list):
        return f"[{','.join(map(_hydra, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    if re.fullmatch(r"[A-Za-z_][\w./:+%@-]*", value, re.ASCII) and value.lower() not in _WORDS:
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


_WORDS = frozenset({"true", "false", "null", "nan", "inf"})
