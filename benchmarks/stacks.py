"""Focus stacks for timing: any size, made quickly and in little memory, with their truth.

A slanted ground of natural texture (every octave of frequency has about the same contrast, and
hard edges go through it) with objects standing in front of it at several depths. What is not in the
plane of focus is blurred by a disc that grows with the distance from it; the outlines of defocused
objects spread over the ground. The ground runs through all planes of focus, so every frame is the
sharpest one somewhere. The same seed gives the same files.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import tifffile
from numpy.typing import NDArray

from cofuse.evaluation.simulation import disc_kernel, wavy_disc

#: Pixels around the frames that the scene has more, so that a moved frame invents no border.
_MARGIN = 48
#: Blur that does not show, in pixels: so much is left half way between two planes of focus.
_UNSEEN = 0.4
#: Rows of the ground that are blurred at a time.
_BAND = 384

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class StackRecipe:
    """All that decides a stack.

    Attributes
    ----------
    megapixels, frames
        Size of one frame, and how many.
    shape
        Rows and columns, where they matter more than megapixels (3:2).
    grey, sigma, moved
        Whether frames are grey; noise in grey levels; whether frames are shifted and scaled
        against the middle one as by focus breathing.
    radius
        Radius in pixels of the blur of the far end when the near end is in focus, but for the
        depth of field: every place is as good as in focus in one frame, however few there are.
    """

    megapixels: float
    frames: int
    shape: tuple[int, int] | None = None
    grey: bool = False
    sigma: float = 0.0
    moved: bool = False
    radius: float = 8.0
    seed: int = 0

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of a frame."""
        if self.shape is not None:
            return self.shape
        width = max(64, round(math.sqrt(self.megapixels * 1.5e6)))
        return max(64, round(self.megapixels * 1e6 / width)), width

    def facts(self) -> dict[str, Any]:
        """Describe it for a report."""
        return asdict(self) | {"size": list(self.size)}


@dataclass(frozen=True)
class MadeStack:
    """Where the files lie, and the picture with everything in focus."""

    recipe: StackRecipe
    frames: list[Path]
    truth: Path


@dataclass(frozen=True)
class _Thing:
    """An object in front: its place, its depth, its colours times coverage, and its coverage."""

    top: int
    left: int
    depth: float
    paint: Floats
    cover: Floats


def make_stack(recipe: StackRecipe, folder: Path) -> MadeStack:
    """Write a stack's frames and its truth to an empty folder."""
    scene_seed, *frame_seeds = np.random.SeedSequence(recipe.seed).spawn(1 + recipe.frames)
    rng = np.random.default_rng(scene_seed)
    height, width = (side + 2 * _MARGIN for side in recipe.size)
    ground = _ground((height, width), 1 if recipe.grey else 3, rng)
    depth = _ground_depth((height, width))
    things = _things(ground, depth, rng)
    focus = np.linspace(0.0, 1.0, recipe.frames)
    (folder / "frames").mkdir(parents=True)
    scratch = folder / "rendered.npy"
    rendered = np.lib.format.open_memmap(
        scratch, "w+", np.uint8, (recipe.frames, *ground.shape), version=(1, 0)
    )
    for top in range(0, height, _BAND):
        rows = slice(top, min(top + _BAND, height))
        blurred = _blurred_rows(ground, rows, recipe.radius)
        for number, plane in enumerate(focus):
            at = _blur_radius(recipe, depth[rows] - np.float32(plane))
            rendered[number, rows] = _interpolated(blurred, at)
    inner = slice(_MARGIN, -_MARGIN)
    truth = ground.copy()
    _stand(truth, things, [0.0] * len(things))
    made = MadeStack(
        recipe,
        [folder / "frames" / f"frame-{k:03}.tif" for k in range(len(frame_seeds))],
        folder / "truth.tif",
    )
    _write(made.truth, truth[inner, inner])
    for number, (path, seed) in enumerate(zip(made.frames, frame_seeds, strict=True)):
        frame = np.array(rendered[number])
        away = np.array([thing.depth - focus[number] for thing in things], np.float32)
        _stand(frame, things, _blur_radius(recipe, away).tolist())
        frame = _placed(frame, frame_motion(recipe, number), recipe.size)
        _write(path, _noisy(frame, recipe.sigma, seed))
    del rendered
    scratch.unlink()
    return made


