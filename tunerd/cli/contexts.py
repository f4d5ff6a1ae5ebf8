"""``--context name=value``: one job's context as a study sees it."""

import difflib
import os
from collections.abc import Sequence

import click

from tunerd.core.observation import Scalar
from tunerd.core.study import Study
from tunerd.core.study.context_key import MISSING, clean_value

__all__ = ["parse_context"]

_SHOULD_BE = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "category": "text",
}


def parse_context(
    study: Study, given: Sequence[str], *, partial: bool = False
) -> dict[str, Scalar]:
    """Bring ``name=value`` texts into the study's types; every feature has to be named, unless
    ``partial``.

    ``name=~`` says that jobs of this context come without the feature. Where it was not quoted,
    bash makes the home folder of it: a text is taken at its word, and where it came from is told.

    Raises:
        click.UsageError: with everything that is wrong.
    """
    features = {feature.name: feature for feature in study.context}
    context: dict[str, Scalar] = {}
    wrong: list[str] = []
    home = os.path.expanduser(MISSING)
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            wrong.append(f"{text}: should be name=value")
        elif name not in features:
            close = difflib.get_close_matches(name, features, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(features)}"
            wrong.append(f"{text}: study {study.name} has no context feature {name}; {hint}")
        elif name in context:
            wrong.append(f"{text}: {name} is given twice")
        else:
            feature = features[name]
            context[name] = None if value == MISSING else clean_value(value, feature.type)
            tilde = f"the shell makes your home folder of an unquoted ~: '{name}=~' says missing"
            if context[name] is None and value != MISSING:
                should = f"{text}: {name} should be {_SHOULD_BE[feature.type]}"
                wrong.append(f"{should}; {tilde}" if value == home else should)
            elif value == home != MISSING:
                click.echo(f"Note: {text}: {tilde}.", err=True)
    named = {text.partition("=")[0] for text in given}
    missing = [] if partial else [name for name in features if name not in named]
    if missing:
        wrong.append(
            f"missing: {', '.join(missing)} (say '{missing[0]}={MISSING}' if jobs come without it)"
        )
    if wrong:
        raise click.UsageError("--context: " + "\n  ".join(wrong))
    return context
