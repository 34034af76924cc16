"""Learning analysis operators from pictures."""

from cofuse.learning.alternating import LearnedOperator, LearningSettings, learn_operator
from cofuse.learning.samples import MOST_PATCHES, sample_patches

__all__ = [
    "MOST_PATCHES",
    "LearnedOperator",
    "LearningSettings",
    "learn_operator",
    "sample_patches",
]
