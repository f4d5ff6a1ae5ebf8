"""Real lines of real trainings, and what they come to."""

import re
from pathlib import Path

import pytest

from tunerd.trainers.logs import FORMATS, LogReader

# https://github.com/NVIDIA/Megatron-LM, megatron/training/training.py: training_log()
MEGATRON = """\
[Rank 0] (after 1 iterations) memory (MB) | allocated: 10770.3 | max allocated: 15754.8 | reserved: 16334.0 | max reserved: 16334.0
 [2025-08-01 07:19:37] iteration        1/    5000 | consumed samples:          128 | elapsed time per iteration (ms): 19138.8 | throughput per GPU (TFLOP/s/GPU): 80.2 | learning rate: 6.976744E-08 | global batch size:   128 | lm loss: 1.043863E+01 | loss scale: 1.0 | grad norm: 26.203 | number of skipped iterations:   0 | number of nan iterations:   0 |
 [2025-08-01 07:19:50] iteration       12/    5000 | consumed samples:          256 | elapsed time per iteration (ms): 12936.1 | throughput per GPU (TFLOP/s/GPU): 118.7 | learning rate: 1.395349E-07 | global batch size:   128 | lm loss: 1.044022E+01 | loss scale: 1.0 | grad norm: 26.305 | number of skipped iterations:   0 | number of nan iterations:   0 |
 [2025-08-01 07:20:03] iteration       13/    5000 | consumed samples:          384 | elapsed time per iteration (ms): 12978.1 | throughput per GPU (TFLOP/s/GPU): 118.3 | learning rate: 2.093023E-07 | global batch size:   128 | lm loss: 1.044375E+01 | loss scale: 1.0 | grad norm: 25.930 | number of skipped iterations:   0 | number of nan iterations:   0 |
 iteration       14/    5000 | consumed samples:          512 | elapsed time per iteration (ms): 13000.0 | learning rate: 2.093E-07 | global batch size:   128 | lm loss: 1.04E+01 |
"""  # noqa: E501
# https://github.com/NVIDIA/NeMo, nemo/lightning/pytorch/callbacks/progress_printer.py
NEMO = """\
Training epoch 0, iteration 0/249 | lr: 1.961e-06 | global_batch_size: 8 | global_step: 0 | reduced_train_loss: 1.315 | train_step_timing in s: 7.126
Training epoch 0, iteration 11/249 | lr: 3.922e-06 | global_batch_size: 8 | global_step: 11 | reduced_train_loss: 1.653 | train_step_timing in s: 2.505 | consumed_samples: 16
Training epoch 0, iteration 12/249 | lr: 5.882e-06 | global_batch_size: 8 | global_step: 12 | reduced_train_loss: 1.278 | train_step_timing in s: 1.505 | consumed_samples: 24
"""  # noqa: E501
NEMO_1 = (
    "Epoch 0: : 100%|██████████| 100/100 [10:48<00:00, reduced_train_loss=0.0172, "
    "global_step=99.00, consumed_samples=25600.0, train_step_timing in s=3.130]\n"
)
# https://github.com/pytorch/torchtitan, torchtitan/components/metrics.py: MetricsProcessor.log()
TORCHTITAN = """\
[rank0]:[titan] 2025-06-04 08:51:48,074 - root - INFO - step:  1  loss: 12.2254  memory: 27.34GiB(28.78%)  tps: 375  tflops: 21.73  mfu: 2.20%
[rank0]:[titan] 2025-06-04 08:51:58,557 - root - INFO - step: 10  loss: 10.7069  memory: 30.99GiB(32.62%)  tps: 7,034  tflops: 407.35  mfu: 41.19%
[rank0]:[titan] 2025-06-04 08:52:10,224 - root - INFO - step: 20  loss:  8.9196  memory: 30.99GiB(32.62%)  tps: 7,022  tflops: 406.65  mfu: 41.12%
[titan] 2026-01-16 02:42:36,857 - root - INFO - validate step: 20  loss: 12.4699  memory: 69.81GiB(88.17%)  tps: 74,600
\x1b[31mstep: 30  \x1b[32mloss:  8.1423  \x1b[33mgrad_norm:  8.0045  \x1b[36mmemory: 31.50GiB(32.62%)  \x1b[34mtps: 7,014  \x1b[36mtflops: 1,406.23  \x1b[35mmfu: 41.08%\x1b[39m
"""  # noqa: E501


