"""Who is measured: cofuse, and every other program that is found on the machine.

A contender is a list of command lines that turn the frames of a stack into one file. One that is
not there, or that a case is not for, says why, and is listed with that.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from benchmarks.stacks import MadeStack, StackRecipe

ENFUSE = "enfuse --exposure-weight=0 --saturation-weight=0 --contrast-weight=1 --hard-mask"
ENFUSE += " --contrast-window-size=9 --compression=none"
#: The field of view is a guess that the optimiser starts from, the frames having no EXIF.
ALIGN_IMAGE_STACK = "align_image_stack -m -f 10 --use-given-order"
#: Wide enough for BM3D, which takes about 25 s a megapixel and plane.
_MOST_BM3D_MEGAPIXELS = 2.0

#: Denoises every frame and takes each pixel from the frame with the strongest focus measure.
_BM3D_JOB = """
import sys
from cofuse.evaluation.baselines import resolve_method
from cofuse.files import read_stack, write_image
folder, output, sigma = sys.argv[1:]
fusion = resolve_method("bm3d+focus-measure")(read_stack(folder), sigma=float(sigma))
write_image(output, fusion.image, overwrite=True)
"""

#: Makes the command lines of a job: stack, empty working folder, file to write, threads.
Commands = Callable[[MadeStack, Path, Path, int], list[list[str]]]


@dataclass(frozen=True)
class Contender:
    """A program with its options, or the reason why it is not run."""

    name: str
    commands: Commands | None = None
    absent: str = ""


def contenders_for(recipe: StackRecipe, peers_python: str | None = None) -> list[Contender]:
    """List all contenders of a case, cofuse first.

    ``peers_python`` is the Python that has ShineStacker and OpenFocus, if not this one: they want
    other versions of what cofuse needs.
    """
    python = peers_python or sys.executable
    return [
        *_cofuse(recipe),
        _enfuse(recipe),
        _focus_stack(),
        _shinestacker(recipe, python),
        _openfocus(recipe, python),
        *_bm3d(recipe),
    ]


def peer_versions(peers_python: str | None = None) -> dict[str, str]:
    """Versions of the peers that are there."""
    python = peers_python or sys.executable
    found = {name: _package_version(name, python) for name in ("shinestacker", "openfocus")}
    flags = {"enfuse": "--version", "align_image_stack": "--help", "focus-stack": "--version"}
    for program, flag in flags.items():
        numbers = re.search(r"\d+\.\d[\w.]*", _said(program, flag))
        found[program] = numbers[0] if numbers else None
    return {name: version for name, version in found.items() if version}


def _cofuse(recipe: StackRecipe) -> Iterator[Contender]:
    """Presets with the noise told; then with everything as it comes."""
    told = ["--sigma", f"{recipe.sigma:g}", "--hot-pixels", "off"]
    told += [] if recipe.moved else ["--no-align"]
    for preset in ("auto", "fast"):
        yield Contender(f"cofuse {preset}", _cofuse_commands("--preset", preset, *told))
    if recipe.moved or recipe.sigma > 0:
        still = [] if recipe.moved else ["--no-align"]
        yield Contender("cofuse auto, noise estimated, hot pixels mended", _cofuse_commands(*still))


def _cofuse_commands(*arguments: str) -> Commands:
    def commands(stack: MadeStack, _: Path, output: Path, threads: int) -> list[list[str]]:
        command = [sys.executable, "-m", "cofuse", "fuse", str(stack.frames[0].parent)]
        command += ["-o", str(output), "--overwrite", "--quiet", "--device", "cpu"]
        return [[*command, *arguments]]

    return commands


def _enfuse(recipe: StackRecipe) -> Contender:
    name = "align_image_stack, enfuse" if recipe.moved else "enfuse"
    for program in name.split(", "):
        if not shutil.which(program):
            return Contender(name, absent=f"not found ({program})")

    def commands(stack: MadeStack, folder: Path, output: Path, threads: int) -> list[list[str]]:
        frames = [str(path) for path in stack.frames]
        if not recipe.moved:
            return [[*ENFUSE.split(), f"--output={output}", *frames]]
        moved = [str(folder / f"moved_{k:04}.tif") for k in range(len(frames))]
        align = [*ALIGN_IMAGE_STACK.split(), "-a", str(folder / "moved_"), *frames]
        return [align, [*ENFUSE.split(), f"--output={output}", *moved]]

    return Contender(name, commands)


def _focus_stack() -> Contender:
    """PetteriAimonen/focus-stack; versions without --no-align always align."""
    name = "focus-stack"
    program = shutil.which("focus-stack")
    # A Python package of the same name is another program, and a toy.
    if not program or "--consistency" not in (help_text := _said(program, "--help")):
        return Contender(name, absent="not found (C++ program focus-stack)")

    def commands(stack: MadeStack, _: Path, output: Path, threads: int) -> list[list[str]]:
        options = ["--no-opencl", f"--threads={threads}", f"--output={output}"]
        if not stack.recipe.moved:
            options += ["--no-whitebalance", "--no-contrast"]
            options += ["--no-align"] if "--no-align" in help_text else []
        # Its default takes one grey level off every wavelet coefficient.
        options += ["--denoise=0"] if stack.recipe.sigma == 0 else []
        return [[program, *options, *(str(path) for path in stack.frames)]]

    aligns = "--no-align" not in help_text
    return Contender(name + " (always aligns)" * aligns, commands)


def _shinestacker(recipe: StackRecipe, python: str) -> Contender:
    name = "ShineStacker"
    if _package_version("shinestacker", python) is None:
        return Contender(name, absent="not found (Python package shinestacker)")
    if recipe.grey:
        return Contender(name, absent="takes no grey pictures")
    script = str(Path(__file__).with_name("shinestacker_job.py"))

    def commands(stack: MadeStack, folder: Path, output: Path, threads: int) -> list[list[str]]:
        align = "align" if recipe.moved else "still"
        return [[python, script, str(stack.frames[0].parent), str(folder), str(output), align]]

    return Contender(name, commands)


def _openfocus(recipe: StackRecipe, python: str) -> Contender:
    """OpenFocus by its command line, with its default method, a guided filter."""
    name = "OpenFocus"
    if _package_version("openfocus", python) is None:
        return Contender(name, absent="not found (Python package openfocus)")

    def commands(stack: MadeStack, _: Path, output: Path, threads: int) -> list[list[str]]:
        program = [python, "-c", "from core.cli import main; main()"]
        options = ["--method", "guided_filter", "--cpu", "--threads", str(threads)]
        options += ["--align", "ecc" if recipe.moved else "none"]
        return [[*program, "-i", str(stack.frames[0].parent), "-o", str(output), *options]]

    return Contender(name, commands)


def _bm3d(recipe: StackRecipe) -> Iterator[Contender]:
    """BM3D on every frame, then the choice by focus; for noisy stacks of small pictures."""
    name = "BM3D, then focus measure"
    if recipe.sigma == 0 or recipe.moved:
        return
    height, width = recipe.size
    if height * width > _MOST_BM3D_MEGAPIXELS * 1e6:
        yield Contender(name, absent="not run: hours at this size")
        return
    if find_spec("bm3d") is None:
        yield Contender(name, absent="not found (Python package bm3d)")
        return

    def commands(stack: MadeStack, _: Path, output: Path, threads: int) -> list[list[str]]:
        frames = str(stack.frames[0].parent)
        return [[sys.executable, "-c", _BM3D_JOB, frames, str(output), f"{recipe.sigma:g}"]]

    yield Contender(name, commands)


@cache
def _said(*command: str) -> str:
    """What a program says of itself; nothing where it cannot be run."""
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return told.stdout + told.stderr


@cache
def _package_version(package: str, python: str) -> str | None:
    """Version of a package of a Python, or None where it is not there."""
    code = f"from importlib.metadata import version; print('version', version('{package}'))"
    found = re.search(r"^version (\S+)", _said(python, "-c", code), re.MULTILINE)
    return found[1] if found else None
