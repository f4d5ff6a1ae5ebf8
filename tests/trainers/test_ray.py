"""Ray Train, with workers of its own on this machine."""

import pytest

from tests.needs import need_library
from tests.trainers.conftest import TrainingPlace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
# Ray is nice to others, by 15; on a busy machine its workers would not start for minutes.
ENVIRON = {"RAY_worker_niceness": "0", "RAY_AUTH_MODE": "disabled"}
TRAINING = """
import os, ray, torch
from ray.train import RunConfig, ScalingConfig, report
from ray.train.torch import TorchTrainer
from tunerd.trainers.ray import RayCallback, with_job

fault = {fault!r}
if fault:
    import tunerd.trainers.job, tunerd.trainers.speed
def loop(config, job=None):
    if fault:
        import tunerd.trainers.speed
        def broken(*_, **__): raise RuntimeError("a fault of tunerd's")
        tunerd.trainers.speed.StepTimer.step = broken
    print("trains with", config["batch"], config["other"], flush=True)
    for step in range({steps}):
        torch.ones(8).sum()
        if job: job.step(tokens=100 * config["batch"])
        else: report({{"tokens": 100 * config["batch"], "loss": 1.5}})
    {at_end}
    report({{"tokens": 0}})

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=True)
options = dict(defaults={{"batch": 2}})
scaling = ScalingConfig(num_workers={workers})
if {callback}:
    options |= dict(counts=["tokens"], metrics=["loss"])
    callback = RayCallback("tiny", {{"gpu": "none"}}, **options)
    config = {{"other": 5, **callback.config}}
    run = RunConfig(storage_path=os.getcwd(), callbacks=[callback])
    trainer = TorchTrainer(loop, train_loop_config=config, scaling_config=scaling, run_config=run)
else:
    train = with_job(loop, "tiny", {{"gpu": "none"}}, **options)
    run = RunConfig(storage_path=os.getcwd())
    config = {{"other": 5}}
    trainer = TorchTrainer(train, train_loop_config=config, scaling_config=scaling, run_config=run)
trainer.fit()
print("trained")
"""


def training(
    at_end: str = "pass",
    *,
    workers: int = 1,
    fault: str = "",
    callback: bool = False,
    steps: int = 60,
) -> str:
    given = {"at_end": at_end, "workers": workers, "fault": fault, "steps": steps}
    return TRAINING.format(**given, callback=callback)


@pytest.fixture(autouse=True)
def ray() -> None:
    need_library("ray.train", "trainers")


def test_workers_get_the_same_and_the_first_one_tells(place: TrainingPlace) -> None:
    place.advise()
    said = place.run(training(workers=2), timeout=300, environ=ENVIRON)
    assert "trains with 8 5" in said
    event = place.event()
    assert (event["status"], event["config"]) == ("succeeded", {"batch": 8})
    assert event["recommendation_id"] == "r-1"
    metrics = event["metrics"]
    assert metrics["tokens_per_second"] == pytest.approx(1600 * metrics["steps_per_second"])


def test_what_ends_a_worker_is_told(place: TrainingPlace) -> None:
    place.run(
        training("raise torch.OutOfMemoryError('CUDA out of memory')"),
        code=1,
        timeout=300,
        environ=ENVIRON,
    )
    assert place.event()["status"] == "out_of_memory"


@pytest.mark.parametrize(
    ("at_end", "code", "status"),
    [("pass", 0, "succeeded"), ("raise MemoryError", 1, "out_of_memory")],
)
def test_the_callback_counts_reports(
    place: TrainingPlace, at_end: str, code: int, status: str
) -> None:
    place.advise()
    said = place.run(
        training(at_end, callback=True, steps=30), code=code, timeout=300, environ=ENVIRON
    )
    assert "trains with 8 5" in said
    event = place.event()
    assert (event["status"], event["config"]) == (status, {"batch": 8})
    assert event["metrics"]["loss"] == 1.5
    assert event["metrics"]["tokens_per_second"] > 0


def test_a_fault_of_ours_does_not_reach_it(place: TrainingPlace) -> None:
    assert "trained" in place.run(training(fault="yes"), timeout=300, environ=ENVIRON)
