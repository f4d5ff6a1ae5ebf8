"""What a preview says of a new generation, beside what then comes of it."""

import json
import re
from collections import Counter

import pytest
from msgspec import structs

from tests.core.tuning import TEXT, changed
from tests.stages.tuning import Tuning, job, study, true_speed
from tunerd.core.observation import Status
from tunerd.core.recommendation import State
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.events import from_bytes
from tunerd.stages.preview import GenerationPreview, preview


@pytest.fixture
def tuning(tuning: Tuning) -> Tuning:
    tuning.learned()
    tuning.outbox()
    return tuning


def seen(tuning: Tuning, new: Study) -> GenerationPreview:
    before = tuning.rows()
    found = preview(tuning.store, parse_study(TEXT), new)
    assert tuning.rows() == before
    return found


def then(tuning: Tuning, new: Study) -> dict[str, State]:
    """What is sent once the generation is there, by context key."""
    tuning.store.publish_generation("toy", new.content_hash, new.text, "t", tuning.time.now())
    tuning.run(tuning.start())
    return {key: from_bytes(value).state for key, _, value in tuning.outbox() if value}


def test_what_changes_no_configuration_costs_nothing(tuning: Tuning) -> None:
    found = seen(tuning, changed(("explore_share = 0.5", "explore_share = 0.4")))
    assert (found.jobs, found.known_before, found.known_after) == (60, 60, 60)
    assert (found.lost, found.keys_vanish, found.keys_appear) == ({}, {}, {})
    assert (found.incumbents_stay, found.incumbents) == (3, [])
    assert [one["becomes"] for one in found.recommendations] == ["stays"] * 3


def test_a_renamed_feature_withdraws_its_keys_and_says_which_come(tuning: Tuning) -> None:
    new = changed(
        ('n = { type = "int", scale = "log" }', 'm = { type = "int", scale = "log", was = "n" }'),
        ('fits = "x <= n"', 'fits = "x <= m"'),
    )
    found = seen(tuning, new)
    assert found.known_after == 60
    assert set(found.keys_vanish) == {f"toy|n={n}" for n in (4, 8, 16)}
    assert set(found.keys_appear) == {f"toy|m={n}" for n in (4, 8, 16)}
    assert sum(found.keys_vanish.values()) == sum(found.keys_appear.values()) == 60
    withdrawn = {
        one["context_key"] for one in found.recommendations if one["becomes"] == "withdrawn"
    }
    came = then(tuning, new)
    assert withdrawn == {key for key, state in came.items() if state is State.WITHDRAWN}
    assert {key for key, state in came.items() if state is State.ACTIVE} <= set(found.keys_appear)


def test_values_that_go_take_configurations_with_them(tuning: Tuning) -> None:
    new = changed(("values = [1, 2, 3, 4, 5, 6, 7, 8]", "values = [1, 2]"))
    found = seen(tuning, new)
    assert found.known_before == 60
    assert found.known_after < 40
    assert all(why.startswith("x = ") for why in found.lost)
    assert sum(found.lost.values()) == 60 - found.known_after
    gone = [one for one in found.incumbents if one["becomes"] == "falls out"]
    assert gone
    assert all(one["config"]["x"] > 2 and one["jobs"] > 0 for one in gone)
    replaced = [one["context_key"] for one in found.recommendations if one["becomes"] == "replaced"]
    assert replaced
    came = then(tuning, new)
    assert set(replaced) <= set(came)
    for row in tuning.rows().values():
        said = from_bytes(row.value.encode())
        assert all(int(str(one.config["x"])) <= 2 for one in said.candidates)


def test_a_constraint_names_itself(tuning: Tuning) -> None:
    found = seen(tuning, changed(('fits = "x <= n"', 'fits = "x <= n"\nsmall = "x < 4"')))
    assert set(found.lost) == {"breaks small: x < 4"}
    assert found.known_after < 60


def test_a_new_parameter_without_a_word_about_old_jobs(tuning: Tuning) -> None:
    entry = 'w = { type = "int", values = [1, 2] }'
    silent = seen(tuning, changed(("[constraints]", f"{entry}\n[constraints]")))
    assert (silent.known_after, silent.lost) == (0, {"w is missing": 60})
    assert len(silent.incumbents) == 3
    told = entry.replace(" }", ", absent = 1 }")
    said = seen(tuning, changed(("[constraints]", f"{told}\n[constraints]")))
    assert (said.known_after, said.lost) == (60, {})
    assert said.incumbents_stay == 3
    assert [one["becomes"] for one in said.recommendations] == ["stays"] * 3


def test_only_observing_withdraws_everything(tuning: Tuning) -> None:
    new = changed(('mode = "publish"', 'mode = "observe"'))
    found = seen(tuning, new)
    assert [one["becomes"] for one in found.recommendations] == ["withdrawn"] * 3
    came = then(tuning, new)
    assert set(came.values()) == {State.WITHDRAWN}
    assert len(came) == 3


def test_contexts_that_become_one(tuning: Tuning) -> None:
    """The best known configuration of the small clusters is not the best of all."""
    new = changed(('n = { type = "int", scale = "log" }', 'n = { type = "int", key = "ignore" }'))
    found = seen(tuning, new)
    assert found.keys_appear == {"toy": 60}
    assert {one["context_key"] for one in found.incumbents if one["becomes"] == "changes"} >= {
        "toy|n=4"
    }


