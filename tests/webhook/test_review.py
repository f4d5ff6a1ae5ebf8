"""An AdmissionReview is answered with what to fill in, and a Job is never refused."""

import json
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.events.samples import changed
from tests.webhook.conftest import JOB, KEY, STUDY, Webhook, message, review, save
from tunerd.client import context_key
from tunerd.events.kubernetes import kubernetes_notes
from tunerd.webhook.review import NoReviewError, answer

TEMPLATE = JOB["spec"]["template"]
CONTAINER = TEMPLATE["spec"]["containers"][0]


def container(job: dict[str, Any], place: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["template"]["spec"]["containers"][place]
    return found


def environment(job: dict[str, Any], place: int = 0) -> dict[str, Any]:
    return {one["name"]: one.get("value", one) for one in container(job, place).get("env", [])}


def job_with(**changes: Any) -> dict[str, Any]:
    """The Job with other keys of its container."""
    return changed(JOB, spec__template__spec__containers=[{**CONTAINER, **changes}])


def annotated(**notes: str) -> dict[str, Any]:
    known = JOB["metadata"]["annotations"]
    more = {f"tunerd.dev/{name.replace('_', '-')}": value for name, value in notes.items()}
    return changed(JOB, metadata__annotations={**known, **more})


def test_a_job_gets_what_is_recommended(webhook: Webhook) -> None:
    job = webhook.fill(JOB)
    kubernetes_validate.validate(job, "1.37", strict=True)
    assert container(job)["args"] == ["-T8", "--mode=best", "${HOME}/logs", "{}", "{x}"]
    assert container(job)["command"] == ["zstd"]
    names = environment(job)
    assert names["LEVEL"] == "3"
    assert json.loads(names["TUNERD_CONFIG"]) == {"threads": 8, "mode": "best"}
    assert (names["TUNERD_PARAM_THREADS"], names["TUNERD_PARAM_MODE"]) == ("8", "best")
    assert (names["TUNERD_RECOMMENDATION_ID"], names["TUNERD_CANDIDATE_ID"]) == ("r-1", "c-1")
    assert names["TUNERD_JOB_ID"]["valueFrom"]["fieldRef"]["fieldPath"] == (
        "metadata.labels['batch.kubernetes.io/controller-uid']"
    )
    assert list(names)[-1] == "LEVEL"  # it may refer to ours


def test_the_record_of_its_end_says_what_it_ran_with(webhook: Webhook) -> None:
    notes = kubernetes_notes(webhook.fill(JOB)["metadata"])
    assert (notes.config, notes.recommendation_id) == ({"threads": 8, "mode": "best"}, "r-1")
    assert (notes.candidate_id, notes.cluster) == ("c-1", "kubernetes")


def test_asked_twice_it_says_the_same(webhook: Webhook) -> None:
    job = webhook.fill(JOB)
    save(webhook.file, message(revision=2, candidates=[]))
    assert "patch" not in webhook.ask(job)
    more = changed(job)
    sidecar = {"name": "late", "image": "example.org/late:1", "args": ["{threads}"]}
    more["spec"]["template"]["spec"]["containers"].append(sidecar)  # another webhook added it
    again = webhook.fill(more)
    assert container(again) == container(job)
    assert container(again, 1)["args"] == ["8"]


def test_without_a_recommendation_it_is_the_baseline(webhook: Webhook) -> None:
    webhook.file.unlink()
    job = webhook.fill(JOB)
    assert container(job)["args"][0] == "-T1"
    assert "TUNERD_RECOMMENDATION_ID" not in environment(job)


def test_a_configuration_of_the_jobs_own_stays(webhook: Webhook) -> None:
    job = webhook.fill(annotated(config='{"threads": 2, "mode": "a$(b)"}'))
    assert container(job)["args"][:2] == ["-T2", "--mode=a$$(b)"]
    assert "tunerd.dev/recommendation-id" not in job["metadata"]["annotations"]


def test_variables_that_the_container_has_stay(webhook: Webhook) -> None:
    env = [{"name": "TUNERD_PARAM_MODE", "value": "mine"}]
    assert environment(webhook.fill(job_with(env=env)))["TUNERD_PARAM_MODE"] == "mine"


def test_defaults_say_what_nothing_else_does(webhook: Webhook) -> None:
    job = annotated(**{"default.level": "3"})
    container(job)["args"] = ["-{level}", "-T{threads}"]
    assert container(webhook.fill(job))["args"] == ["-3", "-T8"]


def test_containers_may_be_named(webhook: Webhook) -> None:
    sidecar = {"name": "sidecar", "image": "example.org/sidecar:1", "args": ["{anything}"]}
    job = changed(
        annotated(containers="main"), spec__template__spec__containers=[CONTAINER, sidecar]
    )
    filled = webhook.fill(job)
    assert container(filled)["args"][0] == "-T8"
    assert container(filled, 1) == sidecar


@pytest.mark.parametrize("suspended", [True, False])
def test_a_suspended_job_of_kueue_is_filled_when_it_is_created(
    webhook: Webhook, suspended: bool
) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "gpu", "tunerd.dev/study": "compress"}
    job = changed(JOB, spec__suspend=suspended, metadata__labels=labels)
    job["metadata"]["annotations"].pop("tunerd.dev/study")
    filled = webhook.fill(job)
    assert filled["spec"]["suspend"] is suspended
    kubernetes_validate.validate(filled, "1.37", strict=True)
    # When Kueue lets it run, and for anything else that changes, it stays as it is.
    assert "patch" not in webhook.ask(JOB, operation="UPDATE", oldObject=JOB)


