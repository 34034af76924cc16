"""The command line, run as tests need it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cofuse.cli import main
from tests.waiting import PATIENCE

#: What is said before the work, whatever it will take.
PLAN = r"cofuse: \d+ frames? of \d+x\d+ (?:grey|RGB) \w+: up to [^,\n]+ of memory\n"


def run(*arguments: object) -> int:
    """Run the command line in this process."""
    return main([str(argument) for argument in arguments])


def command(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the real command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "cofuse", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=cwd,
    )


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder below, with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }
