"""Columns that are no part of a configuration and were not measured: times, status, names."""

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import cast

import numpy as np

from tunerd.core.study.mapping import JobStatus
from tunerd.events.job import JOB_SCHEMA
from tunerd.events.times import read_time
from tunerd.lab.tables.column_names import ColumnName
from tunerd.lab.tables.exports.command_lines import is_secret
from tunerd.lab.tables.no_trials import rises_evenly
from tunerd.lab.tables.profile import ColumnProfile, TableProfile
from tunerd.lab.tables.roles import ColumnGuess, Role
from tunerd.lab.tables.values import gist, status_in
from tunerd.lab.tables.vocabulary import TIMES, USERS, word_set

__all__ = [
    "A_FIELD",
    "EXIT_CODES",
    "bad_when_true",
    "find_oddities",
    "is_of_events",
    "meaning",
]

_MEANINGS: dict[JobStatus, str] = {
    "succeeded": "pass passed valid good feasible complete finished yes ended exited fine correct",
    "out_of_memory": "infeasible invalid cuda_oom oom_error out_of_memory_error memory oom_killed"
    " memoryerror outofmemoryerror illegal unfit not_feasible does_not_fit",
    "failed": "crashed crash exception aborted abort killed bad wrong incorrect broken errored no"
    " exit segfault runtime_error compile_error compilation_error nan diverged dead unsuccessful",
    "timeout": "time_out timelimit time_limit exceeded hung hang",
    # What has not ended says nothing either, and of Slurm's accounts such rows are a part.
    "cancelled": "revoked stopped deleted user_cancelled running pending queued suspended"
    " completing configuring",
    "preempted": "evicted requeued spot_interrupted",
    "node_failure": "node_failed hardware_error hw_error lost",
}
_ABROAD: dict[JobStatus, str] = {
    "succeeded": "correcto correcta éxito exito exitoso terminado completado réussi reussi succès"
    " succes terminé termine erfolg erfolgreich fertig abgeschlossen sucesso concluído concluido"
    " successo riuscito completato 成功 完成 完了 正常 успех успешно завершено готово"
    " ✓ ✔ ✅ ☑",
    "failed": "fallo fallido fallida fallado échec echec échoué echoue erreur fehler"
    " fehlgeschlagen abgebrochen gescheitert falha falhou erro fallito errore 失败 失敗 错误 エラー"
    " 異常 异常 ошибка неудача сбой ✗ ✘ ✖ ❌",
    "cancelled": "cancelado cancelada annulé abgesagt annullato 取消 キャンセル отменено",
    "timeout": "超时 タイムアウト",
}
"""The same in Spanish, French, German, Portuguese, Italian, Chinese, Japanese, Russian, signs."""
_WORDS = {
    word: status
    for meanings in (_MEANINGS, _ABROAD)
    for status, words in meanings.items()
    for word in words.split()
}


def meaning(word: str) -> JobStatus | None:
    """What a word for how a job ended means; ``None`` when nobody knows."""
    status = status_in(word)
    if status is not None:
        return cast("JobStatus", status.value)  # nothing that was imported runs
    whole = word.strip().lower().replace(" ", "_").replace("-", "_")
    return _WORDS.get(whole) or _WORDS.get(gist(word).replace("-", "_"))


def bad_when_true(name: ColumnName) -> JobStatus | None:
    """What true means in a column that is named for what went wrong."""
    word_set = set(name.words)
    if word_set & {"oom", "memory"}:
        return "out_of_memory"
    if word_set & {"timeout", "timed"}:
        return "timeout"
    return (
        "failed" if word_set & {"failed", "failure", "fail", "crash", "crashed", "error"} else None
    )


EVENT_FIELDS = (
    "schema",
    "type",
    "source",
    "event_id",
    "study",
    "attempt",
    "submitted_at",
    "started_at",
    "measured_s",
    "gpus",
    "nodes",
    "recommendation_id",
    "candidate_id",
)
"""Of the contract; the status, the end, the user and the job's name are found as everywhere."""


