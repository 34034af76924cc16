"""One *case*: a method on one scene at one noise level, scored and timed, kept as one JSON file.

The file's name is a key of everything the result depends on: the pictures' bytes, the noise, the
method's settings, and the source of what it runs through. Source is compared without comments
and docstrings, so that rewording one costs no hour of computing.
"""

from __future__ import annotations

import ast
import hashlib
import json
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import cofuse
from cofuse import PRESETS, Fusion, Stack, fuse
from cofuse.evaluation.baselines import resolve_method
from cofuse.evaluation.metrics import psnr, q_abf, q_mi, ssim
from experiments.pictures import Scene, noisy, scene, scene_files, to_8_bit

__all__ = [
    "COMMON_ROOMS",
    "LABELS",
    "LETTER_METHODS",
    "OURS",
    "OUR_ROOMS",
    "RIVALS",
    "RIVAL_ROOMS",
    "Case",
    "case_key",
    "code_version",
    "digest",
    "load",
    "rooms_version",
    "solve",
    "write_json",
    "write_whole",
]

#: PSNR of a picture equal to the truth, which has none: JSON knows no infinity.
HIGHEST_PSNR = 100.0

_PACKAGE = Path(cofuse.__file__).parent
#: What scores depend on whatever the method, and what our methods and the rivals run through.
COMMON_ROOMS = ("arguments.py", "errors.py", "progress.py", "images", "operators", "data/samples")
COMMON_ROOMS += ("evaluation/metrics", "evaluation/simulation.py")
OUR_ROOMS = ("alignment", "fusion", "sensor", "data/operators")
RIVAL_ROOMS = ("evaluation/baselines", "data/dictionaries")

#: The letter's comparison: its two rivals, its own method read in two ways, and our `fast`.
RIVALS = ("sf-dct", "sr-ksvd")
OURS = ("paper", "paper-dense", "fast")
LETTER_METHODS = RIVALS + OURS

#: How the methods are called in figures and tables.
LABELS = {
    "sf-dct": "SF-DCT",
    "sr-ksvd": "SR-KSVD (stride 2)",
    "sr-ksvd-dense": "SR-KSVD (stride 1)",
    "paper": "paper (stride n − 1)",
    "paper-dense": "paper (stride 1)",
    "fast": "fast",
    "average": "average",
    "laplacian": "Laplacian pyramid",
    "gff": "GFF",
    "focus-measure": "focus measure",
    "tv+focus-measure": "TV, then focus measure",
}


@dataclass(frozen=True)
class Case:
    """What to compute. `repeat` counts repeated timings; `keep` saves the fused picture too."""

    dataset: str
    item: int
    sigma: float
    method: str
    n: int = 7
    repeat: int = 0
    keep: bool = False


def case_key(case: Case, data: Path | None, version: str | None) -> str:
    """Name a case's file by a hash of all that its result depends on."""
    inputs = [digest(file) for file in scene_files(data, case.dataset, case.item)]
    given = [asdict(case), settings_of(case.method, case.n), inputs, version]
    return _sha(json.dumps(given, sort_keys=True).encode())


def code_version(method: str) -> str:
    """Hash the source, and the learned data, that a method and its scores run through."""
    rooms = COMMON_ROOMS + (OUR_ROOMS if method in OURS else RIVAL_ROOMS)
    return rooms_version(rooms, ("cases", "pictures"))


def rooms_version(rooms: Sequence[str], experiments: Sequence[str] = ()) -> str:
    """Hash the source and data of rooms of the package and of modules of the experiments."""
    found = [path for room in rooms for path in _files_of(_PACKAGE / room)]
    found += [Path(__file__).with_name(f"{name}.py") for name in experiments]
    return _hash_files(tuple((path, path.stat().st_mtime_ns) for path in found))


def load(path: Path, case: Case) -> dict[str, Any] | None:
    """Read a case's record; None where it is missing, torn, failed or without its picture."""
    try:
        record: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    complete = not case.keep or path.with_suffix(".png").exists()
    return record if complete and "error" not in record else None


