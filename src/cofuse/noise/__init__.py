"""The noise of a stack, from the frames alone."""

from cofuse.noise.estimation import estimate_noise, noise_level
from cofuse.noise.law import NoiseLaw

__all__ = ["NoiseLaw", "estimate_noise", "noise_level"]
