"""The real stacks, their aligned frames, and what every method makes of them, kept in files.

Frames are aligned and presets run by the command line at default options, so that what is judged
is what people get: ``cofuse fuse STACK --align-only`` writes frames for the rivals and transforms,
with which a preset then fuses the files themselves. Results are named by the source that made
them: a rerun with another model fuses again by that model alone.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from benchmarks.contenders import ENFUSE
from cofuse import PRESETS, CofuseError, Stack
from cofuse.evaluation.baselines import METHODS
from experiments.realness import energy
from experiments.trials import package_version, rooms_version

Picture = NDArray[Any]

METHOD_NAMES = ("auto", "fast", "enfuse", "laplacian", "sharpest")
#: Folders whose frames have a truth, by which they are scored elsewhere, and what lies beside
#: frames.
_LEFT_OUT = {"misaligned", "pairs", "truth", "rival"}
_SUFFIXES = {".jpg", ".png", ".tif"}


@dataclass(frozen=True)
class RealStack:
    """One stack: its name, its files, and the folder that keeps what is made of it.

    Planes of one file, which a microscope took as they are, lie right and are not aligned.
    """

    name: str
    files: tuple[Path, ...]
    folder: Path
    align: bool = True

    def aligned(self) -> list[Picture]:
        """Read the aligned frames."""
        return [_read(file) for file in self._aligned_files()]

    def fused(self, method: str) -> Picture:
        """Fuse by a method, or read what it made before."""
        result = self._made / f"{method}-{package_version(method)[:8]}.tif"
        if not result.is_file():
            files = self._aligned_files()
            partial = result.with_suffix(".partial.tif")
            if method in PRESETS:
                place = (
                    ("--transforms", self._made / "transforms.json")
                    if self.align
                    else ("--no-align",)
                )
                self._fuse(partial, "--preset", method, *place)
            elif method == "enfuse":
                _run(*ENFUSE.split(), f"--output={partial}", *files)
            else:
                tifffile.imwrite(partial, _RIVALS[method]([_read(file) for file in files]))
            partial.replace(result)
        return _read(result)

    def _aligned_files(self) -> list[Path]:
        if not self.align:
            return list(self.files)
        folder = self._made / "aligned"
        if not folder.is_dir():
            self._fuse(folder, "--align-only", "--save-transforms", self._made / "transforms.json")
        return sorted(folder.glob("*.tif"))

    @property
    def _made(self) -> Path:
        """Folder of all that depends on how the frames were aligned."""
        folder = self.folder / rooms_version(("alignment", "files", "sensor"))[:8]
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _fuse(self, output: Path, *options: object) -> None:
        command = (sys.executable, "-m", "cofuse", "fuse", *self.files, "-o", output, *options)
        _run(*command, "--overwrite", "--quiet")


def real_stacks(data: Path, output: Path) -> list[RealStack]:
    """Find the stacks below ``real`` and ``stacks``."""
    found = []
    for part in (data / "real", data / "stacks"):
        for folder in sorted(path for path in part.rglob("*") if path.is_dir()):
            names = folder.relative_to(part).parts
            files = sorted(f for f in folder.iterdir() if f.suffix.lower() in _SUFFIXES)
            if not files or _LEFT_OUT & set(names):
                continue
            name = "/".join(names)
            if len(files) > 1:
                found.append(RealStack(name, tuple(files), output / name))
            else:
                found += _channels(name, files[0], output)
    return found


def grey_levels(frames: list[Picture]) -> Callable[[Picture], Picture]:
    """Bring pictures of a stack to 8 bits: as they are, or stretched over what its frames hold."""
    if frames[0].dtype == np.uint8:
        return lambda picture: picture
    # A thousandth at either end may be hot pixels.
    low, high = np.quantile(frames, (0.001, 0.999))

    def stretched(picture: Picture) -> Picture:
        levels = (picture.astype(np.float32) - low) * (255.0 / (high - low))
        return np.clip(np.rint(levels), 0, 255).astype(np.uint8)

    return stretched


def _channels(name: str, file: Path, output: Path) -> list[RealStack]:
    """Write the planes of a file of several channels out: a channel is a stack."""
    with tifffile.TiffFile(file) as opened:
        series = opened.series[0]
        if series.axes != "CZYX":
            raise CofuseError(f"{file} has axes {series.axes}; expected CZYX")
        channels = series.asarray()
    stacks = []
    for number, planes in enumerate(channels):
        folder = output / name / str(number)
        (folder / "planes").mkdir(parents=True, exist_ok=True)
        files = tuple(folder / "planes" / f"plane{z:02}.tif" for z in range(len(planes)))
        for path, plane in zip(files, planes, strict=True):
            tifffile.imwrite(path, plane)
        stacks.append(RealStack(f"{name}/{number}", files, folder, align=False))
    return stacks


def _sharpest(frames: list[Picture]) -> Picture:
    """Choose the frame with most detail."""
    levels = grey_levels(frames)
    return max(frames, key=lambda frame: float(energy(levels(frame)).mean()))


_RIVALS: dict[str, Callable[[list[Picture]], Picture]] = {
    # The plain pyramid: the largest coefficient wins, whatever its neighbours are.
    "laplacian": lambda frames: METHODS["laplacian"](Stack.from_arrays(frames), window=1).image,
    "sharpest": _sharpest,
}


def _read(file: Path) -> Picture:
    """Read a picture without the coverage that enfuse writes."""
    picture = np.asarray(tifffile.imread(file, key=0))
    if picture.ndim == 2:
        return picture
    return picture[..., :3] if picture.shape[2] > 2 else picture[..., 0]


def _run(*command: object) -> None:
    """Run a program; what it says is told only if it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise CofuseError(f"{Path(str(command[0])).name} failed and said: {said[-1]}")
