"""What every package that cofuse needs takes, disk space and time to import, and what it is for.

    python -m benchmarks.dependencies

Megabytes are those of the installed files, bytecode included, of a package and of what comes for it
alone. Milliseconds are the least CPU time of five fresh processes less that of one that imports
nothing; what several packages import, such as NumPy, counts for each.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata

from benchmarks.measuring import ROOT, markdown_table

#: Modules to import, where these are not named as their packages are.
_MODULES = {"opencv-python-headless": "cv2", "pillow": "PIL.Image"}
_CPU = "import time{}; print(time.process_time())"


def needed(package: str) -> list[str]:
    """Names of the packages that one asks for without extras."""
    asked = [line for line in metadata.requires(package) or () if "extra ==" not in line]
    names = (re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for line in asked)
    return [name for name in names if installed(name)]


def installed(package: str) -> bool:
    """Whether a package is there: some are for other systems alone."""
    return any(metadata.distributions(name=package))


def closure(packages: Iterable[str]) -> set[str]:
    """Packages and all that they need."""
    found, new = set[str](), set(packages)
    while new:
        found |= new
        new = {name for package in new for name in needed(package)} - found
    return found


def megabytes(packages: Iterable[str]) -> float:
    """Size of the installed files."""
    files = (file for package in packages for file in metadata.files(package) or ())
    paths = {file.locate() for file in files}
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def cpu_seconds(module: str = "") -> float:
    """CPU time of a process that imports a module."""
    command = [sys.executable, "-c", _CPU.format(f", {module}" if module else "")]
    runs = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(5))
    return min(float(run.stdout) for run in runs)


def purposes() -> dict[str, str]:
    """What packages are for, in short, from the table of the architecture."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8").partition("| package | for |")[2]
    rows = re.findall(r"^\| ([\w, -]+) \| ([^|;:]+)", text, re.MULTILINE)
    return {name: purpose.strip() for names, purpose in rows for name in names.split(", ")}


def main() -> None:
    direct, nothing, purpose = needed("cofuse"), cpu_seconds(), purposes()
    rows = []
    for package in direct:
        with_it = closure([package]) - closure(other for other in direct if other != package)
        took = 1000 * (cpu_seconds(_MODULES.get(package, package)) - nothing)
        name = ", ".join([package, *sorted(with_it - {package})])
        size = megabytes(with_it | {package})
        rows.append([name, f"{size:.1f}", f"{took:.0f}", purpose[package]])
    rows.append(["all packages", f"{megabytes(closure(direct)):.1f}", "", ""])
    head, line, *others = markdown_table(["package", "MB", "ms", "for"], rows).splitlines()
    print("\n".join([head, line.removesuffix("---:|") + "---|", *others]))


if __name__ == "__main__":
    main()