EXCEL_DAYS = "days as Excel counts them: show them as dates there, and save again"
A_FIELD = "is a field of job events"


def is_of_events(profile: TableProfile) -> bool:
    """Whether the table is one of tunerd's own job events."""
    return any(c.name == "schema" and set(c.counts) == {JOB_SCHEMA} for c in profile.columns)


def find_oddities(
    profile: TableProfile, names: Mapping[str, ColumnName], known: Mapping[str, ColumnGuess]
) -> dict[str, ColumnGuess]:
    """What each such column is; columns in ``known`` are left as they are."""
    guesses: dict[str, ColumnGuess] = {}
    open_ = [column for column in profile.columns if column.name not in known]

    def say(column: ColumnProfile, role: Role, sure: float, why: str) -> None:
        guesses[column.name] = ColumnGuess(column, names[column.name], role, sure, why)

    fields = EVENT_FIELDS if is_of_events(profile) else ()
    for column in open_:
        if (aside := _aside(column, names[column.name], profile, fields)) is not None:
            say(column, *aside)
    open_ = [column for column in open_ if column.name not in guesses]
    taken = {guess.role for guess in known.values()}
    statuses = [column for column in open_ if _status_weight(column, names[column.name]) > 0]
    statuses.sort(
        key=lambda column: (column.distinct < 2, -_status_weight(column, names[column.name]))
    )
    for column in statuses:
        first = column is statuses[0] and "status" not in taken
        say(column, "status" if first else "label", 0.9, "says how a job ended")
    times = [column for column in open_ if is_time(column, names[column.name])]
    times.sort(key=lambda column: (-_finish_weight(names[column.name]), -_moment(column)))
    for column in times:
        if column is times[0] and "finished_at" not in taken:
            sure = 0.9 if _finish_weight(names[column.name]) >= 5 or len(times) == 1 else 0.6
            doubt = _days_or_months(column)
            say(column, "finished_at", min(sure, 0.4) if doubt else sure, _when(column) + doubt)
        else:
            say(column, "time", 0.9, "another time")
    for column in open_:
        why = _why_no_part(column, names[column.name], profile)
        if why is not None and column.name not in guesses:
            say(column, why[0], 0.85, why[1])
    return _one_of_each(guesses, taken)


def _aside(
    column: ColumnProfile, name: ColumnName, profile: TableProfile, fields: Collection[str]
) -> tuple[Role, float, str] | None:
    """The role of a column that is none of the others', how sure that is, and why."""
    if not column.name.strip():
        return "ignored", 1.0, "has no name"
    if column.name in fields:
        return "ignored", 0.99, A_FIELD
    if _counts_days(column, name):
        return "ignored", 0.85, EXCEL_DAYS
    if _is_clock(column, name):
        return "time", 0.85, "rises evenly from row to row: it is when, and not how long"
    if (other := _same_again(column, profile)) is not None:
        return "ignored", 0.9, f"says the same as {other} in every row"
    return None


def _one_of_each(found: dict[str, ColumnGuess], taken: set[Role]) -> dict[str, ColumnGuess]:
    """Keep the first user and the most telling job id; more of them are labels."""
    for role in ("job_id", "user"):
        those = [name for name, guess in found.items() if guess.role == role]
        those.sort(
            key=lambda name: ("job" not in found[name].name.words, -found[name].column.distinct)
        )
        for name in those if role in taken else those[1:]:
            guess = found[name]
            found[name] = ColumnGuess(guess.column, guess.name, "label", guess.sure, guess.why)
    return found


MOST_MEANINGS = 30
"""Ways in which jobs may end, where a column says it."""


def _meanings(column: ColumnProfile) -> int:
    """How many meanings a column has: "CANCELLED by 10000" and "by 10001" are one."""
    texts = (str(value) for value in column.counts)
    return len({meaning(text) or gist(text) for text in texts})


_ANY_SWITCH = {"yes", "no", "y", "n", "true", "false", "on", "off", "good", "bad"}
"""Words that say how a job ended only where a name says so."""


