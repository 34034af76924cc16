"""A whole job: from files of frames to the files asked for.

`Request` says what is asked for; `cofuse.jobs.run.Job` does it (importing it takes longer).
"""

from cofuse.jobs.options import Aligning, Fusing, Maps, Reading, Request, Writing

__all__ = ["Aligning", "Fusing", "Maps", "Reading", "Request", "Writing"]
