"""What passes from one generation to the next where names change and configurations merge."""

from tests.core.test_changed_study import changed
from tests.core.tuning import TEXT
from tunerd.core.history import Regime
from tunerd.core.study import parse_study
from tunerd.core.succession import Succession

BEFORE = parse_study(TEXT)
GONE = changed(
    ('n = { type = "int", scale = "log" }', 'm = { type = "int", absent = 0 }'),
    ('fits = "x <= n"', 'fits = "true"'),
)
CALLED = changed(
    ('n = { type = "int", scale = "log" }', 'm = { type = "int", was = "n" }'),
    ('fits = "x <= n"', 'fits = "x <= m"'),
)
CONTEXTS = {"toy|n=4": {"n": 4}, "toy|n=8": {"n": 8}}


def test_regimes_go_by_present_keys() -> None:
    one, all_of_it = Regime(7, ("toy|n=8",), moved=0.2), Regime(9)
    called = Succession(CALLED, BEFORE, CONTEXTS)
    assert called.regimes([one, all_of_it]) == (Regime(7, ("toy|m=8",), moved=0.2), all_of_it)
    merged = Succession(GONE, BEFORE, CONTEXTS)
    assert merged.regimes([one, all_of_it]) == (all_of_it,)
    both = Regime(8, ("toy|n=4", "toy|n=8"))
    assert merged.regimes([both]) == (Regime(8, ("toy|m=0",)),)


def test_estimates_begin_again_where_they_did_in_all_that_became_one() -> None:
    told: dict[str, list[tuple[int, float | None]]] = {
        "toy|n=8": [(9, None), (7, 0.2)],
        "toy|n=4": [(9, None)],
    }
    assert Succession(BEFORE, BEFORE, CONTEXTS).begun(told) == {
        "toy|n=8": [(7, 0.2), (9, None)],
        "toy|n=4": [(9, None)],
    }
    assert Succession(GONE, BEFORE, CONTEXTS).begun(told) == {"toy|m=0": [(9, None)]}
