"""Lightning's own Trainer, on a model of a few weights."""

import signal

import pytest

from tests.needs import need_library
from tests.trainers.conftest import TrainingPlace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
TRAINING = """
import os, signal, sys, time, torch, tunerd.client
import lightning.pytorch as pl
from tunerd.trainers.lightning import LightningCallback

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, index):
        at(index)
        return self.layer(batch).mean()
    def validation_step(self, batch, index):
        time.sleep(0.1)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

def at(index):
    {at}
fault = {fault!r}
job = tunerd.client.job("tiny", {{"gpu": "none"}}, defaults={{"batch": 2}})
callback = LightningCallback(job, lambda batch: {{"tokens": batch.numel()}})
if fault:
    def broken(*_, **__): raise RuntimeError("a fault of tunerd's")
    for name in ("step", "pause", "resume", "end"): setattr(job, name, broken)
loader = torch.utils.data.DataLoader(torch.ones(800, 8), batch_size=job.config["batch"])
trainer = pl.Trainer(
    max_steps=80, accelerator="cpu", callbacks=[callback], logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, val_check_interval=20,
    limit_val_batches=2, {options})
trainer.fit(Model(), loader, loader)
sys.stdout.write(f"trained {{trainer.global_step}}\\n")  # in one piece: two ranks share the pipe
"""


def training(at: str = "pass", options: str = "", fault: str = "") -> str:
    return TRAINING.format(at=at, options=options, fault=fault)


@pytest.fixture(autouse=True)
def lightning() -> None:
    need_library("lightning", "trainers")


def test_a_training_follows_and_is_told(place: TrainingPlace) -> None:
    place.advise()
    assert "trained 80" in place.run(training(), timeout=240)
    event = place.event()
    assert (event["status"], event["config"]) == ("succeeded", {"batch": 8})
    metrics = event["metrics"]
    assert metrics["samples_per_second"] == pytest.approx(8 * metrics["steps_per_second"])
    assert metrics["tokens_per_second"] == pytest.approx(64 * metrics["steps_per_second"])
    assert event["measured_s"] < 0.6  # without validation, four times 0.2 s


@pytest.mark.parametrize(
    ("how", "code", "status"),
    [
        ("raise torch.OutOfMemoryError('CUDA out of memory')", 1, "out_of_memory"),
        ("raise KeyboardInterrupt", 1, "cancelled"),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, "preempted"),
    ],
)
def test_how_it_ended(place: TrainingPlace, how: str, code: int, status: str) -> None:
    place.run(training(f"index == 15 and (lambda: exec({how!r}))()"), code=code, timeout=240)
    assert place.event()["status"] == status


def test_two_ranks_tell_once(place: TrainingPlace) -> None:
    """Lightning starts the second one itself."""
    place.advise()
    said = place.run(training(options='devices=2, strategy="ddp"'), timeout=240)
    assert said.count("trained 80") == 2
    event = place.event()
    assert event["config"] == {"batch": 8}
    metrics = event["metrics"]
    assert metrics["samples_per_second"] == pytest.approx(16 * metrics["steps_per_second"])


def test_a_fault_of_ours_does_not_reach_it(place: TrainingPlace) -> None:
    said = place.run(training(fault="yes"), timeout=240)
    assert "trained 80" in said
    assert said.count("tunerd:") <= 2