def test_a_pod_and_a_template_are_filled_too(webhook: Webhook) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": JOB["metadata"],
        "spec": TEMPLATE["spec"],
    }
    filled = webhook.fill(pod)
    kubernetes_validate.validate(filled, "1.37", strict=True)
    env = filled["spec"]["containers"][0]["env"]
    source = next(one for one in env if one["name"] == "TUNERD_JOB_ID")["valueFrom"]
    assert source == {"fieldRef": {"fieldPath": "metadata.uid"}}
    template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t"}}
    noted = {"metadata": {"annotations": JOB["metadata"]["annotations"]}, **TEMPLATE}
    filled = webhook.fill({**template, "template": noted})
    assert filled["template"]["spec"]["containers"][0]["args"][0] == "-T8"
    assert filled["metadata"]["annotations"]["tunerd.dev/candidate-id"] == "c-1"


@pytest.mark.parametrize(
    "job",
    [
        changed(JOB, metadata__annotations={"tunerd.dev/context.file": "logs"}),
        changed(JOB, metadata__annotations=None),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": JOB["metadata"]},
        {},
        None,
    ],
)
def test_what_does_not_ask_for_it_is_left_alone(webhook: Webhook, job: Any) -> None:
    response = webhook.ask(job or {}, object=job)
    assert response.keys() == {"uid", "allowed"}


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (annotated(study="other"), "there is no study 'other' here; there is compress"),
        (job_with(args=["{thread}"]), "there is no value for {thread}; did you mean {threads}?"),
        (annotated(containers="main, other"), "there is no container 'other'"),
        (changed(JOB, spec__template__spec__containers=[]), "the pod has no containers"),
        (annotated(study="x\n\x1b[2J" * 99), "there is no study"),
    ],
)
def test_whatever_is_wrong_the_job_is_admitted_and_told_why(
    webhook: Webhook, job: dict[str, Any], why: str
) -> None:
    response = webhook.ask(job)
    assert "patch" not in response
    (warning,) = response["warnings"]
    assert why in warning
    assert warning.isprintable()
    assert len(warning) <= 200


def test_a_fault_of_ours_refuses_nothing(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook.planner, "plan", lambda *_, **__: 1 / 0)
    assert webhook.ask(JOB)["warnings"] == [
        "tunerd: ZeroDivisionError in tunerd webhook; unchanged"
    ]


