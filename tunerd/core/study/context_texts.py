"""``name=value`` texts: one job's context as a person types it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from tunerd.core.expressions import suggestion
from tunerd.core.observation import Scalar
from tunerd.core.study.context_key import MISSING, clean_value
from tunerd.core.study.study import Study

__all__ = ["ContextTexts", "read_context"]

_SHOULD_BE = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "category": "text",
}


@dataclass
class ContextTexts:
    """What texts say of a context."""

    context: dict[str, Scalar] = field(default_factory=dict)
    """By feature, in its type."""
    wrong: list[str] = field(default_factory=list)
    """Everything that is, for a person."""
    notes: list[str] = field(default_factory=list)


def read_context(study: Study, given: Sequence[str], *, partial: bool = False) -> ContextTexts:
    """Bring ``name=value`` texts into the study's types; every feature has to be named, unless
    ``partial``.

    ``name=~`` says that jobs of this context come without the feature. Where it was not quoted,
    bash makes the home folder of it: a text is taken at its word, and where it came from is told.
    """
    features = {feature.name: feature for feature in study.context}
    texts = ContextTexts()
    context, wrong = texts.context, texts.wrong
    home = os.path.expanduser(MISSING)
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            wrong.append(f"{text}: should be name=value")
        elif name not in features:
            hint = suggestion(name, features) or f"; it has {', '.join(features) or 'none'}"
            wrong.append(f"{text}: study {study.name} has no context feature {name!r}{hint}")
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
                texts.notes.append(f"{text}: {tilde}")
    named = {text.partition("=")[0] for text in given}
    missing = [] if partial else [name for name in features if name not in named]
    if missing:
        wrong.append(
            f"missing: {', '.join(missing)} (say '{missing[0]}={MISSING}' if jobs come without it)"
        )
    return texts