EXIT_CODES = frozenset(("code", "exit", "exitcode", "exitval", "returncode", "rc", "errno"))
"""Words of columns in which 0 is success, also where nothing but 0 and 1 stands in them."""


def _status_weight(column: ColumnProfile, name: ColumnName) -> float:
    """How much a column looks like the status; 0 when it does not."""
    if column.kind == "bool":
        return name.weight("status")
    if column.kind not in ("category", "text", "int") or _meanings(column) > MOST_MEANINGS:
        return 0.0
    others = max(name.weight("context"), name.weight("parameter"))
    if column.kind == "int":
        small = all(isinstance(value, int) and 0 <= value < 256 for value in column.counts)
        coded = bool(EXIT_CODES & set(name.words))
        coded_by_name = name.words in (("rc",), ("error",), ("errno",), ("err",), ("exit",))
        if coded_by_name and column.name.strip().lower() != "errors":
            return 4.0 if small and column.counts.get(0, 0) > 0 else 0.0
        counted = re.search(r"count|num|#|per|/", column.name, re.IGNORECASE) is not None
        truth = set(column.counts) <= {0, 1} and name.weight("status") > others and not counted
        return name.weight("status") - 0.5 if small and (coded or truth) else 0.0
    clear = {"succeeded", "out_of_memory", "failed", "timeout", "cancelled", "preempted"}
    understood = [(meaning(str(value)), count) for value, count in column.counts.items()]
    share = sum(count for status, count in understood if status in clear) / max(1, column.present)
    if name.weight("status") >= 5:
        return name.weight("status") + share if share > 0.3 or _meanings(column) <= 12 else 0.0
    if {str(value).lower() for value in column.counts} <= _ANY_SWITCH:
        return 0.0
    good = any(status == "succeeded" for status, _ in understood)
    return 3.0 + share if share > 0.9 and good and others < 2 and column.distinct > 1 else 0.0


_FIRST, _LAST = datetime(1995, 1, 1, tzinfo=UTC), datetime(2060, 1, 1, tzinfo=UTC)


def is_time(column: ColumnProfile, name: ColumnName) -> bool:
    """Whether a column holds moments: as text, or as seconds or finer since 1970."""
    if column.kind == "datetime":
        return True
    named = any((word in TIMES) for word in name.words)
    if not column.numeric or name.weight("parameter") >= 3 or not column.counts:
        return False
    if not named and (max(name.weights.values(), default=0.0) >= 1 or not _rises(column)):
        return False
    numbers = [float(value) for value in column.counts if isinstance(value, int | float)]
    return any(
        _FIRST.timestamp() * many <= min(numbers) and max(numbers) <= _LAST.timestamp() * many
        for many in (1, 1_000, 1_000_000, 1_000_000_000)
    )


def _rises(column: ColumnProfile) -> bool:
    """Whether many numbers of a narrow range rise, or fall, from row to row, as moments do."""
    numbers = column.numbers[np.isfinite(column.numbers)]
    steps = np.diff(numbers)
    narrow = len(numbers) >= 8 and float(np.ptp(numbers)) < 0.2 * abs(float(numbers[0]))
    moving = 2 * column.distinct > column.present
    return bool(narrow and moving and ((steps >= 0).all() or (steps <= 0).all()))


_BEGINS = word_set("""
    start started begin began submit submitted queued eligible created
""")
_ENDS = word_set("""
    end ended finish finished complete completed completion stop stopped
""")


def _finish_weight(name: ColumnName) -> int:
    """How well a name says that it is of an end; one of a start says so last."""
    word_set = set(name.words)
    if word_set & _BEGINS and not word_set & _ENDS:
        return min((TIMES.get(word, 2) for word in word_set & _BEGINS), default=2)
    return max((9 if word in _ENDS else TIMES.get(word, 0) for word in name.words), default=0)


def _moment(column: ColumnProfile) -> float:
    """When the first job of the sample was, so that of two times the later one is the end."""
    value = column.values[int(column.codes.max(initial=0))] if column.counts else None
    try:
        return read_time(value, "auto", UTC).timestamp()  # type: ignore[arg-type]
    except ValueError:
        return 0.0


