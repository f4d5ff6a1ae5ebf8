"""How a training ended, told from its exception."""

import re
import signal
import sys
from collections.abc import Iterator, Mapping

from tunerd.exec.causes import OUT_OF_MEMORY, FailureCause, stopped_by

__all__ = ["outcome_of"]

_OUT_OF_MEMORY = re.compile("|".join(OUT_OF_MEMORY), re.MULTILINE)
STOPPED_BY_NAME = {
    "SIGTERMException": signal.SIGTERM,  # Lightning's
    "BdbQuit": signal.SIGINT,  # out of a debugger
}
MOST_CAUSES = 20
MOST_TEXT = 200


def outcome_of(error: BaseException | None, environ: Mapping[str, str]) -> FailureCause:
    """Status and reason of a training that an exception ended, or nothing."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return FailureCause("succeeded", "")
    for cause in _causes(error):
        if _is_out_of_memory(cause):
            return FailureCause("out_of_memory", _in_words(cause))
        if isinstance(cause, KeyboardInterrupt):
            return FailureCause("cancelled", "KeyboardInterrupt")
        if isinstance(cause, GeneratorExit):
            return FailureCause("cancelled", "the training was left before its end")
        if stopped := STOPPED_BY_NAME.get(type(cause).__name__):
            return stopped_by(stopped, environ)
    return FailureCause("failed", _in_words(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception, and those that it was raised from; of a group, its members."""
    waiting, visited = [error], set[int]()
    while waiting and len(visited) < MOST_CAUSES:
        cause = waiting.pop(0)
        if id(cause) in visited:
            continue
        visited.add(id(cause))
        yield cause
        if isinstance(cause, BaseExceptionGroup):
            waiting += cause.exceptions
        # Ray keeps what its workers raised in attributes.
        failures = getattr(cause, "worker_failures", None)
        inner = [cause.__cause__, getattr(cause, "cause", None), getattr(cause, "_base_exc", None)]
        inner += failures.values() if isinstance(failures, Mapping) else ()
        waiting += [other for other in inner if isinstance(other, BaseException)]


def _is_out_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    known = getattr(torch, "OutOfMemoryError", None)  # and of CUDA, which is the same class
    if isinstance(known, type) and isinstance(error, known):
        return True
    # Older versions, other accelerators and JAX have no class of their own.
    may_be = isinstance(error, RuntimeError | OSError) or type(error).__name__ == "XlaRuntimeError"
    return isinstance(error, MemoryError) or (
        may_be and _OUT_OF_MEMORY.search(str(error)[: 1 << 16]) is not None
    )


def _in_words(error: BaseException) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"[:MOST_TEXT].rstrip(": ")
