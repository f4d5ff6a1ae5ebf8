"""What all tables of a study file are made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Number", "Seed", "StudyFileTable", "Text", "Value", "Whole"]

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Number = Whole | float
Text = Annotated[str, Field(min_length=1, max_length=1_000)]
Value = bool | Whole | float | str
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class StudyFileTable(BaseModel):
    """Base of all tables: frozen, nothing converted, unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
