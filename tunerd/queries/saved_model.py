"""What a study has learned, read from the store beside whoever tunes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunerd.core.features import FeatureMap
from tunerd.core.features.replay import sequences_at
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.errors import TunerdError

if TYPE_CHECKING:
    from tunerd.core.model.model import StudyModel
    from tunerd.core.observation import Observation
    from tunerd.store import Store

__all__ = ["NoModelError", "SavedStudyModel", "kept_scores", "load_model", "read_learned"]

STEPS_LOOKED_AT = 20
"""Steps to look back for the last one that scored predictions."""


class NoModelError(TunerdError):
    """Raised when a study has no model to ask. Says what it waits for."""


@dataclass(frozen=True)
class SavedStudyModel:
    """A study under the generation that was learned last, and its model as it was saved last."""

    study: Study
    generation: int
    features: FeatureMap
    """Of the model; new values that rows of it bring get codes in it, as everywhere."""
    checkpoint: str
    model: "StudyModel"

    def jobs(self, store: "Store", most: int) -> "Sequence[Observation]":
        """An even sample of those that the model was fitted on and learned since."""
        known = sequences_at(self.model.learned)
        step = max(len(known) / most, 1.0)
        some = [int(known[-1 - int(i * step)]) for i in range(min(most, len(known)))]
        return store.observations_left(self.study.name, some)


def read_learned(store: "Store", name: str) -> SavedStudyModel:
    """Read a study's last checkpoint.

    Raises:
        UnknownStudyError: there is no such study.
        NoModelError: it has no model yet, or one of another version of tunerd.
    """
    row, saved = store.study(name), store.study_state(name)
    if row is None:
        raise store.unknown_study(name)
    state = saved.state if saved else {}
    generation = store.generation(name, state.get("generation"))
    if generation is None or state.get("model") is None:
        learned = f"{row.learned_sequence:,} of its {row.last_sequence:,} jobs are learned"
        waits = row.learned_sequence < row.last_sequence
        raise NoModelError(
            f"study {name} has no model yet: {learned}, and the first model follows five jobs "
            f"with an objective{' (is `tunerd run` running?)' if waits else ''}"
        )
    from tunerd.stages.study_session import LAYOUT

    if state.get("layout") != LAYOUT:
        raise NoModelError(f"another version of tunerd learned {name}; `tunerd run` learns it anew")
    study = parse_study(generation.text, f"{name}, generation {generation.generation}")
    features = FeatureMap(study, _vocabulary(state))
    model = load_model(store, study, features, state["model"])
    return SavedStudyModel(study, generation.generation, features, state["model"], model)


def kept_scores(store: "Store", study: str) -> dict[str, float | None] | None:
    """How well the last live jobs were predicted before they were learned, as the last steps
    kept it; None before there was one."""
    steps = store.steps(study, STEPS_LOOKED_AT)
    return next((scores for step in steps if (scores := step.detail.get("scores"))), None)


def load_model(store: "Store", study: Study, features: FeatureMap, checkpoint: str) -> "StudyModel":
    """A model as a checkpoint has it.

    Raises:
        LookupError: it is not kept any more.
        DamagedCheckpointError: it is not what was saved.
        ValueError: it is of another generation of the study.
    """
    from tunerd.core.model.model import (
        StudyModel,  # with the learners: whoever asks for scores needs none
    )
    from tunerd.stages.checkpoints import parts_of

    return StudyModel.load(study, features, parts_of(store, study.name, checkpoint))


def _vocabulary(state: Mapping[str, object]) -> Mapping[str, Sequence[str]]:
    tuner = state["tuner"]
    assert isinstance(tuner, dict)
    vocabulary: Mapping[str, Sequence[str]] = tuner["vocabulary"]
    return vocabulary