def solve(case: Case, data: Path | None, path: Path, version: str | None = None) -> dict[str, Any]:
    """Compute a case and write its record; a failure is recorded, not raised.

    Given the version its key was made with, it is a failure that the source has changed since:
    what is loaded may then be neither the one nor the other.
    """
    record: dict[str, Any] = {"case": asdict(case), "settings": settings_of(case.method, case.n)}
    try:
        _check_source(case.method, version)
        record |= _compute(case, data, path)
        _check_source(case.method, version)
    except Exception as error:
        record["error"] = f"{type(error).__name__}: {error}"
        record["traceback"] = traceback.format_exc()
    write_json(path, record)
    return record


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file that is there whole or not at all."""
    write_whole(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a text file that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(text, "utf-8")
    partial.replace(path)


def _check_source(method: str, version: str | None) -> None:
    if version is not None and code_version(method) != version:
        raise RuntimeError("the source was changed during the run; run it again")


def _compute(case: Case, data: Path | None, path: Path) -> dict[str, Any]:
    clean = scene(data, case.dataset, case.item)
    stack = noisy(clean.frames, case.sigma, seed=case.item)
    settings = settings_of(case.method, case.n)
    _warm_up(case.method, case.n, case.sigma > 0)
    wall, cpu = time.perf_counter(), time.process_time()
    fused = run_method(case.method, settings, stack, case.sigma).image
    seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    picture = to_8_bit(fused)
    result = {"scores": _scores(picture, clean, stack), "seconds": seconds}
    if case.keep:
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path.with_suffix(".png")), picture)
        result["picture"] = path.with_suffix(".png").name
    return result


def _scores(picture: Any, clean: Scene, stack: Stack) -> dict[str, float]:
    """Score against noisy sources (as 8 bits), clean sources and, where there is one, the truth."""
    scores = {}
    for reference, frames in (("clean", clean.frames), ("noisy", [to_8_bit(f) for f in stack])):
        scores[f"q_mi_{reference}"] = q_mi(frames, picture)
        scores[f"q_abf_{reference}"] = q_abf(frames, picture)
    if clean.truth is not None:
        scores["psnr"] = min(psnr(picture, clean.truth), HIGHEST_PSNR)
        scores["ssim"] = ssim(picture, clean.truth)
    return scores


def settings_of(method: str, n: int) -> dict[str, Any]:
    """Spell out the settings of a method for patches (or blocks) of n × n pixels."""
    letter = replace(PRESETS["paper"], operator=f"full-{n}")
    match method:
        case "sf-dct":
            return {"block_size": n}
        case "sr-ksvd":
            return {"patch_size": n, "stride": 2}
        case "sr-ksvd-dense":
            return {"patch_size": n, "stride": 1}
        case "paper":
            return asdict(replace(letter, stride=n - 1))
        case "paper-dense":
            return asdict(replace(letter, stride=1))
        case "fast":
            preset = PRESETS["fast"]
            return asdict(preset if n == 7 else replace(preset, operator=f"full-{n}"))
    resolve_method(method)  # refuses an unknown name
    return {}


def run_method(method: str, settings: dict[str, Any], stack: Stack, sigma: float) -> Fusion:
    """Fuse a stack whose noise level is known."""
    if method in OURS:
        preset = replace(PRESETS[method.removesuffix("-dense")], **settings)
        return fuse(stack, sigma=sigma, preset=preset)
    return resolve_method(method.removesuffix("-dense"))(stack, sigma=sigma, **settings)


@cache
def _warm_up(method: str, n: int, noise: bool) -> None:
    """Run a method once on a small picture, so that no compiling or loading is timed."""
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, (48, 48), np.uint8) for _ in range(2)]
    sigma = 15.0 if noise else 0.0
    run_method(method, settings_of(method, n), noisy(frames, sigma, 0), sigma)


def _files_of(room: Path) -> list[Path]:
    """List the source and data files of a room, in a fixed order."""
    files = [room] if room.suffix == ".py" else sorted(room.rglob("*"))
    found = [path for path in files if path.is_file() and "__pycache__" not in path.parts]
    if not found:
        raise FileNotFoundError(f"there is nothing in {room}")
    return found


@cache
def _hash_files(stamped: tuple[tuple[Path, int], ...]) -> str:
    """Hash files; their times of change are there for the cache only."""
    parts = [_source(path) if path.suffix == ".py" else path.read_bytes() for path, _ in stamped]
    return _sha(b"\0".join(parts))


def _source(path: Path) -> bytes:
    """Return a module's code without comments, docstrings and layout."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                body[0] = ast.Pass()
    return ast.dump(tree).encode()


@cache
def digest(path: Path) -> str:
    return _sha(path.read_bytes())


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]
