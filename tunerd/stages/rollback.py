"""Going back to an earlier version of a study's model, and forward again, as operators say."""

from collections.abc import Collection
from dataclasses import dataclass

from tunerd.core.decisions.context_state import UNREADABLE
from tunerd.core.model.model import StudyModel
from tunerd.core.model.training import Why
from tunerd.stages.checkpoints import parts_of
from tunerd.stages.model_registry import built_last
from tunerd.stages.study_session import StepPlan, StudySession
from tunerd.store import CorruptCheckpointError, ModelVersion, OperatorCommand, Store, serving

__all__ = ["go_back"]


def go_back(
    store: Store,
    books: StudySession,
    changes: StepPlan,
    active: Collection[str],
    command: OperatorCommand,
) -> str:
    """Carry out the command ``back`` or ``latest``, and say what came of it. Contexts that are
    ``active`` are searched again with the model that then serves."""
    shelf = _ModelRollback(store, books, changes, active, command)
    if command.command == "latest":
        return shelf.latest()
    return shelf.back(command.arguments["version"])


@dataclass(frozen=True)
class _ModelRollback:
    """Where versions are taken from."""

    store: Store
    books: StudySession
    changes: StepPlan
    active: Collection[str]
    command: OperatorCommand

    def back(self, wanted: int) -> str:
        versions = self.store.models(self.books.study.name)
        version = next((model for model in versions if model.version == wanted), None)
        if version is None:
            return f"refused: there is no version {wanted}; `tunerd models` lists those that are"
        training = self.books.tuner.training
        if version is serving(versions) and not training.built:
            training.pin()
            return f"version {wanted} serves already, and does so until `--latest`"
        wrong = self._take_up(version, "back", pinned=True)
        return wrong or f"version {wanted} serves from here on, until `--latest`"

    def latest(self) -> str:
        training = self.books.tuner.training
        if not training.pinned:
            return "refused: nobody went back to an earlier model: the latest serves"
        versions = self.store.models(self.books.study.name)
        newest, now = built_last(versions, self.books.generation), serving(versions)
        assert now is not None
        if newest is None or newest.version in (now.version, now.detail.get("of")):
            training.pinned = False
            return "the model that serves is the latest; it may be replaced again"
        if wrong := self._take_up(newest, "latest", pinned=False):
            training.pinned = False
            why = wrong.removeprefix("refused: ")
            return f"the model that serves may be replaced again, and is for now: {why}"
        return f"version {newest.version} serves from here on, and may be replaced again"

    def _take_up(self, version: ModelVersion, why: Why, *, pinned: bool) -> str:
        """Put a version in place; a text says why that cannot be."""
        number, tuner, study = version.version, self.books.tuner, self.books.study
        if not version.took_over:
            return f"refused: version {number} was turned down, and is not kept"
        if version.generation != self.books.generation:
            return (
                f"refused: version {number} is of generation {version.generation}, the study is at "
                f"{self.books.generation}: with each version of its file, an old one put back "
                "too, a model of its own begins"
            )
        if version.checkpoint is None:
            return f"refused: version {number} served within one step only, and was not kept"
        try:
            parts = parts_of(self.store, study.name, version.checkpoint)
        except LookupError:
            return f"refused: version {number} is kept no longer (tune.keep_models)"
        except CorruptCheckpointError as error:
            return f"refused: {error}"
        try:
            model = StudyModel.load(study, tuner.features, parts)
        except UNREADABLE as error:
            return f"refused: version {number} cannot be loaded: {error}"
        tuner.training.take_up(model, why, tuner.sequence, pinned=pinned)
        tuner.look_again(self.active)
        self.changes.swapped = True
        self.changes.taken_up = {"of": number, "command": self.command.id}
        return ""
