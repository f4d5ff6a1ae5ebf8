"""What all tables of a study file are made of."""

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Number", "PluginOptions", "Seed", "StudyFileTable", "Text", "Value", "Whole"]

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Number = Whole | float
Text = Annotated[str, Field(min_length=1, max_length=1_000)]
Value = bool | Whole | float | str
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class StudyFileTable(BaseModel):
    """Base of all tables: frozen, nothing converted, unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class PluginOptions(StudyFileTable):
    """Base of the options that one searcher or predictor has for itself, declared in its own file.

    They are keys of ``[search]`` or ``[predictor]``. Each has a default and a description, and no
    other plug-in of the kind has a key so called.
    """

    @classmethod
    def among(cls, own: Iterable["PluginOptions"]) -> Self:
        """Return these options as a study has them, else their defaults."""
        return next((options for options in own if isinstance(options, cls)), None) or cls()
