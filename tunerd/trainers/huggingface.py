"""transformers' Trainer: a callback that counts its steps.

job = tunerd.client.job("llm", {"gpu": "H100"}, defaults={"batch": 8})
trainer = Trainer(..., callbacks=[HuggingFaceCallback(job)])
"""

from typing import Any

from transformers import TrainerCallback

from tunerd.trainers.guard import guarded
from tunerd.trainers.job import TrainingJob

__all__ = ["HuggingFaceCallback"]


class HuggingFaceCallback(TrainerCallback):  # type: ignore[misc]
    """Counts ``samples`` and ``tokens`` of each optimizer step, and ends the job.

    Tokens need `tokens_per_sample`, or ``include_num_input_tokens_seen`` among the arguments of the
    training. Evaluations and checkpoints are left out. Trainer tells callbacks of no exception: the
    one that ends the program is told when it ends. ``with job:`` around ``train()`` tells at once.
    """

    def __init__(self, job: TrainingJob, tokens_per_sample: float | None = None) -> None:
        self.job, self._per_sample = job, tokens_per_sample
        self._samples = self._seen = 0
        self._began = False

    def fault(self, error: Exception) -> None:
        """Something is wrong in here."""
        self.job.fault(error)

    @guarded
    def on_train_begin(self, /, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Begin; once more after a batch that was too large, if Trainer looks for a smaller one."""
        if self._began:
            tries = getattr(args, "auto_find_batch_size", False)
            self.job.end(status="out_of_memory" if tries else "cancelled")
        self._began = True
        self._samples = args.train_batch_size * args.gradient_accumulation_steps
        self._seen = int(state.num_input_tokens_seen)

    @guarded
    def on_step_begin(self, /, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """A pause is over."""
        self.job.resume()

    @guarded
    def on_step_end(self, /, args: Any, state: Any, control: Any, **_: Any) -> None:
        """One optimizer step."""
        count = int(state.num_input_tokens_seen)  # of all processes
        if count > self._seen:
            tokens = (count - self._seen) / max(args.world_size, 1)
            self._seen = count
            self.job.step(samples=self._samples, tokens=tokens)
        elif self._per_sample is not None:
            self.job.step(samples=self._samples, tokens=self._samples * self._per_sample)
        else:
            self.job.step(samples=self._samples)
        if control.should_evaluate or control.should_save:
            self.job.pause()

    @guarded
    def on_epoch_end(self, /, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Evaluations and checkpoints of epochs come now."""
        self.job.pause()

    @guarded
    def on_train_end(self, /, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """It succeeded."""
        self.job.end()
