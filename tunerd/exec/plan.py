"""What settings and a study say about one job: where to send, what may be tuned, the baseline.

Reading them in full takes 0.4 s and 50 MB, far more than many programs that are wrapped. So a
process of its own does it, once, and what it finds is kept. The next start compares the bytes of
both files and takes what is kept.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tunerd import __version__
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.spool import state_folder

__all__ = [
    "NOT_CONFIGURED",
    "JobPlan",
    "derived_values",
    "in_another_process",
    "make_plan",
    "write_whole",
]

SETTINGS_VARIABLE = "TUNERD_SETTINGS"
DEFAULT_SETTINGS = "tunerd.toml"
MOST_KEPT = 500
"""Plans that are kept; each context has one of some kilobytes."""
MOST_BYTES = 1 << 20

NOT_CONFIGURED = """\
no daemon is configured here, and tunerd exec starts none by itself. One of:
  tunerd exec --local ...          keeps a daemon of your own, in {local}
  tunerd run                       starts one in this folder, for a study in ./studies
  export TUNERD_SETTINGS=FILE      names the settings of an installation that is somewhere else"""


@dataclass(frozen=True)
class JobPlan:
    """All that one job needs to know."""

    study: str
    objective: str
    parameters: tuple[str, ...]
    derived: tuple[str, ...]
    context: dict[str, Any]
    context_key: str
    baseline: dict[str, Any]
    """Perhaps only some parameters, perhaps none."""
    study_file: str
    """Absolute."""
    settings_file: str | None
    stream: str
    """``jsonl`` or ``kafka``."""
    where: str
    """The stream's folder, absolute, or the broker's addresses."""
    jobs_topic: str
    requests_topic: str
    recommendations_topic: str


def make_plan(
    study: str, context: Sequence[str], settings: Path | None, environ: Mapping[str, str]
) -> JobPlan:
    """The plan for a job of a study (a name, or a file) in a context of ``name=value`` texts.

    Raises:
        MisconfiguredError: with everything that is wrong.
    """
    folder = state_folder(environ) / "exec" / "plans"
    named = settings or environ.get(SETTINGS_VARIABLE) or DEFAULT_SETTINGS
    path = Path(os.path.abspath(named))
    ours = sorted((k, v) for k, v in environ.items() if _is_setting(k))
    asked = [__version__, str(path), _digest(path), ours, study, list(context), os.getcwd()]
    kept = folder / sha256(json.dumps(asked).encode()).hexdigest()
    with suppress(OSError, ValueError, TypeError, KeyError):
        document = json.loads(kept.read_text())
        if document["digest"] == _digest(Path(document["plan"]["study_file"])):
            return _plan(document["plan"])
    answer = in_another_process(lambda: _read(study, context, settings, environ))
    if "problems" in answer:
        raise MisconfiguredError([ValidationProblem(*problem) for problem in answer["problems"]])
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(kept, json.dumps(answer))
        _forget_oldest(folder)
    return _plan(answer["plan"])


def derived_values(plan: JobPlan, config: Mapping[str, Any]) -> dict[str, Any]:
    """The study's derived values of a configuration; those that are undefined are left out."""

    def read() -> dict[str, Any]:
        from tunerd.settings.studies import read_study

        study = read_study(Path(plan.study_file))
        columns = study.columns([plan.context], [dict(config)])
        values = {name: columns[name].plain(1).tolist()[0] for name in plan.derived}
        # NaN, which is not itself, is what an undefined number comes as.
        return {
            name: value for name, value in values.items() if value is not None and value == value
        }

    return in_another_process(read)


def write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody ever reads half of it. Raises OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _is_setting(name: str) -> bool:
    """Not one of those that a program is told, which are new each time."""
    launchers = ("TUNERD_SLURM_", "TUNERD_JOB_ID")
    prefixes = ("TUNERD_PARAM_", "TUNERD_CONFIG", "TUNERD_METRICS", *launchers)
    return name.upper().startswith("TUNERD_") and not name.startswith(prefixes)


def _plan(found: dict[str, Any]) -> JobPlan:
    lists = {name: tuple(found[name]) for name in ("parameters", "derived")}
    return JobPlan(**(found | lists))


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return sha256(file.read(MOST_BYTES + 1)).hexdigest()
    except OSError:
        return None


