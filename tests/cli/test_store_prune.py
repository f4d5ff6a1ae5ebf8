"""``tunerd store prune``: what it says, what it changes, and what stays as it was."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Installation, Said
from tests.cli.learned import Learning
from tests.contracts.test_retention import go_on
from tests.stages.tuning import NAME
from tunerd.core.features import replay

Tunerd = Callable[..., Said]
AGE = ("--max-age-days", "1")


@pytest.fixture
def learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Learning]:
    """An installation with 160 jobs that came in two days ago, and the small sample that a model
    is fitted on here."""
    monkeypatch.setattr(replay, "LATEST", 40)
    monkeypatch.setattr(replay, "SAMPLED", 30)
    made = Learning.within(tmp_path)
    made.tuning.publish()
    go_on(made.tuning, made.tuning.start(), 160, 1)
    yield made
    made.close()


def whole(learned: Learning) -> int:
    return len(learned.store.observations(NAME))


@pytest.mark.slow
def test_a_dry_run_says_what_goes_and_changes_nothing(learned: Learning, tunerd: Tunerd) -> None:
    def prune(*words: str) -> Said:
        return tunerd("store", "prune", *words, "--settings", learned.file)

    would = prune(NAME, *AGE, "--dry-run", "--json").json
    assert whole(learned) == 160
    assert would["dry_run"]
    (counts,) = would["studies"].values()
    assert counts["pruned"] > 30
    assert counts["bytes"] > 30 * counts["pruned"]
    assert f"{counts['pruned']} jobs would be pruned" in prune(*AGE, "--dry-run").out
    done = prune(*AGE, "--json").json
    assert done == {**would, "dry_run": False}
    assert whole(learned) == 160 - counts["pruned"]
    assert f"{NAME}: 0 jobs pruned" in prune(*AGE).out
    status = tunerd("status", NAME, "--settings", learned.file)
    assert f"pruned    {counts['pruned']} of them" in status.out


@pytest.mark.slow
def test_the_ledger_and_the_report_say_the_same(learned: Learning, tunerd: Tunerd) -> None:
    def said() -> list[dict[str, object]]:
        ledger = tunerd(
            "ledger", NAME, "--since", "2026-01-01", "--json", "--settings", learned.file
        )
        report = tunerd(
            "report", NAME, "--since", "2026-01-01", "--json", "--settings", learned.file
        )
        documents = [ledger.json, report.json]
        for document in documents:
            for moment in ("until", "made_at"):
                document.pop(moment, None)
            document.pop("notes", None)  # how many of the jobs that are left lie in the space
        return documents

    before = said()
    users = learned.store.usernames(NAME, 1, 160)
    assert set(users.values()) == {"u0", "u1", "u2", "u3"}
    assert tunerd("store", "prune", *AGE, "--settings", learned.file).code == 0
    assert whole(learned) < 130
    assert said() == before
    assert learned.store.usernames(NAME, 1, 160) == users


@pytest.mark.slow
def test_without_a_limit_nothing_goes(learned: Learning, tunerd: Tunerd) -> None:
    said = tunerd("store", "prune", "--settings", learned.file)
    assert (said.code, "retention.max_age_days" in said.err) == (2, True)
    said = tunerd("store", "prune", "nobody", *AGE, "--settings", learned.file)
    assert said.code == 2
    with learned.file.open("a") as file:
        file.write("[retention]\nmax_jobs = 20000\n")
    assert f"{NAME}: 0 jobs pruned" in tunerd("store", "prune", "--settings", learned.file).out
    assert whole(learned) == 160


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--max-age-days", value) for value in ("0", "nan", "inf", "365001")),
        *(("--max-jobs", value) for value in ("19999", "0")),
    ],
)
def test_limits_are_bound_as_the_settings_are(
    installation: Installation, tunerd: Tunerd, option: str, value: str
) -> None:
    said = tunerd("store", "prune", option, value, "--settings", installation.file)
    assert (said.code, f"{option}: Input should be" in said.err) == (2, True)
