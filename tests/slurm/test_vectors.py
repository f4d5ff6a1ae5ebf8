"""Lua in Slurm chooses as Python does, from the same file, and makes the same context keys."""

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.needs import need_program
from tunerd.client import (
    PLAN_KEY,
    PLAN_SCHEMA,
    RECOMMENDATION_SCHEMA,
    SORTED_LINE,
    RecommendationFile,
    Recommendations,
    context_key,
)

ROOT = Path(__file__).parents[2]
MODULE = ROOT / "deploy" / "slurm" / "tunerd.lua"
NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
KINDS = ("exploit", "explore", "confirm")
TEXTS = [
    *(
        "",
        "H100",
        "A100 (80GB)",
        "~",
        "%7E",
        "a|b=c",
        "é",
        "日本",
        "🚀",
        "\x00",
        "\x7f",
        "a\nb",
        '"\\/',
    ),
    *(
        " 8 ",
        "8.0",
        "+8",
        "-0",
        "007",
        "1e3",
        ".5",
        "5.",
        "1e",
        "0x10",
        "nan",
        "inf",
        "1_000",
        "\uff19",
    ),
    *(
        "true",
        "Yes",
        "OFF",
        "1.0",
        "2",
        "\u00a08\u2003",
        "\x1f8",
        "8\u200b",
        "99999999999999999999",
    ),
    *(
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "1e19",
        "1e400",
        "1e-5",
    ),
]
NUMBERS = [
    *(
        0,
        1,
        -1,
        8,
        128,
        10**6,
        2**53,
        1234567,
        0.0,
        -0.0,
        0.1,
        0.83,
        7e9,
        1e-5,
        1e22,
        123456.7,
        1e300,
    ),
    *(123456.5, -0.5, 2.5, 12345678.9, 3.0, 1e15, 1e16, 0.000123456789, 5e-324),
]


