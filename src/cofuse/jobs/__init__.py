"""Whole jobs: from files of frames to the files asked for.

`Request` says what is asked for; `cofuse.jobs.run.Job` does it, and `cofuse.jobs.run.fuse_files` is
both in one call. To import `cofuse.jobs.run` takes longer.
"""

from cofuse.jobs.options import Aligning, Fusing, Maps, Reading, Request, Writing

__all__ = ["Aligning", "Fusing", "Maps", "Reading", "Request", "Writing"]
