"""``--context name=value``: one job's context as a study sees it."""

from collections.abc import Sequence

import click

from tunerd.core.observation import Scalar
from tunerd.core.study import Study
from tunerd.core.study.context_texts import read_context

__all__ = ["parse_context"]


def parse_context(
    study: Study, given: Sequence[str], *, partial: bool = False
) -> dict[str, Scalar]:
    """As :func:`tunerd.core.study.context_texts.read_context`; notes go to standard error.

    Raises:
        click.UsageError: with everything that is wrong.
    """
    context = read_context(study, given, partial=partial)
    if context.wrong:
        raise click.UsageError("--context: " + "\n  ".join(context.wrong))
    for note in context.notes:
        click.echo(f"Note: {note}.", err=True)
    return context.context
