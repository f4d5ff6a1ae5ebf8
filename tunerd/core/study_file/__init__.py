"""The study file: what a person writes, and the :class:`~tunerd.core.study.Study` it becomes.

:mod:`.keys` and :mod:`.plugins` have the keys, :mod:`.read` and :mod:`.compile` find every mistake
at once.
"""

import hashlib
import json
import tomllib
from typing import Any

from tunerd.core.study import Study
from tunerd.core.study_file.compile import compile_study
from tunerd.core.study_file.plugins import study_schema
from tunerd.core.study_file.read import ParseResult, read, read_tables
from tunerd.errors import MisconfiguredError

__all__ = ["parse_study", "study_schema", "with_mapping"]


def parse_study(text: str, file: str = "study.toml") -> Study:
    """Return the study that a file describes; ``file`` is what mistakes are reported under.

    Raises:
        MisconfiguredError: with every mistake in the text.
    """
    return _compiled(read(text, file), text)


def with_mapping(study: Study, mapping: dict[str, Any], file: str) -> Study:
    """Return the study with another ``[mapping]``, which ``file`` has.

    Raises:
        MisconfiguredError: with every mistake in the mapping.
    """
    data = tomllib.loads(study.text) | {"mapping": mapping}
    return _compiled(read_tables(data, file), study.text)


def _compiled(reading: ParseResult, text: str) -> Study:
    if reading.table is None:
        raise MisconfiguredError(reading.problems)
    fields = compile_study(reading)
    if reading.problems:
        raise MisconfiguredError(reading.problems)
    # The mapping of old tables stays out: nothing that is learned or published depends on it.
    content = {key: value for key, value in reading.data.items() if key != "mapping"}
    # The order of keys stays in: it is the order of parameters, and so of what is random.
    canonical = json.dumps(content, separators=(",", ":"))
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    return Study(**fields, text=text, content_hash=f"sha256:{digest}")
