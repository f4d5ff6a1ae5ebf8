"""transformers' own Trainer, on a model of a few thousand weights."""

import signal

import pytest

from tests.needs import need_library
from tests.trainers.conftest import TrainingPlace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
TRAINING = """
import os, sys, torch, tunerd.client
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from tunerd.trainers.huggingface import HuggingFaceCallback

class Data(torch.utils.data.Dataset):
    def __len__(self): return 400
    def __getitem__(self, i):
        before(i)
        ids = torch.arange(16) % 50
        return {{"input_ids": ids, "labels": ids}}

def before(i): pass
{before}
fault = {fault!r}
job = tunerd.client.job("tiny", {{"gpu": "none"}}, defaults={{"batch": 2}})
callback = HuggingFaceCallback(job{options})
if fault:
    def broken(*_, **__): raise RuntimeError("a fault of tunerd's")
    for name in ("step", "pause", "resume", "end"): setattr(job, name, broken)
model = LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1,
    num_attention_heads=2, vocab_size=50))
trainer = Trainer(model, TrainingArguments(
    "out", max_steps=40, per_device_train_batch_size=job.config["batch"], use_cpu=True,
    report_to=[], disable_tqdm=True, save_strategy="steps", save_steps=20,
    eval_strategy="steps", eval_steps=10, {arguments}), train_dataset=Data(), eval_dataset=Data(),
    callbacks=[callback])
trainer.train()
print("trained", trainer.state.global_step)
"""


def training(before: str = "", options: str = "", arguments: str = "", fault: str = "") -> str:
    return TRAINING.format(before=before, options=options, arguments=arguments, fault=fault)


@pytest.fixture(autouse=True)
def transformers() -> None:
    need_library("transformers", "trainers")
    need_library("accelerate", "trainers")


def test_a_training_follows_and_is_told(place: TrainingPlace) -> None:
    place.advise()
    seen = "include_num_input_tokens_seen='all', gradient_accumulation_steps=2"
    slow = "import time\ndef before(i): time.sleep(0 if torch.is_grad_enabled() else 0.005)"
    said = place.run(training(slow, arguments=seen), timeout=240)
    assert "trained 40" in said
    event = place.event()
    assert (event["status"], event["config"]) == ("succeeded", {"batch": 8})
    metrics = event["metrics"]
    assert metrics["samples_per_second"] == pytest.approx(16 * metrics["steps_per_second"])
    assert metrics["tokens_per_second"] == pytest.approx(
        256 * metrics["steps_per_second"], rel=0.01
    )
    assert 0 < event["labels"]["steps"] <= 30
    assert event["measured_s"] < 3  # without four evaluations of two seconds each


@pytest.mark.parametrize(
    ("raises", "code", "status"),
    [
        ("raise torch.OutOfMemoryError('CUDA out of memory')", 1, "out_of_memory"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "cancelled"),
    ],
)
def test_its_exception_is_told(place: TrainingPlace, raises: str, code: int, status: str) -> None:
    before = f"calls = []\ndef before(i):\n    calls.append(i)\n    if len(calls) > 55: {raises}"
    place.run(training(before, ", tokens_per_sample=16"), code=code, timeout=240)
    assert place.event()["status"] == status


def test_a_fault_of_ours_does_not_reach_it(place: TrainingPlace) -> None:
    said = place.run(training(fault="yes"), timeout=240)
    assert "trained 40" in said
    assert said.count("tunerd:") <= 2
