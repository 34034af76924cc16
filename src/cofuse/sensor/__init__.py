"""The noise of a stack, from the frames alone."""

from cofuse.sensor.estimation import estimate_noise, noise_level
from cofuse.sensor.law import NoiseLaw, NoiseModel

__all__ = ["NoiseLaw", "NoiseModel", "estimate_noise", "noise_level"]