def test_a_dry_run_takes_no_place_in_a_profiling_round(webhook: Webhook) -> None:
    wanted = {**message()["candidates"][0], "wanted": 1, "share": 0}
    save(webhook.file, message(revision=2, candidates=[wanted], round=1))

    def threads(name: str, **changes: Any) -> str:
        job = changed(JOB, metadata__name=name)
        return str(environment(webhook.fill(job, **changes))["TUNERD_PARAM_THREADS"])

    assert threads("a", dryRun=True) == "8"
    assert threads("b") == "8"
    assert threads("c") == "1"


def test_studies_that_change_are_read_again(webhook: Webhook) -> None:
    file = webhook.studies / "compress.toml"
    file.write_text(STUDY.replace("threads = 1, ", "threads = 4, "))
    webhook.file.unlink()
    webhook.now = 60.0
    assert container(webhook.fill(JOB))["args"][0] == "-T4"
    file.write_text("schema = 1")
    webhook.now = 120.0
    assert container(webhook.fill(JOB))["args"][0] == "-T4"  # the former ones stay


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"kind": "AdmissionReview"}', review(JOB)[:-30]],
)
def test_what_is_no_review_is_said_to_be_none(webhook: Webhook, body: bytes) -> None:
    with pytest.raises(NoReviewError):
        answer(body, webhook.planner)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["{threads}", "{x}"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
PLACES = [
    "metadata", "metadata__annotations", "spec", "spec__template", "spec__template__metadata",
    "spec__template__spec", "spec__template__spec__containers", "kind",
]  # fmt: skip


@pytest.mark.slow
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.sampled_from(PLACES), value=ANY, keys=st.dictionaries(
    st.sampled_from([*CONTAINER, "env"]), ANY))  # fmt: skip
def test_no_object_is_refused(
    webhook: Webhook, place: str, value: Any, keys: dict[str, Any]
) -> None:
    for job in (changed(JOB, **{place: value}), job_with(**keys)):
        assert webhook.ask(job)["allowed"] is True


def test_the_key_is_the_study_s(webhook: Webhook) -> None:
    assert KEY == "compress|file=logs"
    other = annotated(**{"context.file": "other"})
    assert container(webhook.fill(other))["args"][0] == "-T1"  # nothing is recommended there


@pytest.mark.parametrize(("noted", "value"), [("1.0", 1.0), ("1e3", 1e3), ("0.1", 0.1)])
def test_a_number_as_a_category_has_the_key_of_the_events(
    webhook: Webhook, noted: str, value: float
) -> None:
    key = context_key("compress", {"file": "category"}, {"file": value})
    save(webhook.file, message(context_key=key))
    assert container(webhook.fill(annotated(**{"context.file": noted})))["args"][0] == "-T8"


def test_a_variable_that_kubernetes_would_refuse_is_left_out(webhook: Webhook) -> None:
    config = {"threads": 2, "mode": "best", "a b": 1, "ß=": 2, "model.tp": 4}
    job = webhook.fill(annotated(config=json.dumps(config)))
    kubernetes_validate.validate(job, "1.37", strict=True)
    params = {name for name in environment(job) if name.startswith("TUNERD_PARAM_")}
    assert params == {"TUNERD_PARAM_THREADS", "TUNERD_PARAM_MODE", "TUNERD_PARAM_MODEL.TP"}
    assert json.loads(environment(job)["TUNERD_CONFIG"]) == config


@pytest.mark.parametrize("metadata", [None, {}, {"annotations": None}])
def test_the_patch_makes_what_it_writes_into(webhook: Webhook, metadata: Any) -> None:
    job = changed(JOB, spec__template__metadata={"annotations": JOB["metadata"]["annotations"]})
    filled = webhook.fill({**job, "metadata": metadata})
    assert json.loads(filled["metadata"]["annotations"]["tunerd.dev/config"])["threads"] == 8
    del job["metadata"]
    assert webhook.fill(job)["metadata"] == filled["metadata"]


@pytest.mark.parametrize("config", ["{threads: 2}", "threads=2", "[1]", ""])
def test_a_configuration_that_cannot_be_read_is_not_passed_over(
    webhook: Webhook, config: str
) -> None:
    response = webhook.ask(annotated(config=config))
    assert "patch" not in response
    assert response["warnings"] == ["tunerd: tunerd.dev/config is no JSON object; unchanged"]
