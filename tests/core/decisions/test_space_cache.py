"""Spaces of contexts that are kept."""

import pytest

from tests.core.tuning import study
from tunerd.core.decisions.space_cache import SpaceCache


@pytest.mark.slow
def test_spaces_of_a_thousand_contexts_are_built_once() -> None:
    spaces = SpaceCache(study())
    contexts = {f"toy|n={n}": {"n": n} for n in range(1, 1001)}
    first = [spaces.get(key, context) for key, context in contexts.items()]
    again = [spaces.get(key, context) for key, context in contexts.items()]
    assert all(one is other for one, other in zip(first, again, strict=True))


def test_what_spaces_list_is_bounded() -> None:
    spaces = SpaceCache(study())
    spaces.MOST_BYTES = 10 * spaces.get("toy|n=8", {"n": 8}).nbytes
    first = spaces.get("toy|n=8", {"n": 8})
    for n in range(100, 120):
        spaces.get(f"toy|n={n}", {"n": n})
    assert spaces.get("toy|n=8", {"n": 8}) is not first