def frame_motion(recipe: StackRecipe, number: int) -> NDArray[np.float64]:
    """Where a point (x, y) of the truth lies in a frame, as a 2 × 3 matrix."""
    away = number - recipe.frames // 2
    if not recipe.moved or away == 0:
        return np.eye(2, 3)
    height, width = recipe.size
    steps = max(recipe.frames // 2, 1)
    # Up to 1 % of scale and 12 pixels, but the outermost corner stays within the scene.
    most = min(0.01, 0.5 * _MARGIN / (0.5 * math.hypot(height, width)))
    scale = 1.0 + most * away / steps
    shift = 12.0 * math.sin(1.7 * away) * abs(away) / steps, 9.0 * away / steps
    centre = (width - 1) / 2, (height - 1) / 2
    return np.array(
        [
            [scale, 0.0, shift[0] + (1.0 - scale) * centre[0]],
            [0.0, scale, shift[1] + (1.0 - scale) * centre[1]],
        ]
    )


def _ground(size: tuple[int, int], channels: int, rng: np.random.Generator) -> Bytes:
    """Texture of all scales with edges in it, smooth in some places and rough in others."""

    def field(scale: int) -> Floats:
        """Noise of one octave, of about unit contrast."""
        rows, columns = (-(-side // scale) + 4 for side in size)
        coarse = rng.standard_normal((rows, columns), np.float32)
        grown = cv2.resize(coarse, (columns * scale, rows * scale), interpolation=cv2.INTER_CUBIC)
        return grown[scale : scale + size[0], scale : scale + size[1]]

    longest = max(size)
    rough = 0.55 + 0.45 * np.tanh(2.0 * field(max(longest // 12, 32)))
    light = np.full(size, 112.0, np.float32)
    scale = 2
    while scale <= longest // 4:
        # The finest two octaves are weaker, as behind a lens.
        light += {2: 5.0, 4: 8.0}.get(scale, 10.0) * field(scale) * (rough if scale < 64 else 1.0)
        scale *= 2
    # Edges one pixel wide where a smooth field changes its sign.
    masks = []
    for scale in (24, 80):
        smooth = field(scale)
        masks.append(np.clip(smooth * np.float32(0.8 * scale) + 0.5, 0.0, 1.0))
        light += np.float32(26.0) * (masks[-1] - np.float32(0.5))
    ground = np.empty((*size, channels), np.uint8)
    for channel in range(channels):
        tint = light
        if channels > 1:
            hue = rng.uniform(-14.0, 14.0, len(masks))
            tint = light + 12.0 * field(128)
            for mask, amount in zip(masks, hue, strict=True):
                tint = tint + np.float32(amount) * mask
        ground[..., channel] = np.clip(tint + 0.5, 0, 255)
    return ground


def _ground_depth(size: tuple[int, int]) -> Floats:
    """Far at the top, near at the bottom, a little nearer on the right; level at both ends."""
    down, across = (np.linspace(1.0, 0.0, side - 2 * _MARGIN, dtype=np.float32) for side in size)
    slanted = 1.2 * (0.85 * down[:, None] + 0.15 * across) - 0.1
    return np.pad(slanted.clip(0.0, 1.0), _MARGIN, mode="edge").astype(np.float32)


def _things(ground: Bytes, depth: Floats, rng: np.random.Generator) -> list[_Thing]:
    """Objects with wavy outlines in cells of a grid, each nearer than the ground behind it."""
    height, width = ground.shape[:2]
    things = []
    rows, columns = 3, 4
    for cell in rng.permutation(rows * columns)[: rows * columns // 2]:
        side = int(0.8 * min(height // rows, width // columns))
        row, column = divmod(int(cell), columns)
        top, left = row * (height // rows), column * (width // columns)
        y, x = (np.arange(side, dtype=np.float32) - side / 2 for _ in range(2))
        waves = ((count, 0.12, rng.uniform(0.0, 2 * np.pi)) for count in (2, 3, 5))
        cover = wavy_disc(y, x, 0.32 * side, waves).astype(np.float32)
        # Another part of the ground, turned and with its tones reversed, is what they are made of.
        other = 255.0 - ground[::-1, ::-1][top : top + side, left : left + side].astype(np.float32)
        near = float(depth[top + side // 2, left + side // 2] * rng.uniform(0.2, 0.7))
        things.append(_Thing(top, left, near, other * cover[..., None], cover))
    return things


def _blurred_rows(ground: Bytes, rows: slice, radius: float) -> Bytes:
    """Rows of the ground blurred by 0, 1, 2 … pixels; shape (steps, rows, columns, channels)."""
    reach = math.ceil(radius) + 1
    above, below = max(rows.start - reach, 0), min(rows.stop + reach, len(ground))
    piece = ground[above:below]
    inner = slice(rows.start - above, rows.stop - above)
    out = np.empty((2 + math.ceil(radius), *piece[inner].shape), np.uint8)
    for step in range(len(out)):
        kernel = disc_kernel(step).astype(np.float32)
        blurred = cv2.filter2D(piece, -1, kernel, borderType=cv2.BORDER_REFLECT)
        out[step] = blurred.reshape(piece.shape)[inner]
    return out


def _interpolated(blurred: Bytes, at: Floats) -> Bytes:
    """Take every pixel between the two blurs around its radius ``at``."""
    step = at.astype(np.intp)[None, ..., None]
    part = (at - at.astype(np.intp).astype(np.float32))[..., None]
    a, b = (np.take_along_axis(blurred, s, 0)[0].astype(np.float32) for s in (step, step + 1))
    return (a + part * (b - a) + np.float32(0.5)).astype(np.uint8)


def _blur_radius(recipe: StackRecipe, away: Floats) -> Floats:
    """Radius in pixels of the blur so far away from the plane in focus."""
    half_way = recipe.radius / (2 * max(recipe.frames - 1, 1))
    unseen = np.float32(max(half_way - _UNSEEN, 0.0))
    return np.maximum(np.abs(away) * np.float32(recipe.radius) - unseen, np.float32(0))


def _stand(picture: Bytes, things: list[_Thing], radii: list[float]) -> None:
    """Put the objects, each blurred by its radius, over a picture."""
    for thing, radius in zip(things, radii, strict=True):
        kernel = disc_kernel(radius).astype(np.float32)
        paint = cv2.filter2D(thing.paint, -1, kernel).reshape(thing.paint.shape)
        cover = cv2.filter2D(thing.cover, -1, kernel)[..., None]
        side = len(thing.cover)
        here = slice(thing.top, thing.top + side), slice(thing.left, thing.left + side)
        picture[here] = np.clip(picture[here] * (1.0 - cover) + paint + 0.5, 0, 255)


def _placed(frame: Bytes, motion: NDArray[np.float64], size: tuple[int, int]) -> Bytes:
    """Cut a frame out of the scene, moved."""
    if np.array_equal(motion, np.eye(2, 3)):
        return np.ascontiguousarray(frame[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN])
    inwards = motion.copy()
    inwards[:, 2] -= motion[:, :2] @ np.full(2, float(_MARGIN))
    moved = cv2.warpAffine(frame, inwards, size[::-1], flags=cv2.INTER_CUBIC)
    return np.asarray(moved, np.uint8).reshape(*size, frame.shape[2])


def _noisy(frame: Bytes, sigma: float, seed: np.random.SeedSequence) -> Bytes:
    """Add white noise, some rows at a time."""
    if sigma > 0:
        rng = np.random.default_rng(seed)
        for top in range(0, len(frame), _BAND):
            band = frame[top : top + _BAND]
            noise = rng.standard_normal(band.shape, np.float32) * np.float32(sigma)
            band[:] = np.clip(band + noise + np.float32(0.5), 0, 255)
    return frame


def _write(path: Path, picture: Bytes) -> None:
    picture = picture[..., 0] if picture.shape[2] == 1 else picture
    tifffile.imwrite(path, picture, photometric="minisblack" if picture.ndim == 2 else "rgb")