def read(name: str, text: str) -> LogReader:
    reader = LogReader(FORMATS[name])
    data = text.encode()
    for begin in range(0, len(data), 100):
        reader.hear(data[begin : begin + 100])
    reader.end()
    return reader


def test_megatron() -> None:
    reader = read("megatron", MEGATRON)
    assert reader.metrics == {
        "steps_per_second": pytest.approx(1 / 12.9781),
        "samples_per_second": pytest.approx(128 / 12.9781),
        "tflops_per_gpu": pytest.approx(118.5),
    }
    assert reader.labels == {"speed": "median of 3 lines", "steps": 13, "warmup_steps": 1}


def test_nemo() -> None:
    reader = read("nemo", NEMO)
    rates = [1 / 2.505, 1 / 1.505]
    assert reader.metrics["steps_per_second"] == pytest.approx(sum(rates) / 2)
    assert reader.metrics["samples_per_second"] == pytest.approx(8 * sum(rates) / 2)
    assert read("nemo", NEMO_1).metrics == {"steps_per_second": pytest.approx(1 / 3.13)}


def test_torchtitan() -> None:
    metrics = read("torchtitan", TORCHTITAN).metrics
    assert metrics == {
        "tokens_per_second_per_gpu": 7018,
        "tflops_per_gpu": pytest.approx((406.65 + 1406.23) / 2),
        "mfu": pytest.approx(0.411),
        "peak_memory_gib": 31.5,  # not the validation's
    }


@pytest.mark.parametrize(
    ("name", "line", "status"),
    [
        ("megatron", "[after training is done] datetime: 2025-08-01 09:20:03 ", "succeeded"),
        ("nemo", "`Trainer.fit` stopped: `max_steps=100` reached.", "succeeded"),
        ("torchtitan", "[titan] 2025-06-04 - root - INFO - Training completed", "succeeded"),
        ("megatron", "Traceback (most recent call last):\nValueError: no", "failed"),
        (
            "torchtitan",
            "[rank0]: Traceback (most recent call last):\n"
            "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "out_of_memory",
        ),
        (
            "nemo",
            "slurmstepd: error: *** JOB 71 ON n1 CANCELLED AT 2025-06-04T08:52 DUE TO PREEMPTION",
            "preempted",
        ),
        (
            "nemo",
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2025-06-04T08:52 DUE TO TIME LIMIT",
            "timeout",
        ),
        ("megatron", "", "cancelled"),
    ],
)
def test_how_it_ended(name: str, line: str, status: str) -> None:
    log = {"megatron": MEGATRON, "nemo": NEMO, "torchtitan": TORCHTITAN}[name]
    assert read(name, log + line).outcome.status == status


def test_a_restart_makes_the_former_end_void() -> None:
    log = TORCHTITAN + "Traceback (most recent call last):\n" + TORCHTITAN
    assert read("torchtitan", log + "Training completed\n").outcome.status == "succeeded"


@pytest.mark.parametrize("name", FORMATS)
def test_hostile_lines_are_harmless(name: str) -> None:
    lines = [
        "iteration 1/ 2 |" * 5000,
        "x" * 10_000_000,
        "\0" * 5000,
        "step: 1 memory: ,GiB tps: ,",
    ]
    lines += ["iteration 5/ 9 | elapsed time per iteration (ms): 0.0 |", "tps: " + "9" * 9000]
    lines += ["Training epoch 0, iteration 1/2 global_step: . train_step_timing in s: ."]
    reader = LogReader(FORMATS[name])
    reader.hear("\n".join(lines).encode() + b"\xff\xfe\r\n")
    reader.end()
    assert reader.metrics == {}


def test_the_documentation_names_them_all() -> None:
    page = (Path(__file__).parents[2] / "docs" / "trainers.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \| .*/", page, re.M)) >= set(FORMATS)
