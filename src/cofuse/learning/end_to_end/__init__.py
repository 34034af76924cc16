"""Training the joint model end to end; needs torch, the extra ``gpu``."""

from cofuse.learning.end_to_end.training import Training, TrainingSettings, pick_device, train

__all__ = ["Training", "TrainingSettings", "pick_device", "train"]
