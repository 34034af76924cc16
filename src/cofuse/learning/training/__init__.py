"""Training the networks of `cofuse.model` in the made world; needs torch, the extra ``gpu``."""

from cofuse.learning.training.course import PARTS, Course, CourseSettings, train

__all__ = ["PARTS", "Course", "CourseSettings", "train"]
