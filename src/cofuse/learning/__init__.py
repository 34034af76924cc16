"""Learning analysis operators from pictures."""

from cofuse.learning.alternating import LearnedOperator, LearningSettings, learn_operator
from cofuse.learning.samples import MOST_PATCHES, normalise_patches, sample_patches
from cofuse.learning.separable import learn_separable_operator

__all__ = [
    "MOST_PATCHES",
    "LearnedOperator",
    "LearningSettings",
    "learn_operator",
    "learn_separable_operator",
    "normalise_patches",
    "sample_patches",
]
