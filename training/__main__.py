"""``python -m training``: look for what training needs before anything is loaded, and train."""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec

if __name__ == "__main__":
    for package in ("torch", "onnx"):  # without onnx what was trained could not be written
        if find_spec(package) is None:
            sys.exit(f'training needs {package}; install it with pip install "cofuse[gpu]"')
    # Helpers must not outlive a training that is stopped.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    from training.command import main

    main()
