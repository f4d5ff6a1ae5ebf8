"""Lightning's Trainer: a callback that counts its batches.

job = tunerd.client.job("llm", {"gpu": "H100"}, defaults={"batch": 8})
trainer = Trainer(..., callbacks=[LightningCallback(job)])
"""

from collections.abc import Callable, Mapping
from typing import Any

from lightning.pytorch.callbacks import Callback

from tunerd.trainers.guard import guarded
from tunerd.trainers.job import TrainingJob

__all__ = ["LightningCallback"]


class LightningCallback(Callback):  # type: ignore[misc]
    """Counts ``samples`` of each training batch, and ends the job, however the training ends.

    `amounts` says what else a batch has: ``lambda batch: {"tokens": batch["ids"].numel()}``.
    Validation is left out.
    """

    def __init__(
        self, job: TrainingJob, amounts: Callable[[Any], Mapping[str, float]] | None = None
    ) -> None:
        self.job, self._amounts = job, amounts
        self._samples: int | None = None

    def fault(self, error: Exception) -> None:
        """Something is wrong in here."""
        self.job.fault(error)

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """How large a batch is, where its loader knows."""
        size = getattr(trainer.train_dataloader, "batch_size", None)
        self._samples = size if isinstance(size, int) else None
        self.job.resume()

    @guarded
    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int  # noqa: ARG002
    ) -> None:  # fmt: skip
        """One batch."""
        counts: dict[str, float] = {} if self._samples is None else {"samples": self._samples}
        if self._amounts is not None:
            counts |= self._amounts(batch)
        self.job.step(**counts)

    @guarded
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """No training for a while."""
        self.job.pause()

    @guarded
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Training again."""
        self.job.resume()

    @guarded
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """It succeeded."""
        self.job.end()

    @guarded
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """It did not."""
        self.job.end(exception)
