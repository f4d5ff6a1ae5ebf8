"""Expressions mean what they mean in Python, on whole arrays, with undefined as a third value."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.core.reference import UNDEFINED, reference
from tunerd.core.expressions import (
    RESERVED,
    Expression,
    ExpressionError,
    ExpressionType,
    NameType,
    ValueColumn,
    constant,
    looked_up,
    parse_expression,
)

REPEAT = 3
TEXTS = ("FULL", "GRAD", "NONE")
NAMES = {
    "i": NameType(ExpressionType("int")),
    "j": NameType(ExpressionType("int")),
    "x": NameType(ExpressionType("float")),
    "t": NameType(ExpressionType("bool")),
    "s": NameType(ExpressionType("text", texts=TEXTS)),
    "ii": NameType(ExpressionType("int", REPEAT)),
    "xx": NameType(ExpressionType("float", REPEAT)),
    "tt": NameType(ExpressionType("bool", REPEAT)),
    "ss": NameType(ExpressionType("text", REPEAT, TEXTS)),
    "n": NameType(ExpressionType("int")),
    "gpu": NameType(
        ExpressionType("text"), {"hbm": ExpressionType("int"), "tflops": ExpressionType("float")}
    ),
}
LOOKUP: dict[str, dict[str, float]] = {"H100": {"hbm": 80, "tflops": 989.5}, "A100": {"hbm": 40}}


def columns(rows: list[dict[str, Any]], gpu: str | None = None) -> dict[str, ValueColumn]:
    """The same values as arrays; ``UNDEFINED`` items are masked."""
    found = {"gpu": constant(gpu, LOOKUP)}
    for name in rows[0]:
        values = np.array([row[name] for row in rows], dtype=object)
        missing = np.vectorize(lambda value: value is UNDEFINED, otypes=[bool])(values)
        kind = NAMES[name].kind
        dtype: Any = {"int": np.int64, "float": np.float64, "bool": np.bool_}.get(kind.type, object)
        filled = np.where(missing, "FULL" if kind.type == "text" else 0, values)
        if kind.type == "text":
            places = np.vectorize(TEXTS.index, otypes=[np.int64])(filled)
            found[name] = ValueColumn(places, missing, TEXTS)
        else:
            found[name] = ValueColumn(filled.astype(dtype), missing if missing.any() else None)
    return found


# ── random expressions and rows ──────────────────────────────────────────────────────────────

integers = st.integers(-6, 12) | st.sampled_from([0, 1, 2**31, 2**62, 2**63 - 1, -(2**63)])
floats = st.sampled_from([0.0, 1.0, -2.5, 0.5, 3.0, 1e18, -1e300, 1e300, 7.25, 1e-300])


@st.composite
def numbers(draw: st.DrawFn, depth: int, repeat: bool = False) -> str:
    leaves = ["i", "j", "x", "n", "(0 + t)", "0", "1", "2", "7", "0.5", "3.0", "ii[1]", "xx[-1]"]
    if depth == 0:
        return draw(st.sampled_from([*leaves, *(["ii", "xx"] * 4 if repeat else [])]))
    # Where either of two values is taken, both are floats: an array has a single type.
    inner = numbers(depth - 1, repeat)
    match draw(
        st.sampled_from(["leaf", "binary", "negative", "map", "pair", "reduce", "if", "index"])
    ):
        case "binary":
            operator = draw(st.sampled_from(["+", "-", "*", "/", "//", "%", "**"]))
            return f"({draw(inner)} {operator} {draw(inner)})"
        case "negative":
            return f"-{draw(inner)}"
        case "map":
            return f"{draw(st.sampled_from(['abs', 'ceil', 'floor', 'round']))}({draw(inner)})"
        case "pair":
            one, other = draw(inner), draw(inner)
            return f"{draw(st.sampled_from(['min', 'max']))}(0.0 + {one}, 0.0 + {other})"
        case "reduce" if not repeat:
            if draw(st.booleans()):
                return f"count({draw(repeated_truths(depth - 1))})"
            function = draw(st.sampled_from(["sum", "min", "max"]))
            return f"{function}({draw(st.sampled_from(['ii', 'xx']))} + {draw(numbers(0, True))})"
        case "if":
            one, other = draw(inner), draw(inner)
            test = draw(truths(depth - 1, repeat))
            return f"(0.0 + {one} if {test} else 0.0 + {other})"
        case "index":
            return f"ii[{draw(st.sampled_from(['i', 'j', '0', '-3', 'i // 2']))}]"
    return draw(st.sampled_from(leaves))


@st.composite
def truths(draw: st.DrawFn, depth: int, repeat: bool = False) -> str:
    leaves = ["t", "true", "false", "(s == 'NONE')", "(s != ss[0])", "(s in ['FULL', 'GRAD'])"]
    if depth == 0:
        more = ["tt", "(ss == 'NONE')", "(ss == s)", "(ii < i)", "(ss not in ['GRAD'])"]
        more = more if repeat else []
        return draw(st.sampled_from(leaves + more))
    inner, number = truths(depth - 1, repeat), numbers(depth - 1, repeat)
    match draw(
        st.sampled_from(["leaf", "and", "or", "not", "compare", "chain", "reduce", "equal", "in"])
    ):
        case "and" | "or" as word:
            parts = [draw(inner) for _ in range(draw(st.integers(2, 3)))]
            return f"({f' {word} '.join(parts)})"
        case "not":
            return f"(not {draw(inner)})"
        case "compare" | "chain" as shape:
            operators = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
            text = f"{draw(number)} {draw(operators)} {draw(number)}"
            return f"({text} {draw(operators)} {draw(number)})" if shape == "chain" else f"({text})"
        case "reduce" if not repeat:
            return f"{draw(st.sampled_from(['any', 'all']))}({draw(repeated_truths(depth - 1))})"
        case "equal":
            return f"({draw(inner)} == {draw(inner)})"
        case "in":
            return f"({draw(number)} in [1, 2, 3.5])"
    return draw(st.sampled_from(leaves))


def repeated_truths(depth: int) -> st.SearchStrategy[str]:
    return truths(depth, repeat=True).map(lambda text: f"({text}) == tt")


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(strategy, strategy, strategy, st.just(UNDEFINED))


def several(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(maybe(strategy), min_size=REPEAT, max_size=REPEAT)


rows = st.fixed_dictionaries(
    {
        "i": maybe(integers),
        "j": integers,
        "x": maybe(floats),
        "t": maybe(st.booleans()),
        "s": maybe(st.sampled_from(TEXTS)),
        "ii": several(integers),
        "xx": several(floats),
        "tt": several(st.booleans()),
        "ss": several(st.sampled_from(TEXTS)),
        "n": st.just(UNDEFINED),
    }
)


def check_against_reference(text: str, sample: list[dict[str, Any]]) -> None:
    try:
        expression = parse_expression(text, NAMES)
    except ExpressionError as error:
        assume("negative power" not in str(error))
        raise
    result = expression.evaluate(columns(sample))
    values = np.broadcast_to(result.values, (len(sample),))
    masks = np.zeros(len(sample), bool) if result.undefined is None else result.undefined
    masks = np.broadcast_to(masks, (len(sample),))
    for row, value, undefined in zip(sample, values, masks, strict=True):
        wanted = reference(text, row)
        got: Any = UNDEFINED if undefined else value
        assert (got is UNDEFINED) == (wanted is UNDEFINED), (text, row, got, wanted)
        if wanted is not UNDEFINED:
            assert got == wanted or math.isclose(got, wanted, rel_tol=1e-9), (text, row, got)


many_rows = st.lists(rows, min_size=1, max_size=4)
ONES = {"i": 1, "j": 1, "x": 1.0, "t": True, "s": "FULL", "n": UNDEFINED}
ONES |= {"ii": [1, 2, 3], "xx": [0.5] * 3, "tt": [True] * 3, "ss": list(TEXTS)}


@pytest.mark.slow
@given(truths(3), many_rows)
@example("i % (j - 1) == 0", [ONES])
@example("i // (j - 1) == 0 or t", [ONES])
@example("count(ss == 'NONE') <= 1 and n > 0", [ONES])
@example("-2 ** 2 == -4 and 2 ** 3 ** 2 == 512 and 2.0 ** -1 == 0.5", [ONES])
@example("not i == 1 or not not t", [ONES])
@example("(1 if not t else 2 if t else 3) == (2 if t else 5)", [ONES])
def test_truth_is_as_in_python(text: str, sample: list[dict[str, Any]]) -> None:
    check_against_reference(text, sample)


def test_the_smallest_integer_is_one() -> None:
    """A float may be it exactly."""
    row = {"i": 0, "j": 0, "x": 0.0, "t": False, "s": UNDEFINED, "n": UNDEFINED}
    row |= {"ii": [0, 0, -(2**63)], "xx": [0.0] * 3, "tt": [False] * 3, "ss": ["FULL"] * 3}
    check_against_reference("ceil(sum(ii + 0.5))", [row])
    check_against_reference("floor(0.0 - 2.0 * min(ii))", [row])


@pytest.mark.slow
@given(numbers(3), many_rows)
@example("i * 9223372036854775807 + i", [ONES])
@example("i - -9223372036854775807 + i", [ONES])
@example("-(-9223372036854775807 - i)", [ONES])
@example("(-9223372036854775807 - i) // -j", [ONES])
@example("abs(-9223372036854775807 - i)", [ONES])
@example("(2 + 0 * i) ** 63", [ONES])
@example("(-2 * i) ** 63", [ONES])
@example("9223372036854775807 ** i", [ONES])
@example("sum(ii * 4611686018427387904)", [ONES])
@example("sum(ii + i)", [ONES | {"i": 0, "ii": [1, 9223372036854775807, -1]}])
@example("round(2.5) + round(3.5) - round(-0.5)", [ONES])
@example("floor(1e300)", [ONES])
def test_numbers_are_as_in_python(text: str, sample: list[dict[str, Any]]) -> None:
    check_against_reference(text, sample)


@pytest.mark.parametrize("power", [0, 1, 2, 3, 10, 20, 52, 62])
def test_log2_of_a_power_of_two_is_exact(power: int) -> None:
    assert value_of(f"log2({2**power})") == power


def value_of(text: str, gpu: str | None = None) -> Any:
    """Value of an expression in one row of ones; ``None`` where undefined."""
    result = parse_expression(text, NAMES).evaluate(columns([dict(ONES)], gpu))
    undefined = result.undefined is not None and bool(np.all(result.undefined))
    return None if undefined else np.ravel(result.values)[0]


@pytest.mark.parametrize(
    ("text", "gpu", "value"),
    [
        ("min(i, 2)", None, 1),
        ("max(i, 2.5)", None, 2.5),
        ("2 if t else 3.5", None, 2.0),
        ("log2(i - 1)", None, None),
        ("log2(-x)", None, None),
        ("n", None, None),
        ("n == n", None, None),
        ("n > 0 or true", None, True),
        ("n > 0 and false", None, False),
        ("gpu == 'H100'", "H100", True),
        ("gpu in ['H100', 'B200']", "A100", False),
        ("gpu == 'H100'", None, None),
        ("gpu.hbm * 2", "H100", 160),
        ("gpu.hbm", "A100", 40),
        ("gpu.tflops > 500", "H100", True),
        ("gpu.tflops > 500", "A100", None),
        ("gpu.hbm", "B200", None),
        ("gpu.hbm", None, None),
        ("('x' if i == 1 else gpu) == 'x'", None, True),
        ("count(ss == 'FULL')", None, 1),
        ("ss[i] == 'GRAD'", None, True),
        ("ii[i + 2]", None, None),
        ("1_000 + 1", None, 1001),
        ('"FULL" == s', None, True),
        ("\n  i\n  + j", None, 2),
        ("true != false", None, True),
    ],
)
def test_values(text: str, gpu: str | None, value: object) -> None:
    assert value_of(text, gpu) == value


def test_a_constant_lookup_and_a_column_agree() -> None:
    column = looked_up(ValueColumn(np.array([0, 1, 2]), None, ("H100", "A100", "?")), LOOKUP)
    tflops = parse_expression("gpu.tflops", NAMES).evaluate({"gpu": column})
    assert tflops.values[0] == 989.5
    assert tflops.undefined is not None
    assert tflops.undefined.tolist() == [False, True, True]


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("", "empty", 1),
        ("i +", "expected a value, found the end", 4),
        ("i + * j", "expected a value, found '*'", 5),
        ("(i + j", "expected ')'", 7),
        ("i j", "unexpected 'j'", 3),
        ("i = j", "write == to compare", 3),
        ("t && t", "write `and`", 3),
        ("t || t", "write `or`", 3),
        ("!t", "write `not`", 1),
        ("i ^ 2", "write ** for powers", 3),
        ("s == 'FULL", "a quote is missing", 6),
        ("i $ j", "means nothing here", 3),
        ("i\u00a0", "means nothing here", 2),
        ("12abc", "means nothing here", 1),
        ("i == 99999999999999999999", "does not fit 64 bits", 6),
        ("x == 1e999", "too large", 6),
        ("k > 1", "unknown name 'k'", 1),
        ("gpus == 'H100'", "did you mean 'gpu'?", 1),
        ("count", "write count(...)", 1),
        ("len(ii) > 1", "unknown function 'len'", 1),
        ("cout(tt) > 1", "did you mean 'count'?", 1),
        ("abs(i, j) > 1", "takes one value, not 2", 1),
        ("abs() > 1", "takes one value, not 0", 1),
        ("s < 'FULL'", "`<` compares numbers, this is a text", 1),
        ("s == 1", "cannot compare a text with a number", 6),
        ("t == 1", "cannot compare true or false with a number", 6),
        ("s == 'FUL'", "did you mean 'FULL'?", 6),
        ("s in ['FULL', 'SOME']", "'SOME' is never a value here", 15),
        ("i in ['FULL']", "cannot compare a number with a text", 7),
        ("i in [j]", "numbers or texts only", 7),
        ("i + s > 1", "`+` needs a number, this is a text", 5),
        ("-s", "`-` needs a number", 2),
        ("i and t", "`and` needs true or false, this is a number", 1),
        ("not i", "`not` needs true or false", 5),
        ("count(ii)", "count() needs true or false", 7),
        ("sum(i)", "goes over a repeat parameter", 5),
        ("any(t)", "goes over a repeat parameter", 5),
        ("sum(ss)", "sum() needs a number", 5),
        ("i[0]", "is a single value", 1),
        ("ii[3]", "has positions 0 to 2", 4),
        ("ii[-4]", "has positions 0 to 2", 4),
        ("ii[x]", "must be an integer", 4),
        ("ii[ii]", "must be an integer", 4),
        ("gpu.hbn > 1", "did you mean 'hbm'?", 1),
        ("s.hbm > 1", "has no lookup", 1),
        ("gpu.[1]", "expected the name", 5),
        ("i if s else j", "`if` needs true or false", 6),
        ("i if t", "expected 'else'", 7),
        ("(i if t else s) == 1", "both sides must be alike", 4),
        ("2 ** -1", "negative power", 6),
        ("ww + ii", "one side has 2 values, the other 3", 4),
    ],
)
def test_a_mistake_points_at_its_column(text: str, message: str, column: int) -> None:
    names = {**NAMES, "ww": NameType(ExpressionType("int", 2))}
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text, names)
    shown = str(caught.value)
    assert message in shown
    assert f"(column {column})" in shown
    caret = shown.splitlines()[-1]
    assert caret == " " * (4 + column - 1) + "^"


def test_a_mistake_in_many_lines_names_the_line() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression("i > 1\nand j = 2", NAMES)
    assert "(line 2, column 7)\n    and j = 2\n          ^" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 3_000,
        "-" * 3_000 + "i",
        "not " * 900 + "t",
        "[" * 3_000,
        "abs(" * 900,
        "i + " * 900 + "i",
        "2 ** " * 700 + "2",
        "1 if t else " * 300 + "1",
        "ii[" * 900,
        "i > " * 900 + "i",
        "t or " * 700 + "t",
        "9" * 3_999,
        "i" * 10_000,
    ],
)
def test_long_and_deep_expressions_are_bounded(text: str) -> None:
    message = ""
    try:
        expression = parse_expression(text, NAMES)
    except ExpressionError as error:
        message = str(error)
    else:
        expression.evaluate(columns([dict(ONES)]))
        expression.distance(columns([dict(ONES)]))
    assert len(message) < 500


fragments = st.sampled_from(
    [
        *NAMES,
        *sorted(RESERVED),
        *"+-*/%()[],.<>'\"= \n",
        "**",
        "//",
        "==",
        "!=",
        "'FULL'",
        "1",
        "2.5",
    ]
)


@given(st.lists(fragments, max_size=12).map(" ".join) | st.text(max_size=20))
def test_any_text_is_an_expression_or_a_mistake(text: str) -> None:
    try:
        expression = parse_expression(text, NAMES)
    except ExpressionError as mistake:
        error = mistake
    else:
        expression.evaluate(columns([dict(ONES)], "H100"))
        return
    assert 0 <= error.at <= len(text)
    assert "^" in str(error)


# ── what a space needs to know ───────────────────────────────────────────────────────────────


@pytest.mark.slow
@given(truths(3), many_rows)
def test_distance_is_zero_exactly_where_satisfied(text: str, sample: list[dict[str, Any]]) -> None:
    try:
        expression = parse_expression(text, NAMES)
    except ExpressionError as error:
        assume("negative power" not in str(error))
        raise
    values = columns(sample)
    far = np.broadcast_to(expression.distance(values), (len(sample),))
    true = np.broadcast_to(expression.evaluate(values).satisfied(), (len(sample),))
    assert ((far == 0) == true).all()
    assert (far >= 0).all()
    assert np.isfinite(far).all()


def test_distance_shrinks_on_the_way() -> None:
    expression = parse_expression("ii[0] * ii[1] * ii[2] == 64", NAMES)
    values = ValueColumn(np.array([[1, 1, 1], [2, 2, 2], [4, 4, 2], [4, 4, 4]]))
    far = expression.distance({"ii": values})
    assert (np.diff(far) < 0).all()
    assert far[-1] == 0


@pytest.mark.slow
@given(truths(2), truths(2), many_rows)
def test_conjuncts_together_are_the_whole(
    one: str, other: str, sample: list[dict[str, Any]]
) -> None:
    def parsed(text: str) -> Expression:
        try:
            return parse_expression(text, NAMES)
        except ExpressionError:
            assume(False)
            raise

    whole = parsed(f"{one} and {other}")
    values = columns(sample)
    parts = [part.evaluate(values).satisfied() for part in whole.conjuncts()]
    together = np.broadcast_to(np.logical_and.reduce(np.broadcast_arrays(*parts)), (len(sample),))
    assert (together == whole.evaluate(values).satisfied()).all()
    assert frozenset().union(*(part.names for part in whole.conjuncts())) == whole.names
