"""What is saved of a model is the same in every process.

Strings hash differently in each, so that whatever goes through a set in the order of the set comes
out differently, and two machines that learned the same would disagree. Nor does it depend on torch,
which tunerd does not install.
"""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import hashlib
from dataclasses import replace
from tests.core.tuning import random_jobs, study
from tunerd.core.features import FeatureMap
from tunerd.core.predictors import PREDICTORS, predictor_class
from tunerd.core.feasibility.model import FeasibilityModel

features = FeatureMap(study())
rows = features.rows(random_jobs(90, 0))
rows = replace(rows, context_key=[f"{key} {i % 4}" for i, key in enumerate(rows.context_key)])
for kind in (*map(predictor_class, PREDICTORS), FeasibilityModel):
    blobs = kind.fit(study(), features, rows, 1).dump()
    print(kind.__name__, [(n, hashlib.sha256(blobs[n]).hexdigest()) for n in sorted(blobs)])
"""


WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoTorch())
"""
"""Libraries look for torch among what is imported, so it must not stand there as None."""


def saved(hash_seed: str, before: str = "") -> str:
    told = subprocess.run(
        [sys.executable, "-c", before + SCRIPT],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout


@pytest.mark.slow
def test_what_is_saved_does_not_depend_on_how_strings_hash_or_on_torch() -> None:
    assert saved("1") == saved("2", WITHOUT_TORCH)
