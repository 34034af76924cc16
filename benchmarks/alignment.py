"""How well and how fast frames are aligned, beside OpenCV's ECC and Hugin's align_image_stack.

``python -m benchmarks.alignment [--cases 100] [--rival-cases 20] [--seed 0] [--data DIR]``

Every case is a simulated focus stack of 2 to 4 frames: a sharp picture at twice its size, cut into
layers and objects, each frame focused elsewhere (discs of up to 6 px), then moved by up to 40 px,
2 degrees and 4 % against the middle frame (fifth-order splines; the scene is larger than the
frames, so no border is invented), then noise, then 8 bits. The error of a frame is that of its
worst corner in pixels; one of more than 2 px, or none found, is a failure. With ``--data`` the
pictures are ``natural/test`` of that folder (tuning looked at others only), else the package's.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform

from cofuse.alignment import align_stack
from cofuse.alignment.transforms import Transform, corners
from cofuse.evaluation.simulation import SAMPLE_NAMES, sample_picture, simulate_stack
from cofuse.images import Stack, luminance

SHIFT, DEGREES, SCALE, RADIUS = 40.0, 2.0, 0.04, 6.0
SIGMAS = (0, 15, 25)
FAILURE = 2.0

Array = NDArray[Any]
#: Takes frames and the index of the reference; returns where each frame has the corners of the
#: reference, or None.
Contender = Callable[[list[Array], int], list[Array | None]]


def pictures(data: Path | None) -> list[Array]:
    """Sharp grey pictures."""
    if data is None:
        colour = (sample_picture(name).astype(np.float32) for name in SAMPLE_NAMES)
        return [np.rint(luminance(picture)).astype(np.uint8) for picture in colour]
    paths = sorted((data / "natural" / "test").glob("*.png"))
    return [np.asarray(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)) for path in paths]


def simulate(picture: Array, count: int, seed: int) -> tuple[list[Array], list[Array]]:
    """Return the frames as floats and the true matrices, reference to frame."""
    rng = np.random.default_rng(seed)
    scene = cv2.resize(picture / np.float32(255), None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC)
    focused = simulate_stack(scene, frames=count, max_radius=RADIUS, snap=False, seed=seed).frames
    half = np.hypot(*scene.shape) / 2
    margin = int(np.ceil(SHIFT + half * (np.deg2rad(DEGREES) + SCALE) + 4))
    height, width = (side - 2 * margin for side in scene.shape)
    centre = np.array([width - 1, height - 1]) / 2
    frames, truth = [], []
    for index in range(count):
        matrix = np.eye(3)
        if index != count // 2:
            angle = np.deg2rad(rng.uniform(-DEGREES, DEGREES))
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            matrix[:2, :2] = turn * (1 + rng.uniform(-SCALE, SCALE))
            matrix[:2, 2] = rng.uniform(-SHIFT, SHIFT, 2) + centre - matrix[:2, :2] @ centre
        back = np.linalg.inv(matrix)
        turned, moved = back[1::-1, 1::-1], back[1::-1, 2] + margin
        frame = focused[index]
        frames.append(
            affine_transform(frame, turned, moved, (height, width), order=5, mode="nearest")
        )
        truth.append(matrix)
    return frames, truth


def add_noise(frames: list[Array], sigma: float, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    noisy = (255 * frame + rng.normal(0, sigma, frame.shape) for frame in frames)
    return [np.clip(np.rint(frame), 0, 255).astype(np.uint8) for frame in noisy]


def ours(frames: list[Array], reference: int) -> list[Array | None]:
    found = align_stack(
        Stack.from_arrays(frames), reference=reference, on_failure="leave-out", still=0.0
    )
    return [t and t(corners(frames[0].shape)) for t in found.transforms]


def ecc(frames: list[Array], reference: int) -> list[Array | None]:
    """OpenCV's ECC as its documentation uses it: affine, from the identity, to the reference."""
    found: list[Array | None] = []
    stop = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 200, 1e-6)
    for frame in frames:
        try:
            start, kind = np.eye(2, 3, dtype=np.float32), cv2.MOTION_AFFINE
            matrix = cv2.findTransformECC(frames[reference], frame, start, kind, stop, None, 5)[1]
            found.append(Transform(np.vstack([matrix, [0, 0, 1]]))(corners(frame.shape)))
        except cv2.error:
            found.append(None)
    return found


