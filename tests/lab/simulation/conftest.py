"""The shipped studies, read once."""

import pytest

from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.lab.simulation.shipped import STUDIES, shipped_study


@pytest.fixture(scope="session", params=STUDIES)
def study(request: pytest.FixtureRequest) -> Study:
    name = str(request.param)
    return parse_study(shipped_study(name), f"{name}.toml")


@pytest.fixture(scope="session")
def ads() -> Study:
    return parse_study(shipped_study("ads-fsdp"), "ads-fsdp.toml")
