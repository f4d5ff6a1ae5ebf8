"""Why a model predicts what it predicts: what matters overall, and in one recommendation.

Values are changed, and one looks at what the model then says; so any predictor can be asked. Of
``boosted_trees`` LightGBM itself says what each value adds (SHAP).
"""

from tunerd.core.explain.contributions import explain_change
from tunerd.core.explain.importance import explain_overall

__all__ = [
    "explain_change",
    "explain_overall",
]
