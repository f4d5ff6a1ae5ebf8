"""One line on standard error per thing that an operator cares about.

For people on a terminal, JSON lines otherwise; times in UTC. What libraries log goes the same way,
from warnings on. Values of keys that look like secrets are masked, passwords in URLs too, long
texts are cut. Callers never log what an event holds, only where it was.

    log = logs.configure(settings.log)
    log.info("daemon ready", url="http://127.0.0.1:9464", seconds=1.2)
"""

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Protocol, TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor

__all__ = ["Log", "LogOptions", "configure", "mask"]

Log = FilteringBoundLogger

MASKED = "***"
MOST_CHARACTERS = 2000
MOST_FRAMES = 20

_SECRET_KEY = re.compile(r"passw|secret|token|credential|authorization|api_?key|private_?key", re.I)
_NAMES_A_FILE = re.compile(r"_(file|path|dir)$", re.I)
_PASSWORD_IN_URL = re.compile(r"(\w://[^/\s:@]*):[^@/\s]+@")
_PASSWORD_IN_TEXT = re.compile(r"(?i)\b(\w*passw(?:or)?d|secret|token)(\s*[=:]\s*)[^\s,;&'\"]+")


class LogOptions(Protocol):
    """``settings.log``."""

    @property
    def format(self) -> str:
        """auto, console or json."""

    @property
    def level(self) -> str:
        """debug, info, warning or error."""


def configure(options: LogOptions, stream: TextIO | None = None) -> Log:
    """Set up structlog and the standard library's logging for this process; gives a logger.

    May be called again. ``stream`` is standard error as it is when a line is written.
    """
    output = stream or sys.stderr
    for_people = options.format == "console" or (options.format == "auto" and output.isatty())
    level = logging.getLevelNamesMapping()[options.level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    shared.append(structlog.processors.format_exc_info if for_people else _structured_traceback())
    shared += [mask, _in_order]
    structlog.configure(
        processors=[*shared, _renderer(for_people, output)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(output),
        cache_logger_on_first_use=False,
    )
    _configure_libraries(shared, _renderer(for_people, output), level, output)
    log: Log = structlog.get_logger()
    return log


def mask(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor: hide values of keys that look like secrets, wherever they are nested."""
    return {key: _masked(key, value) for key, value in event.items()}


def _masked(key: str, value: Any) -> Any:
    if _SECRET_KEY.search(key) and not _NAMES_A_FILE.search(key) and value is not None:
        return MASKED
    if isinstance(value, str):
        value = _PASSWORD_IN_URL.sub(rf"\1:{MASKED}@", value)
        value = _PASSWORD_IN_TEXT.sub(rf"\1\2{MASKED}", value)
        return value if len(value) <= MOST_CHARACTERS else value[:MOST_CHARACTERS] + "…"
    if isinstance(value, dict):
        return {name: _masked(str(name), entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(key, entry) for entry in value]
    return value


def _in_order(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Time, level and event first: a JSON line is read by people too."""
    first = {key: event[key] for key in ("timestamp", "level", "event") if key in event}
    return first | dict(event)


def _structured_traceback() -> Processor:
    """Exceptions as data, without local variables: those may hold events and secrets."""
    return structlog.processors.ExceptionRenderer(
        structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=MOST_FRAMES)
    )


def _renderer(for_people: bool, output: TextIO) -> Processor:
    if not for_people:
        return structlog.processors.JSONRenderer(default=str, ensure_ascii=False)
    return structlog.dev.ConsoleRenderer(
        colors=output.isatty(),
        sort_keys=False,
        exception_formatter=structlog.dev.plain_traceback,
    )


def _configure_libraries(
    shared: list[Processor], renderer: Processor, level: int, output: TextIO
) -> None:
    """Send what libraries log with the standard library's logging through the same processors."""
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.WARNING) if level > logging.DEBUG else logging.INFO)
    logging.captureWarnings(True)
