"""How often frames that do not fit are aligned all the same, and frames that fit are refused.

``python -m benchmarks.alignment_safety [--pairs 24] [--seed 0] [--kinds a,b] [--data DIR]``

Every case is a pair of made grey frames of 300, 520 or 1040 pixels a side. It is *right* where all
corners lie within 2 pixels of the truth, *refused* where `align_stack` says that the second frame
cannot be aligned, and else *wrong*, as is every pair accepted that has no right answer.

Must be accepted (a refusal counts as a failure):

- ``still``: a focus stack that lies right; ``shift 40``, ``shift 120``: moved by up to so many px;
- ``turn``: up to 4 degrees; ``scale``: 0.92 to 1.08; ``exposure``: 0.25 to 3 times, other gamma;
- ``noise``: sigma 20 to 100 in both; ``defocus``: the second blurred by sigma 1 to 8;
- ``focus stack``: layers focused elsewhere, moved by up to 40 px, 2 degrees and 4 %.

Refused or right, both are well:

- ``border``: a black border and a date that stay while the scene moves by 8 to 25 px; ``stop``: the
  round stop of an eyepiece that stays; ``dust``: dark specks that stay;
- ``strong blur``: sigma 8 to 30; ``strong turn``: 5 to 45 degrees; ``strong scale``: 0.6 to 1.6;
- ``half hidden``: half of the second frame shows something else; ``negative``;
- ``periodic``: a pattern that repeats itself, moved by up to two periods.

Has no right answer: ``mirror``, ``no overlap``, ``unrelated``, ``quarter turn``, ``flat``.

With ``--data`` the scenes are photographs of its folder ``photos`` (every second one; the others
were looked at while the check was made, with ``--tuning``) and made ones: text, blobs, bricks, 1/f
noise. Without it they are the package's samples and the made ones.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from cofuse.alignment import align_stack
from cofuse.alignment.transforms import Transform, corners
from cofuse.errors import CofuseError
from cofuse.evaluation.simulation import SAMPLE_NAMES, sample_picture, simulate_stack
from cofuse.images import Stack, luminance

Array = NDArray[Any]
SIDES = (300, 520, 300, 520, 1040)
MARGIN = 132
WRONG = 2.0


class Pair(NamedTuple):
    """Two frames and what takes pixels of the first to the second, None where nothing does."""

    first: Array
    second: Array
    truth: Array | None


def text(rng: Generator, side: int) -> Array:
    """A page of words."""
    page = np.full((side, side), 235, np.uint8)
    for y in range(14, side, 18):
        words = "  ".join(
            "".join(chr(97 + int(k)) for k in rng.integers(0, 26, rng.integers(2, 9)))
            for _ in range(side // 20)
        )
        cv2.putText(page, words, (int(rng.integers(-20, 4)), y), 0, 0.42, 30, 1, cv2.LINE_AA)
    return page.astype(np.float32)


def blobs(rng: Generator, side: int) -> Array:
    """Bright specks of many sizes on a dark ground, as under a microscope."""
    ground = np.full((side, side), 30, np.uint8)
    for _ in range(side * side // 900):
        x, y = (int(k) for k in rng.integers(0, side, 2))
        radius = int(rng.integers(1, 9))
        cv2.circle(ground, (x, y), radius, float(rng.uniform(60, 250)), -1, cv2.LINE_AA)
    return cv2.GaussianBlur(ground.astype(np.float32), (0, 0), 1.0)


def bricks(rng: Generator, side: int) -> Array:
    """A wall: nearly periodic, but every brick has its own grey and grain."""
    wall = np.full((side, side), 190.0, np.float32)
    for row, y in enumerate(range(0, side, 24)):
        for x in range(-30 * (row % 2), side, 60):
            grey = float(rng.uniform(70, 130))
            cv2.rectangle(wall, (x + 2, y + 2), (x + 57, y + 21), grey, -1)
    grain = cv2.GaussianBlur(rng.normal(0, 40, (side, side)).astype(np.float32), (0, 0), 1.5)
    return wall + grain


def cloud(rng: Generator, side: int) -> Array:
    """Noise of 1/f amplitude: something at every size."""
    rows, columns = np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)
    spectrum = np.fft.rfft2(rng.normal(size=(side, side)))
    spectrum /= np.maximum(np.hypot(rows, columns), 1 / side)
    picture = np.fft.irfft2(spectrum, (side, side))
    return np.asarray(128 + 45 * picture / picture.std(), np.float32)


MADE = (text, blobs, bricks, cloud)


class Scenes:
    """Sharp pictures of any size: four of five taken, one of five made."""

    def __init__(self, data: Path | None, *, tuning: bool) -> None:
        self.pictures = [luminance(sample_picture(n).astype(np.float32)) for n in SAMPLE_NAMES]
        if data is not None:
            paths = sorted((data / "photos").glob("*.jpg"))[0 if tuning else 1 :: 2]
            photos = (cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) for path in paths)
            self.pictures = [np.asarray(photo, np.float32) for photo in photos]

    def draw(self, rng: Generator, side: int) -> Array:
        """Draw a square scene."""
        if rng.random() < 0.2:
            return MADE[rng.integers(len(MADE))](rng, side)
        picture = self.pictures[rng.integers(len(self.pictures))]
        short = min(picture.shape)
        y, x = ((n - short) // 2 for n in picture.shape)
        square = picture[y : y + short, x : x + short]
        method = cv2.INTER_CUBIC if side > short else cv2.INTER_AREA
        return np.asarray(cv2.resize(square, (side, side), interpolation=method))


def matrix(side: int, x: float = 0.0, y: float = 0.0, degrees: float = 0.0, scale: float = 1.0):
    """Reference to frame: turned and scaled about the centre, then shifted."""
    centre = (side - 1) / 2
    found = np.vstack([cv2.getRotationMatrix2D((centre, centre), degrees, scale), [0, 0, 1.0]])
    found[:2, 2] += (x, y)
    return found


def seen(scene: Array, truth: Array, side: int) -> Array:
    """The frame that has at T(x) what the scene, larger by MARGIN, has at x + MARGIN."""
    to_scene = np.linalg.inv(truth)
    to_scene[:2, 2] += MARGIN
    flags, border = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP, cv2.BORDER_REFLECT_101
    return cv2.warpAffine(scene, to_scene[:2], (side, side), flags=flags, borderMode=border)


def far(rng: Generator, least: float, most: float) -> tuple[float, float]:
    """A shift of some length in any direction."""
    length, angle = rng.uniform(least, most), rng.uniform(0, 2 * np.pi)
    return float(length * np.cos(angle)), float(length * np.sin(angle))


def _moved(scenes: Scenes, rng: Generator, side: int, truth: Array) -> Pair:
    scene = scenes.draw(rng, side + 2 * MARGIN)
    return Pair(seen(scene, np.eye(3), side), seen(scene, truth, side), truth)


def still(scenes: Scenes, rng: Generator, side: int) -> Pair:
    scene = scenes.draw(rng, side)
    seed, radius = int(rng.integers(1 << 30)), float(rng.uniform(1, 6))
    frames = simulate_stack(scene / 255, frames=2, max_radius=radius, snap=False, seed=seed).frames
    sigma = rng.choice([0, 2, 10])
    first, second = (255 * f + rng.normal(0, sigma, f.shape) for f in frames)
    return Pair(first, second, np.eye(3))


def focus_stack(scenes: Scenes, rng: Generator, side: int) -> Pair:
    scene = scenes.draw(rng, side + 2 * MARGIN)
    seed = int(rng.integers(1 << 30))
    frames = simulate_stack(scene / 255, frames=2, max_radius=6, snap=False, seed=seed).frames
    angle, scale = rng.uniform(-2, 2), rng.uniform(0.96, 1.04)
    truth = matrix(side, *rng.uniform(-40, 40, 2), angle, scale)
    sigma = rng.choice([0, 5, 15])
    first, second = (
        seen(np.asarray(255 * f, np.float32), t, side) + rng.normal(0, sigma, (side, side))
        for f, t in zip(frames, (np.eye(3), truth), strict=True)
    )
    return Pair(first, second, truth)


def shift_40(scenes: Scenes, rng: Generator, side: int) -> Pair:
    return _moved(scenes, rng, side, matrix(side, *far(rng, 0, 40)))


def shift_120(scenes: Scenes, rng: Generator, side: int) -> Pair:
    return _moved(scenes, rng, side, matrix(side, *far(rng, 40, 120)))


def turn(scenes: Scenes, rng: Generator, side: int) -> Pair:
    return _moved(scenes, rng, side, matrix(side, *far(rng, 0, 20), rng.uniform(-4, 4)))


def scale(scenes: Scenes, rng: Generator, side: int) -> Pair:
    return _moved(scenes, rng, side, matrix(side, *far(rng, 0, 20), 0, rng.uniform(0.92, 1.08)))


def exposure(scenes: Scenes, rng: Generator, side: int) -> Pair:
    pair = shift_40(scenes, rng, side)
    gain, gamma = 4 ** rng.uniform(-1, 0.79), rng.uniform(0.7, 1.4)
    return Pair(pair.first, 255 * (np.clip(pair.second, 0, 255) / 255) ** gamma * gain, pair.truth)


def noise(scenes: Scenes, rng: Generator, side: int) -> Pair:
    pair, sigma = shift_40(scenes, rng, side), rng.uniform(20, 100)
    first, second = (f + rng.normal(0, sigma, f.shape) for f in (pair.first, pair.second))
    return Pair(first, second, pair.truth)


def _blurred(pair: Pair, sigma: float) -> Pair:
    return Pair(pair.first, cv2.GaussianBlur(pair.second, (0, 0), sigma), pair.truth)


def defocus(scenes: Scenes, rng: Generator, side: int) -> Pair:
    return _blurred(shift_40(scenes, rng, side), rng.uniform(1, 8))


def strong_blur(scenes: Scenes, rng: Generator, side: int) -> Pair:
    return _blurred(shift_40(scenes, rng, side), rng.uniform(8, 30))


def strong_turn(scenes: Scenes, rng: Generator, side: int) -> Pair:
    angle = rng.uniform(5, 45) * rng.choice([-1, 1])
    return _moved(scenes, rng, side, matrix(side, *far(rng, 0, 20), angle))


def strong_scale(scenes: Scenes, rng: Generator, side: int) -> Pair:
    return _moved(scenes, rng, side, matrix(side, *far(rng, 0, 20), 0, rng.uniform(0.6, 1.6)))


def border(scenes: Scenes, rng: Generator, side: int) -> Pair:
    pair = _moved(scenes, rng, side, matrix(side, *far(rng, 8, 25)))
    wide = int(side * rng.uniform(0.03, 0.12))
    place, date = (side - wide - 150, side - wide - 10), np.zeros((side, side), np.uint8)
    cv2.putText(date, "2026-11-15 12:30", place, 0, 0.5, 255, 1, cv2.LINE_AA)
    inside = np.pad(np.ones((side - 2 * wide, side - 2 * wide)), wide)
    first, second = (np.maximum(f * inside, date) for f in (pair.first, pair.second))
    return Pair(first, second, pair.truth)


def stop(scenes: Scenes, rng: Generator, side: int) -> Pair:
    pair = _moved(scenes, rng, side, matrix(side, *far(rng, 8, 25)))
    middle = side / 2 + rng.uniform(-0.05, 0.05, 2) * side
    rows, columns = np.indices((side, side))
    distance = np.hypot(columns - middle[0], rows - middle[1])
    light = np.clip((side * rng.uniform(0.36, 0.5) - distance) / rng.uniform(1, 6) + 0.5, 0, 1)
    return Pair(pair.first * light, pair.second * light, pair.truth)


def dust(scenes: Scenes, rng: Generator, side: int) -> Pair:
    pair = _moved(scenes, rng, side, matrix(side, *far(rng, 8, 25)))
    light = np.ones((side, side), np.float32)
    for _ in range(int(rng.integers(5, 30))):
        x, y = (int(k) for k in rng.integers(0, side, 2))
        cv2.circle(light, (x, y), int(rng.integers(2, 8)), float(rng.uniform(0.2, 0.8)), -1)
    light = cv2.GaussianBlur(light, (0, 0), 1.5)
    return Pair(pair.first * light, pair.second * light, pair.truth)


def half_hidden(scenes: Scenes, rng: Generator, side: int) -> Pair:
    pair = shift_40(scenes, rng, side)
    other = scenes.draw(rng, side) if rng.random() < 0.5 else np.float32(rng.uniform(0, 255))
    rows, columns = np.indices((side, side)) - (side - 1) / 2
    angle = rng.uniform(0, 2 * np.pi)
    hidden = np.cos(angle) * columns + np.sin(angle) * rows > 0
    return Pair(pair.first, np.where(hidden, other, pair.second), pair.truth)


def negative(scenes: Scenes, rng: Generator, side: int) -> Pair:
    pair = shift_40(scenes, rng, side)
    return Pair(pair.first, 255 - pair.second, pair.truth)


def periodic(scenes: Scenes, rng: Generator, side: int) -> Pair:
    period, angle = float(rng.uniform(8, 40)), rng.uniform(0, np.pi / 2)
    form = int(rng.integers(3))
    ends = far(rng, 0, 2 * period)

    def pattern(x: float, y: float) -> Array:
        rows, columns = np.indices((side, side), np.float32)
        u = ((columns - x) * np.cos(angle) + (rows - y) * np.sin(angle)) * 2 * np.pi / period
        v = (-(columns - x) * np.sin(angle) + (rows - y) * np.cos(angle)) * 2 * np.pi / period
        waves = (np.sin(u) + np.sin(v), np.sin(u) * np.sin(v), np.tanh(4 * np.sin(u + np.sin(v))))
        return np.asarray(128 + 55 * waves[form], np.float32)

    sigma = rng.choice([0, 3])
    first, second = (pattern(*at) + rng.normal(0, sigma, (side, side)) for at in ((0.0, 0.0), ends))
    return Pair(first, second, matrix(side, *ends))


def mirror(scenes: Scenes, rng: Generator, side: int) -> Pair:
    scene = scenes.draw(rng, side)
    return Pair(scene, scene[:, ::-1] if rng.random() < 0.5 else scene[::-1], None)


def no_overlap(scenes: Scenes, rng: Generator, side: int) -> Pair:
    scene = scenes.draw(rng, 2 * side)
    return Pair(scene[:side, :side], scene[side:, side:], None)


def unrelated(scenes: Scenes, rng: Generator, side: int) -> Pair:
    first, second = scenes.draw(rng, side), scenes.draw(rng, side)
    while np.array_equal(first, second):
        second = scenes.draw(rng, side)
    return Pair(first, second, None)


def quarter_turn(scenes: Scenes, rng: Generator, side: int) -> Pair:
    scene = scenes.draw(rng, side)
    return Pair(scene, np.rot90(scene, int(rng.choice([1, 3]))), None)


def flat(scenes: Scenes, rng: Generator, side: int) -> Pair:
    sigma = rng.choice([0, 2, 30])
    blank = rng.uniform(0, 255) + rng.normal(0, sigma, (side, side))
    return Pair(scenes.draw(rng, side), blank, None)


#: Those that must be accepted, and all others.
GOOD = (
    still, shift_40, shift_120, turn, scale, exposure, noise, defocus, focus_stack,
)  # fmt: skip
HARD = (
    border, stop, dust, strong_blur, strong_turn, strong_scale, half_hidden, negative, periodic,
    mirror, no_overlap, unrelated, quarter_turn, flat,
)  # fmt: skip
KINDS = {make.__name__.replace("_", " "): make for make in (*GOOD, *HARD)}


def pair_of(kind: str, number: int, seed: int, scenes: Scenes) -> Pair:
    """Make one pair; the same for the same arguments."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind), number])
    pair = KINDS[kind](scenes, rng, SIDES[number % len(SIDES)])
    frames = (np.clip(np.rint(f), 0, 255).astype(np.uint8) for f in (pair.first, pair.second))
    return Pair(*frames, pair.truth)