def hugin(frames: list[Array], reference: int) -> list[Array | None]:
    """align_image_stack for focus stacks (-m) of a long lens (-f 10): shifts, not perspective."""
    shape = frames[0].shape
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for k, frame in enumerate(frames):
            names.append(f"{k}.tif")
            cv2.imwrite(str(Path(folder, names[-1])), frame)
        command = ["align_image_stack", "-m", "-f", "10", "--use-given-order", "-p", "found.pto"]
        try:
            subprocess.run(
                [*command, *names], cwd=folder, capture_output=True, timeout=300, check=True
            )
            points = _trafo(folder, [], reference, corners(shape))
            return [_trafo(folder, ["-r"], k, points) for k in range(len(frames))]
        except (subprocess.SubprocessError, ValueError):
            return [None] * len(frames)


def _trafo(folder: str, options: list[str], index: int, points: Array) -> Array:
    """Take points from a picture to Hugin's panorama, or back."""
    text = "\n".join(f"{x:.6f} {y:.6f}" for x, y in points)
    done = subprocess.run(
        ["pano_trafo", *options, "found.pto", str(index)],
        cwd=folder, input=text + "\n", capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return np.array([line.split()[:2] for line in done.stdout.splitlines()], float).reshape(4, 2)


def cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def run(
    contenders: dict[str, Contender], options: argparse.Namespace
) -> Iterator[tuple[str, int, list[float], float]]:
    """Yield contender, noise level, errors of a case's frames and CPU seconds."""
    sources = pictures(options.data)
    for case in range(options.cases):
        picture = sources[(options.seed * options.cases + case) % len(sources)]
        count, seed = 2 + case % 3, options.seed * 100_000 + case
        clean, truth = simulate(picture, count, seed)
        for sigma in SIGMAS:
            frames = add_noise(clean, sigma, seed)
            for name, align in contenders.items():
                if name != "cofuse" and case >= options.rival_cases:
                    continue
                before = cpu_seconds()
                found = align(frames, count // 2)
                spent = cpu_seconds() - before
                errors = []
                for k in set(range(count)) - {count // 2}:
                    right, there = Transform(truth[k])(corners(frames[0].shape)), found[k]
                    error = np.inf if there is None else np.hypot(*(there - right).T).max()
                    errors.append(float(error))
                    if name == "cofuse" and error > FAILURE:
                        print(f"failed: case {case}, sigma {sigma}, frame {k}: {error:.2f} px")
                yield name, sigma, errors, spent / (count - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--rival-cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    contenders: dict[str, Contender] = {"cofuse": ours, "OpenCV ECC, affine": ecc}
    if shutil.which("align_image_stack") and shutil.which("pano_trafo"):
        contenders["align_image_stack -m -f 10"] = hugin
    else:
        print("align_image_stack is not installed (Debian: hugin-tools) and left out")
    errors: dict[tuple[str, int], list[float]] = {}
    seconds: dict[tuple[str, int], list[float]] = {}
    for name, sigma, found, spent in run(contenders, options):
        errors.setdefault((name, sigma), []).extend(found)
        seconds.setdefault((name, sigma), []).append(spent)
    print("| noise | contender | frames | median px | 95 % px | max px | failures | CPU s/frame |")
    print("|---|---|---|---|---|---|---|---|")
    for sigma in SIGMAS:
        for name in contenders:
            if (name, sigma) not in errors:
                continue
            ranked = np.sort(errors[name, sigma])
            middle, most = (ranked[int(part * (len(ranked) - 1))] for part in (0.5, 0.95))
            print(
                f"| {sigma} | {name} | {len(ranked)} | {middle:.3f} | {most:.3f} "
                f"| {ranked[-1]:.2f} | {int((ranked > FAILURE).sum())} "
                f"| {np.mean(seconds[name, sigma]):.2f} |"
            )


if __name__ == "__main__":
    main()
