"""``tunerd end``: a study is over."""

from pathlib import Path

import click

from tunerd.cli.command_submission import giving
from tunerd.cli.options import (
    json_option,
    settings_option,
    study_argument,
    why_option,
    yes_option,
)

__all__ = ["end"]


@click.command()
@settings_option
@study_argument()
@why_option
@yes_option
@json_option
def end(file: Path | None, study: str, why: str, sure: bool, as_json: bool) -> int:
    """End STUDY: withdraw all that is recommended, and recommend nothing more.

    Its history stays, and its jobs are still taken in. A new version of its file opens it again.
    """
    with giving(file, why, as_json=as_json) as giver:
        giver.study(study)
        giver.confirm(study, "A new version of its file opens the study again.", sure=sure)
        giver.give([(study, "end", {})])
        return giver.follow()