def error_of(pair: Pair) -> float | None:
    """Error of the worst corner in pixels, infinite where nothing is right; None if refused."""
    stack = Stack.from_arrays([pair.first, pair.second])
    try:
        found = align_stack(stack, reference=0, match_exposure=False).transforms[1]
    except CofuseError:
        return None
    if pair.truth is None or found is None:
        return np.inf
    at = corners(pair.first.shape)
    return float(np.hypot(*(found(at) - Transform(pair.truth)(at)).T).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=24, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tuning", action="store_true", help="take the other half of the photos")
    options = parser.parse_args()
    scenes = Scenes(options.data, tuning=options.tuning)
    total = np.zeros(5, int)
    start = time.process_time()
    print("| kind | pairs | right | refused | wrong and accepted | good and refused |")
    print("|---|---|---|---|---|---|")
    for kind in options.kinds.split(","):
        errors = [error_of(pair_of(kind, k, options.seed, scenes)) for k in range(options.pairs)]
        refused = errors.count(None)
        wrong = [e for e in errors if e is not None and e > WRONG]
        lost = refused if KINDS[kind] in GOOD else 0
        row = (len(errors), len(errors) - refused - len(wrong), refused, len(wrong), lost)
        total += row
        print(f"| {kind} | " + " | ".join(str(n) for n in row) + " |", flush=True)
    print("| all | " + " | ".join(str(n) for n in total) + " |")
    spent = (time.process_time() - start) / max(total[0], 1)
    print(f"{spent:.2f} CPU s a pair, making it included")


if __name__ == "__main__":
    main()
