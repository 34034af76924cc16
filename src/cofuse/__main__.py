"""Run the command line as ``python -m cofuse``."""

import sys

from cofuse.cli import main

sys.exit(main())
