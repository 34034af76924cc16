"""Training the networks of `cofuse.model` in the made world; needs torch, the extra ``gpu``."""

from cofuse.learning.training.course import Course, CourseSettings, train

__all__ = ["Course", "CourseSettings", "train"]