def _days_or_months(column: ColumnProfile) -> str:
    """What else dates may mean whose first two numbers may both be months; "" for others."""
    if column.form[:5] not in ("%m/%d", "%d/%m"):
        return ""
    first = (re.match(r"(\d+)/(\d+)", str(value)) for value in column.spelled)
    pairs = {(int(match[1]), int(match[2])) for match in first if match is not None}
    open_ = bool(pairs) and max(max(pair) for pair in pairs) <= 12
    return "; days and months may be the other way round" if open_ else ""


def _when(column: ColumnProfile) -> str:
    form = "" if column.form == "auto" else f", written as {column.form}"
    return f"times{form}; without a zone they are taken for UTC"


def _counts_days(column: ColumnProfile, name: ColumnName) -> bool:
    """Whether a column called like an end has days as Excel counts them: 46105.5 in March 2026."""
    if not column.numeric or _finish_weight(name) < 6 or not column.counts:
        return False
    numbers = [float(value) for value in column.counts if isinstance(value, int | float)]
    return min(numbers) >= _EXCEL_2000 and max(numbers) <= _EXCEL_2060


def _is_clock(column: ColumnProfile, name: ColumnName) -> bool:
    """Whether a column has the times of day of one run's moments, 10:00:01, 10:00:02."""
    written = column.written.notation.format == "duration" and name.words == ("time",)
    return written and rises_evenly(column)


def _same_again(column: ColumnProfile, profile: TableProfile) -> str | None:
    """The column before this one that has the same last name and says the same in every row."""
    *sections, leaf = re.split(r"[./]", column.name)
    if not sections or column.distinct < 2:
        return None
    for other in profile.columns[: column.place]:
        named = re.split(r"[./]", other.name)[-1] == leaf
        if named and other.counts == column.counts and np.array_equal(other.codes, column.codes):
            return other.name
    return None


_EXCEL_2000, _EXCEL_2060 = 36_526, 58_440


def _why_no_part(
    column: ColumnProfile, name: ColumnName, profile: TableProfile
) -> tuple[Role, str] | None:
    """The role of a column that no one could tune and nothing can be learned from."""
    weight = name.weight("label")
    others = max(name.weight("context"), name.weight("parameter"), name.weight("measured"))
    if column.kind == "empty":
        return "ignored", "has no values"
    if _numbers_the_rows(column, name, profile):
        return "ignored", "numbers the rows"
    if column.kind in ("category", "text") and is_secret(column.name):
        return "ignored", "its name is a secret's, and no study file should hold its values"
    if column.numeric and set(name.words) & USERS and "id" not in name.words:
        return None  # how many there were
    aside = weight >= 5 and (column.kind == "bool" or name.leaf != column.name)
    if (column.kind in ("float", "bool") and not aside) or _is_setting(column, name):
        return None
    if column.kind in ("category", "text") and (what := _of_machines(column, name)):
        return "label", f"its values are {what}"
    if weight > others and weight >= (4.5 if column.numeric else 2.5):
        if set(name.words) & USERS and column.kind in ("category", "text"):
            return "user", "says whose job it was"
        return _named(column, name)
    if column.kind == "text" and name.weight("parameter") < 4:
        if column.distinct == column.present > 12 and name.weight("context") < 2:
            return "label", "is different in every row"
        if column.distinct > 1_000 or name.weight("context") < 2:
            return "label", f"prose or names: {column.distinct:,} different texts"
    return None


_OF_PARTS = (("label",), ("tag",))
"""Names of labels that are as well of the parts of a load: what JMeter calls a kind of request."""


def _is_crossed(column: ColumnProfile) -> bool:
    """Whether few values stand equally often, several times each."""
    several = column.present >= 3 * column.distinct and 2 <= column.distinct <= FEW_VALUES
    return several and len(set(column.counts.values())) == 1


_ALSO_SETTINGS = {"port", "line", "link", "trace", "level", "sweep", "id"}
"""Words of labels that are as well of what is set: ports, cache lines, sweeps."""
_IDS_OF_ROWS = {"job", "run", "trial", "task", "experiment", "app", "seed", "process"} | USERS