def _forget_oldest(folder: Path) -> None:
    kept = [file for file in folder.iterdir() if not file.name.startswith(".")]
    if len(kept) > MOST_KEPT:
        kept.sort(key=lambda file: file.stat().st_mtime)
        for file in kept[: MOST_KEPT // 5]:
            file.unlink(missing_ok=True)


def in_another_process(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``read`` returns, from a process that ends: its libraries would count as memory of the
    program that this one starts, and stay for as long as it runs."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as pipe:
                json.dump(read(), pipe)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    try:
        answer: dict[str, Any] = json.loads(text)
    except ValueError:
        raise MisconfiguredError([ValidationProblem("settings", "could not be read")]) from None
    return answer


def _read(
    study: str, context: Sequence[str], settings: Path | None, environ: Mapping[str, str]
) -> dict[str, Any]:
    """The plan and the digest of the study's file, or what is wrong."""
    import traceback

    try:
        return _read_in_full(study, context, settings, environ)
    except MisconfiguredError as error:
        return {"problems": [(problem.where, problem.message) for problem in error.problems]}
    except Exception as error:  # this process has no other way to say it
        traceback.print_exc()
        return {"problems": [("settings", f"{type(error).__name__}: {error}")]}


def _read_in_full(
    study: str, given: Sequence[str], settings: Path | None, environ: Mapping[str, str]
) -> dict[str, Any]:
    from tunerd.core.study.context_texts import read_context
    from tunerd.settings import load_settings

    loaded = load_settings(settings, environ, check_studies=False)
    _something_configured(settings, loaded.data_dir, environ)
    path, study_read = _study(study, loaded.studies)
    texts = read_context(study_read, given)
    if texts.wrong:
        raise MisconfiguredError([ValidationProblem("--context", text) for text in texts.wrong])
    context = texts.context
    stream, topics = loaded.stream, loaded.topics
    kafka = stream.kind == "kafka"
    file = Path(settings or environ.get(SETTINGS_VARIABLE) or DEFAULT_SETTINGS)
    plan = JobPlan(
        study=study_read.name,
        objective=study_read.objective.metric,
        parameters=tuple(part.name for part in study_read.parameters),
        derived=tuple(part.name for part in study_read.derived),
        context=context,
        context_key=study_read.context_key(context),
        baseline=dict(study_read.baseline(context) or {}),
        study_file=str(path),
        settings_file=os.path.abspath(file) if file.exists() else None,
        stream=stream.kind,
        where=stream.kafka.bootstrap_servers if kafka else str(stream.folder),
        jobs_topic=topics.jobs,
        requests_topic=topics.requests,
        recommendations_topic=topics.recommendations,
    )
    return {"plan": asdict(plan), "digest": _digest(path)}


def _something_configured(
    settings: Path | None, data_dir: Path, environ: Mapping[str, str]
) -> None:
    there = settings or environ.get(SETTINGS_VARIABLE) or Path(DEFAULT_SETTINGS).exists()
    stream = any(name.upper().startswith("TUNERD_STREAM") for name in environ)
    if not (there or stream or data_dir.exists()):
        local = state_folder(environ) / "local"
        raise MisconfiguredError(
            [ValidationProblem("tunerd exec", NOT_CONFIGURED.format(local=local))]
        )


def _study(given: str, folder: Path) -> tuple[Path, Any]:
    """The file and the study that a name or a file means."""
    from tunerd.core.expressions import suggestion
    from tunerd.settings.studies import read_study

    path = Path(given)
    if path.suffix == ".toml":
        return path.absolute(), read_study(path)
    usual = folder / f"{given}.toml"
    others = sorted(folder.glob("*.toml")) if folder.is_dir() else []
    names = {}
    for config in [usual, *others] if usual in others else others:
        with suppress(MisconfiguredError):
            read_file = read_study(config)
            if read_file.name == given:
                return config, read_file
            names[read_file.name] = config
    if usual in others:
        read_study(usual)  # says what is wrong with it
    hint = suggestion(given, names) or f"; there are {', '.join(names) or 'none'}"
    message = f"there is no study {given!r} in {folder}{hint}"
    raise MisconfiguredError([ValidationProblem("--study", message)])
