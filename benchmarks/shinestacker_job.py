"""ShineStacker on one stack, by its documented Python interface.

``PYTHON shinestacker_job.py FRAMES FOLDER OUTPUT align|still``; run by `benchmarks.peers`, perhaps
with another Python: nothing of cofuse may be imported here.
"""

import shutil
import sys
from pathlib import Path

if __name__ == "__main__":
    from shinestacker.algorithms import (
        AlignFrames,
        CombinedActions,
        FocusStack,
        PyramidStack,
        StackJob,
    )

    frames, folder, output, align = sys.argv[1:]
    # Actions hand over by subfolders of one folder.
    source = Path(folder) / "source"
    source.symlink_to(Path(frames).resolve(), target_is_directory=True)
    job = StackJob("job", folder, input_path="source")
    if align == "align":
        job.add_action(CombinedActions("aligned", [AlignFrames()]))
    job.add_action(FocusStack("fused", PyramidStack()))
    job.run()
    written = [path for path in (Path(folder) / "fused").iterdir() if path.is_file()]
    shutil.move(written[0], output)