def _is_setting(column: ColumnProfile, name: ColumnName) -> bool:
    """Whether a label's name is of a few numbers or words, many rows each, as settings are."""
    word_set = set(name.words)
    few = 1 < column.distinct <= FEW_VALUES and 3 * column.distinct <= column.present
    return (
        few
        and column.kind in ("int", "category")
        and bool(word_set & _ALSO_SETTINGS)
        and not word_set & _IDS_OF_ROWS
        and not ("id" in word_set and name.weight("context") >= 1.5)
        and all(len(str(value)) <= LONGEST_SETTING for value in column.counts)
    )


FEW_VALUES = 12
"""Values that people choose from."""
LONGEST_SETTING = 24
"""Characters of a setting's value; longer ones are addresses and prose."""
_MADE_FOR_MACHINES = {
    "addresses in the network": re.compile(
        r"[a-z][a-z0-9+.-]{1,12}://\S+|([0-9]{1,3}\.){3}[0-9]{1,3}(:[0-9]+)?|\S+@\S+\.\w+",
        re.IGNORECASE,
    ),
    "ids": re.compile(
        r"\{?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\}?|(?=.*[0-9])(?=.*[a-f])[0-9a-f]{16,64}",
        re.IGNORECASE,
    ),
    "paths": re.compile(r"(/|~/|\./|\.\./|[A-Za-z]:\\)[^\s]*[/\\][^\s]*"),
    "times without a year": re.compile(r"[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d(:\d\d)?"),
    "times of the day": re.compile(r"([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?"),
}
_HOST = re.compile(r"(?=.*[0-9])[a-z][a-z0-9-]*([._][a-z0-9-]+)*", re.IGNORECASE)
_HOSTS = {"host", "hostname", "node", "server", "worker", "executor"}


def _of_machines(column: ColumnProfile, name: ColumnName) -> str:
    """What machines call things by, in nearly all values of a column; "" for anything else.

    A path of a data set or a model is its name, and stays one.
    """
    texts = [str(value) for value in column.values[:200]]
    for what, pattern in _MADE_FOR_MACHINES.items():
        if what == "paths" and max(name.weight("context"), name.weight("parameter")) >= 1.5:
            continue
        if 10 * sum(bool(pattern.fullmatch(text)) for text in texts) >= 9 * len(texts) > 0:
            return what
    hosts = set(name.words) & _HOSTS and not {"type", "kind", "model", "class"} & set(name.words)
    if hosts and name.weight("parameter") < 3 and all(map(_HOST.fullmatch, texts)):
        return "names of hosts"
    return ""


def _named(column: ColumnProfile, name: ColumnName) -> tuple[Role, str] | None:
    """What a column is whose name is of names."""
    if column.kind == "category" and name.words[-1:] in _OF_PARTS and _is_crossed(column):
        return "context", "each of its values stands as often as any other"
    if not {"id", "uuid", "name", "path", "dir", "file"} & set(name.words):
        return "label", f'its name ("{name.said[0]}") says nothing about how a job was configured'
    if 2 * column.distinct <= column.present and name.weight("context") >= 1.5:
        # The id of a model or a data set, not of a job.
        several = f"names what was run: {column.distinct} values, many rows each"
        return None if column.distinct == 1 else ("context", several)
    jobs = {"job", "run", "trial", "task", "experiment", "app"}
    if column.distinct > 0.9 * column.present and set(name.words) & jobs:
        return "job_id", "names the job"
    return "label", "names something, and says nothing about it"


def _numbers_the_rows(column: ColumnProfile, name: ColumnName, profile: TableProfile) -> bool:
    if column.kind != "int" or column.distinct < 8 or column.distinct != profile.rows:
        return False
    low, high = int(float(str(column.values[0]))), int(float(str(column.values[-1])))
    first = column.place == 0 and low in (0, 1)
    known = max(name.weight("context"), name.weight("parameter"), name.weight("measured")) >= 2
    return high - low + 1 == column.distinct and (first or not known)