def test_a_guard_that_incumbents_break(tuning: Tuning) -> None:
    """In the largest clusters alone, where what is fast is beyond the bound."""
    bound = "[guards]\nspeed = { max = 1000.0 }\n[context]"
    found = seen(tuning, changed(("[context]", bound)))
    assert (found.known_after, found.lost) == (60, {})
    fast = [one for one in tuning.store.observations("toy") if one.metrics.get("speed", 0) > 1000]
    assert found.jobs_change == {"breaking the guard of speed": len(fast)}
    (gone,) = found.incumbents
    assert (gone["context_key"], gone["becomes"]) == (tuning.key(16), "falls out")
    assert gone["why"].startswith("0 of its ")
    assert found.incumbents_stay == 2
    becomes = {one["context_key"]: one["becomes"] for one in found.recommendations}
    assert (becomes[tuning.key(16)], becomes[tuning.key(4)]) == ("replaced", "stays")
    assert tuning.said(16).incumbent is not None
    then(tuning, changed(("[context]", bound)))
    after = tuning.said(16).incumbent
    assert after is None or after.config != gone["config"]


def test_nobody_counts_for_more_than_his_share(tuning: Tuning) -> None:
    """A user whose jobs all fail does not bring the incumbent down, in the preview either."""
    best = tuning.said(16).incumbent
    assert best is not None
    speed = true_speed({"n": 16}, best.config)
    runs = [job(61 + i, {"n": 16}, best.config, speed=speed) for i in range(24)]
    fails = [job(85 + i, {"n": 16}, best.config, status=Status.OUT_OF_MEMORY) for i in range(8)]
    tuning.add(runs + [structs.replace(one, user="eve") for one in fails])
    limits = "[limits]\nmax_user_share = 0.1\n[search]"
    old = changed(("[search]", limits))
    new = changed(("[search]", limits), ("explore_share = 0.5", "explore_share = 0.4"))
    assert preview(tuning.store, old, new).incumbents == []
    (gone,) = preview(tuning.store, parse_study(TEXT), study(explore_share="0.4")).incumbents
    assert gone["why"].endswith("jobs run and keep to the guards")


def test_another_metric_that_no_job_has(tuning: Tuning) -> None:
    found = seen(tuning, changed(('metric = "speed"', 'metric = "pace"')))
    (lost,) = found.jobs_change.items()
    assert lost[0] == "losing the objective: no usable pace"
    assert lost[1] == sum("speed" in one.metrics for one in tuning.store.observations("toy"))
    assert (found.incumbents_stay, found.known_after) == (0, 60)
    whys = {(one["becomes"], one["why"]) for one in found.incumbents}
    assert whys == {("falls out", "none of its jobs has a usable pace")}
    assert [one["becomes"] for one in found.recommendations] == ["replaced"] * 3


def test_another_goal_makes_other_configurations_the_best(tuning: Tuning) -> None:
    runs = {
        n: Counter(
            json.dumps(job.config)
            for job in tuning.store.observations("toy")
            if job.metrics and job.context["n"] == n
        )
        for n in (4, 8, 16)
    }
    choice = [n for n, configs in runs.items() if sum(k > 1 for k in configs.values()) > 1]
    found = seen(tuning, changed(('goal = "maximize"', 'goal = "minimize"')))
    assert found.jobs_change == {}
    # Where one configuration alone has repeats, no single run takes its place.
    assert choice
    changes = [one for one in found.incumbents if one["becomes"] == "changes"]
    assert [one["context_key"] for one in changes] == [tuning.key(n) for n in choice]
    assert (len(found.incumbents), found.incumbents_stay) == (len(choice), 3 - len(choice))
    for n, one in zip(choice, changes, strict=True):
        assert re.match(r"best measured is x=\d y=[abc] z=(true|false)$", one["why"])
        x, y, z = (part.partition("=")[2] for part in one["why"].split()[3:])
        best = {"x": int(x), "y": y, "z": z == "True"}
        assert true_speed({"n": n}, best) < true_speed({"n": n}, one["config"])
    assert [one["becomes"] for one in found.recommendations] == ["replaced"] * 3


def test_a_scale_on_which_the_same_is_best_changes_no_incumbent(tuning: Tuning) -> None:
    found = seen(tuning, changed(('scale = "log"\n[context]', 'scale = "linear"\n[context]')))
    assert (found.incumbents_stay, found.incumbents, found.jobs_change) == (3, [], {})
    assert [one["becomes"] for one in found.recommendations] == ["stays"] * 3


def test_orders_that_would_do_nothing(tuning: Tuning) -> None:
    number = tuning.command("pin", context={}, config={"x": 4})
    tuning.run(tuning.start())
    found = seen(tuning, changed(("values = [1, 2, 3, 4, 5, 6, 7, 8]", "values = [1, 2, 3]")))
    (order,) = found.orders
    assert (order["number"], order["what"]) == (number, "pin x = 4")
    assert "outside the space" in order["why"]