class Lua:
    """tunerd.lua in a real interpreter."""

    def __init__(self) -> None:
        lua = need_program("lua5.1", "lua5.1")
        self._process = subprocess.Popen(
            [lua, Path(__file__).with_name("driver.lua"), MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, **question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def choose(self, file: Path, key: str, job: str, attempt: int = 1) -> Any:
        now = NOW.timestamp()
        found = self.ask(file=str(file), key=key, job=job, attempt=attempt, now=now)
        return None if found is None or "why" in found else found

    def end(self) -> None:
        with self._process:  # which closes the pipes
            self._process.kill()


@pytest.fixture(scope="module")
def lua() -> Iterator[Lua]:
    made = Lua()
    yield made
    made.end()


def shipped() -> list[dict[str, Any]]:
    vectors = json.loads((ROOT / "docs" / "context-key-vectors.json").read_text())["vectors"]
    assert len(vectors) > 30
    return vectors  # type: ignore[no-any-return]


@pytest.mark.parametrize("vector", shipped(), ids=lambda vector: vector["note"][:40])
def test_the_shipped_vectors(lua: Lua, vector: dict[str, Any]) -> None:
    asked = {name: vector[name] for name in ("study", "features", "context")}
    assert lua.ask(**asked) == vector["key"]


def feature(rng: random.Random) -> Any:
    kind = rng.choice(["category", "int", "float", "bool"])
    keys: list[Any] = ["value", "ignore"]
    if kind in ("int", "float"):
        keys += [{"bucket": factor} for factor in (1.25, 2, 10, 1.001)]
    return rng.choice([kind, {"type": kind, "key": rng.choice(keys)}])


def value(rng: random.Random) -> Any:
    made: list[Callable[[], Any]] = [
        lambda: rng.choice(TEXTS),
        lambda: rng.choice(NUMBERS),
        lambda: rng.choice([True, False, None]),
        lambda: "".join(
            chr(rng.choice([rng.randrange(1, 128), 0xE9, 0x4E2D, 0x1F680])) for _ in range(5)
        ),
        lambda: rng.uniform(-1, 1) * 10 ** rng.randrange(-10, 12),
        lambda: rng.randrange(-(10**6), 10**6),
        lambda: repr(rng.uniform(0, 1) * 10 ** rng.randrange(-8, 20)),
    ]
    return rng.choice(made)()


def random_key(rng: random.Random) -> dict[str, Any]:
    names = rng.sample(
        ["gpu", "n_gpus", "Zone", "a_b", "aB", "_x", "x1", "longer_name"], rng.randrange(5)
    )
    features = {name: feature(rng) for name in names}
    context = {name: value(rng) for name in names if rng.random() < 0.9}
    return {"study": rng.choice(["llm", "a-b", "x"]), "features": features, "context": context}


def test_a_thousand_random_contexts(lua: Lua) -> None:
    rng = random.Random(48)
    for _ in range(1_000):
        asked = random_key(rng)
        assert lua.ask(**asked) == context_key(**asked), asked


def config(rng: random.Random) -> dict[str, Any]:
    values = [
        *TEXTS,
        *NUMBERS,
        True,
        None,
        ["FULL_SHARD", "é"],
        {"a": {"b": [1]}},
        10**18,
        0.1 + 0.2,
    ]
    return {
        rng.choice(["tp", "pp", "prec", "é"]): rng.choice(values) for _ in range(rng.randrange(4))
    }


def recommendation(rng: random.Random, key: str) -> dict[str, Any]:
    """One as tunerd writes it; now and then with something that is not as it should be."""
    shares = [rng.choice([0.0, 0.05, 0.1, 0.2, 0.3, 0.6]) for _ in range(rng.randrange(5))]
    wanted = rng.random() < 0.25
    candidates: list[dict[str, Any]] = [
        {
            "candidate_id": f"c-{rng.randrange(6)}",
            "rank": rng.choice([number, rng.randrange(3), -1]),
            "kind": rng.choice(KINDS),
            "share": rng.choice([share, 0 if wanted else share]),
            "wanted": rng.randrange(4) if wanted else 0,
            "config": config(rng),
        }
        for number, share in enumerate(shares, 1)
    ]
    ends = NOW + timedelta(seconds=rng.choice([-86400, -1, 0, 0.5, 1, *[86400 * 7] * 12]))
    zone = rng.choice([UTC, datetime.strptime("+0530", "%z").tzinfo])
    made: dict[str, Any] = {
        "schema": RECOMMENDATION_SCHEMA,
        "recommendation_id": f"r-{rng.randrange(10**6)}",
        "revision": rng.randrange(5),
        "state": rng.choice(["active"] * 9 + ["withdrawn"]),
        "context_key": key,
        "valid_until": rng.choice(
            [ends.astimezone(zone).isoformat(), f"{ends:%Y-%m-%dT%H:%M:%SZ}"]
        ),
        "candidates": candidates,
        "incumbent": rng.choice([None, {"config": config(rng)}, {"config": config(rng)}]),
        "baseline": rng.choice([None, {}, config(rng)]),
        "round": rng.choice([None, 1, 2]),
    }
    if rng.random() < 0.1:
        name = rng.choice(list(made))
        made[name] = rng.choice(
            [None, True, 1.5, "x", [], {}, [1], NOW.replace(tzinfo=None).isoformat()]
        )
    if rng.random() < 0.05:
        del made[rng.choice(list(made))]
    if rng.random() < 0.1 and candidates:
        one = rng.choice(candidates)
        one[rng.choice(list(one))] = rng.choice([None, True, 1.5, "x", [], float("nan"), 10**20])
    return made


def plan(rng: random.Random, key: str, keys: list[str]) -> dict[str, Any]:
    """A plan as tunerd writes it; now and then with something that is not as it should be."""
    begins = NOW - timedelta(hours=rng.randrange(4), seconds=rng.choice([0, 1]))
    windows: list[dict[str, Any]] = []
    for _ in range(rng.randrange(5)):
        ends = begins + timedelta(hours=rng.randrange(1, 4))
        windows.append(
            {
                "valid_from": begins.isoformat(),
                "valid_until": f"{ends:%Y-%m-%dT%H:%M:%SZ}",
                "context_key": rng.choice([*keys, "llm|gpu=none"]),
            }
        )
        begins = ends
    made: dict[str, Any] = {"schema": PLAN_SCHEMA, "context_key": key, "windows": windows}
    if rng.random() < 0.1:
        made[rng.choice(list(made))] = rng.choice([None, "x", {}, [1], [[]], "tunerd.plan/2"])
    if rng.random() < 0.1 and windows:
        one = rng.choice(windows)
        one[rng.choice(list(one))] = rng.choice([None, 1, "", "2026-11-20T10:00:00", []])
    return made


def saved(rng: random.Random, folder: Path, keys: list[str]) -> Path:
    """A file of recommendations; now and then not as ``save`` wrote it. The first line is: Python
    reads other files in full, which Lua does not."""
    path = folder / "recommendations.jsonl"
    known = {key: recommendation(rng, key) for key in keys if rng.random() < 0.85}
    filler = [f"{rng.choice(keys)}{rng.randrange(10**6)}" for _ in range(rng.choice([0, 3, 60]))]
    known |= {key: recommendation(rng, key) for key in filler}
    for key in keys:
        if "=~" in key and rng.random() < 0.8:
            known[PLAN_KEY + key] = plan(rng, key, keys)
    lines = [
        b'{"key":%b,"value":%b}\n' % (json.dumps(key).encode(), json.dumps(known[key]).encode())
        for key in sorted(known, key=str.encode)
    ]
    raw = SORTED_LINE + b"".join(lines)
    match rng.randrange(30):
        case 0:
            raw = raw[: rng.randrange(len(SORTED_LINE), len(raw) + 1)]
        case 1:
            at = rng.randrange(len(SORTED_LINE), len(raw) + 1)
            raw = raw[:at] + bytes(rng.randrange(256) for _ in range(8)) + raw[at:]
        case 2:
            raw = raw.replace(b'"value":{', b'"value":null,"was":{', 1)
        case 3:
            raw = SORTED_LINE + raw[len(SORTED_LINE) :].replace(b"\n", b"\r\n")
    path.write_bytes(raw)
    return path


def test_random_choices(lua: Lua, tmp_path: Path) -> None:
    """Files change, revisions go up and down, rounds are counted, jobs ask again."""
    rng = random.Random(4_8)
    said: Counter[str] = Counter()
    file = RecommendationFile(tmp_path / "recommendations.jsonl")
    keys = ["llm", "llm|gpu=H100", "llm|gpu=%C3%A9", "ads|n=8", "llm|gpu=~"]
    for number in range(1_500):
        if number % 50 == 0:
            file = RecommendationFile(tmp_path / "recommendations.jsonl")
            lua.ask(new=True)
        if number % 5 == 0:
            saved(rng, tmp_path, keys)
        key, job = rng.choice([*keys, "ads", *["llm|gpu=~"] * 4]), str(rng.randrange(30))
        attempt = rng.choice([1, 1, 1, 2])
        expected = file.choose(key, job, attempt=attempt, now=NOW)
        seen = lua.choose(tmp_path / "recommendations.jsonl", key, job, attempt)
        assert repr(seen) == repr(None if expected is None else asdict(expected)), (
            number,
            key,
            job,
        )
        said["nothing" if expected is None else f"{expected.match} {expected.kind}"] += 1
    wanted = [f"exact {kind}" for kind in (*KINDS, "incumbent")] + ["fallback incumbent"]
    wanted += ["foreseen incumbent", "foreseen exploit"]
    for what in (*wanted, "fallback exploit", "baseline baseline", "nothing"):
        assert said[what] >= 5, said


def test_shares_are_drawn_alike(lua: Lua, tmp_path: Path) -> None:
    rng = random.Random(0)
    made = recommendation(rng, "llm|a=1") | {"state": "active", "revision": 1, "round": None}
    made |= {
        "context_key": "llm|a=1",
        "valid_until": "2027-01-01T00:00:00Z",
        "schema": RECOMMENDATION_SCHEMA,
    }
    made |= {"recommendation_id": "r", "incumbent": {"config": {"rank": -1}}, "baseline": None}
    made["candidates"] = [
        {
            "candidate_id": f"c{rank}",
            "rank": rank,
            "kind": "explore",
            "share": 0.07,
            "config": {"rank": rank},
        }
        for rank in range(12)
    ]
    known = Recommendations()
    known.take(made["context_key"], made)
    known.save(tmp_path / "file")
    lua.ask(new=True)
    candidates: Counter[str | None] = Counter()
    for number in range(400):
        job = f"{number}_é"
        expected = known.choose("llm|a=1", job, now=NOW)
        assert expected is not None
        assert lua.choose(tmp_path / "file", "llm|a=1", job) == asdict(expected)
        candidates[expected.candidate_id] += 1
    assert len(candidates) == 13
