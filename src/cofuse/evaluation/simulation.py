"""Focus stacks with known truth: layered scenes, defocused the way a lens does it.

A scene is a pile of flat layers. In a frame each layer's colour, weighted by its coverage (alpha),
and the coverage are blurred by a disc whose radius grows with the distance from the plane in
focus. Laid over each other back to front, defocused outlines spread over their neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cofuse.arguments import check, check_number, check_sigma
from cofuse.errors import CofuseError
from cofuse.files import read_image
from cofuse.images import Pixels, Stack
from cofuse.images.pixels import white_of_type

#: The pictures that come with the package, see data/samples/README.md.
_SAMPLES = Path(__file__).parents[1] / "data" / "samples"
SAMPLE_NAMES = ("astronaut", "chelsea", "coffee", "rocket", "yard")
#: The demo's postcards: picture, depth, centre (part of the width), height in pixels, tilt.
_CARDS = (
    ("rocket", 0.75, 0.40, 106, -3.0),
    ("chelsea", 0.50, 0.80, 126, 4.0),
    ("astronaut", 0.25, 0.19, 164, 2.0),
    ("coffee", 0.00, 0.57, 156, -2.0),
)
_SMALLEST_SIDE = 16
#: Most frames, layers and objects: every layer is blurred for every frame.
_MOST_FRAMES = 100

Floats = NDArray[np.float64]
#: Layers by depth, from back to front: colour times coverage, with the coverage as last channel.
_Pile = dict[float, Floats]


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A simulated focus stack and everything that is known about it.

    Attributes
    ----------
    frames, truth
        The frames, focused from near to far, and the noise-free picture with everything in focus.
    source_map, depth
        For every pixel the index of the frame focused closest to it, and the depth: 0 nearest,
        1 farthest, on a scale (a lens's dioptres) in which blur grows linearly. Shape (H, W).
    focus, sigma
        Depth at which each frame is focused; standard deviation of the noise in grey levels.
    """

    frames: tuple[Pixels, ...]
    truth: Pixels
    source_map: NDArray[np.uint8]
    depth: Floats
    focus: tuple[float, ...]
    sigma: float

    def stack(self) -> Stack:
        """Return the frames as the stack that fusion takes."""
        return Stack.from_arrays(self.frames, white=white_of_type(self.truth.dtype))


def simulate_stack(
    picture: ArrayLike,
    *,
    frames: int = 5,
    layers: int | None = None,
    objects: int = 2,
    max_radius: float = 6.0,
    sigma: float = 0.0,
    foreground: ArrayLike | None = None,
    shape: tuple[int, int] | None = None,
    snap: bool = True,
    seed: int = 0,
    dtype: DTypeLike | None = None,
) -> Simulation:
    """Make a focus stack of a sharp picture, cut at random into layers, with objects in front.

    Parameters
    ----------
    picture
        Sharp grey or RGB picture of uint8, uint16 or float values (floats: white is 1).
    frames, layers, objects
        Number K of frames, focused at even steps from near to far; of background layers (default
        K, at least 3); of objects. Each up to 100.
    max_radius, sigma
        Radius in pixels of the blur of the farthest depth when the nearest is in focus, at most
        half the scene's shorter side; standard deviation of the white noise in 8-bit grey levels,
        whatever the dtype, up to 128.
    foreground, shape
        Picture stretched over the scene to texture the objects (default `picture`, mirrored);
        (height, width) to cut out of the picture at a random place (default all of it).
    snap
        Whether layers lie in the focus plane nearest to them, each sharp in exactly one frame.
    seed, dtype
        The seed decides scene and noise. Only integer types, default the picture's, are clipped.

    Examples
    --------
    >>> import numpy as np, cofuse
    >>> picture = np.random.default_rng(0).integers(0, 255, (48, 64), np.uint8)
    >>> made = cofuse.simulate_stack(picture, frames=4, sigma=5, seed=1)
    >>> len(made.frames), made.truth.shape, made.sigma
    (4, (48, 64), 5.0)
    """
    check_number("frames", frames, 1, _MOST_FRAMES, whole=True)
    layers = max(3, frames) if layers is None else layers
    check_number("layers", layers, 1, _MOST_FRAMES, whole=True)
    check_number("objects", objects, 0, _MOST_FRAMES, whole=True)
    check_number("seed", seed, 0, whole=True)
    scene_seed, noise_seed = SeedSequence(seed).spawn(2)
    rng = np.random.default_rng(scene_seed)
    source = _one(picture, "the picture")
    dtype = source.dtype if dtype is None else dtype
    check("dtype", dtype, "a dtype or None", lambda given: np.dtype(given) is not None)
    check("shape", shape, "height and width", lambda s: s is None or [n % 1 for n in s] == [0, 0])
    size = tuple(shape or source.shape[:2])
    spare = (source.height - size[0], source.width - size[1])
    if min(size) < _SMALLEST_SIDE or min(spare) < 0:
        raise CofuseError(
            f"the scene is {size[1]}x{size[0]} px; expected sides from {_SMALLEST_SIDE} px up to "
            f"those of the picture, {source.width}x{source.height} px"
        )
    check_number("max_radius", max_radius, 0, min(size) / 2, unit="pixels")
    top, left = (int(rng.integers(rows + 1)) for rows in spare)
    scene = _to_floats(source, source.is_colour)[top : top + size[0], left : left + size[1]]
    texture = scene[:, ::-1]
    if foreground is not None:
        given = _one(foreground, "the foreground")
        texture = _resize(_to_floats(given, source.is_colour), size).reshape(scene.shape)
    focus = np.linspace(0.0, 1.0, frames)
    depths = np.linspace(1.0, 0.0, layers + objects)
    depths = focus[_nearest(focus, depths)] if snap else depths
    pile: _Pile = {}
    field = _resize(rng.standard_normal((5, 5)), size)
    # Each background layer goes on behind all nearer ones: nothing dark shows at their borders.
    starts = np.quantile(field, np.arange(layers) / layers)
    for depth, start in zip(depths[:layers], starts, strict=True):
        _add_layer(pile, depth, scene, field >= start)
    for n, depth in enumerate(depths[layers:]):
        _add_layer(pile, depth, texture[::-1] if n % 2 else texture, _random_outline(size, rng))
    return _photograph(pile, focus, max_radius, sigma, noise_seed, dtype)


def disc_kernel(radius: float) -> Floats:
    """Return a disc of sum 1, its rim one pixel soft; up to radius 0.5 it is a single pixel."""
    reach = max(int(np.ceil(radius - 0.5)), 0)
    steps = np.arange(-reach, reach + 1)
    kernel = np.minimum(np.maximum(radius + 0.5 - np.hypot(steps[:, None], steps), 0.0), 1.0)
    return np.asarray(kernel / kernel.sum())


def wavy_disc(y: Pixels, x: Pixels, radius: float, waves: Iterable[tuple[float, ...]]) -> Floats:
    """Return the coverage of a disc about (0, 0), its rim one pixel soft, at rows y, columns x.

    Waves (number around the disc, relative height, phase) bend its outline.
    """
    angle = np.arctan2(y[:, None], x)
    outline = np.full_like(angle, radius)
    for count, height, phase in waves:
        outline *= 1.0 + height * np.cos(count * angle + phase)
    return np.asarray(np.clip(outline - np.hypot(y[:, None], x) + 0.5, 0.0, 1.0))


def sample_picture(name: str = "coffee") -> NDArray[np.uint8]:
    """Load one of the RGB pictures named in `SAMPLE_NAMES`."""
    if name not in SAMPLE_NAMES:
        raise CofuseError(f"no sample picture {name!r}; expected one of {', '.join(SAMPLE_NAMES)}")
    return read_image(_SAMPLES / f"{name}.jpg")


def demo_simulation(*, frames: int = 5, sigma: float = 15.0, seed: int = 0) -> Simulation:
    """Make the demo's RGB stack, postcards standing in a yard; `seed` decides the noise."""
    focus = np.linspace(0.0, 1.0, frames)
    yard = sample_picture("yard").astype(np.float64)
    height, width = yard.shape[:2]
    ground = height - 160  # wall and ground meet in row 160
    # Along level ground the dioptres change evenly from row to row of a picture.
    row_depth = np.minimum((height - np.arange(height)) / ground, 1.0)
    row_plane = np.repeat(_nearest(focus, row_depth)[:, None], width, axis=1)
    pile: _Pile = {}
    for plane in reversed(range(frames)):
        _add_layer(pile, focus[plane], yard, row_plane <= plane)
        for name, depth, across, tall, tilt in _CARDS:
            if _nearest(focus, np.array(depth)) == plane:
                foot = (across * width, height - max(depth * ground, 8.0))
                card = _stand_card(sample_picture(name), (height, width), foot, tall, tilt)
                _add_layer(pile, focus[plane], *card)
    return _photograph(pile, focus, 8.0, sigma, SeedSequence(seed), np.uint8)


def _stand_card(
    picture: Pixels, size: tuple[int, int], foot: tuple[float, float], tall: int, tilt: float
) -> tuple[Floats, Floats]:
    """Print a picture with a white border and stand it, tilted, at `foot` (x, y)."""
    import cv2

    small = _resize(picture, (tall, round(tall * picture.shape[1] / picture.shape[0])))
    card = np.pad(small, ((6, 6), (6, 6), (0, 0)), constant_values=243.0)
    tall, wide = card.shape[:2]
    place = cv2.getRotationMatrix2D((wide / 2, tall / 2), tilt, 1.0)
    place = place + np.array([[0, 0, foot[0] - wide / 2], [0, 0, foot[1] - tall]])
    colour = cv2.warpAffine(card, place, size[::-1], None, cv2.INTER_CUBIC, cv2.BORDER_REPLICATE)
    alpha = cv2.warpAffine(np.ones((tall, wide)), place, size[::-1])
    return np.asarray(colour, np.float64).clip(0.0, 255.0), np.asarray(alpha, np.float64)


def _add_layer(pile: _Pile, depth: float, colour: Floats, alpha: Pixels) -> None:
    """Put a layer in front; at the depth of an earlier one it becomes part of that one."""
    paint = np.concatenate([colour * alpha[..., None], alpha[..., None]], axis=2)
    pile[depth] = _cover(pile[depth], paint) if depth in pile else paint


def _cover(back: Floats, front: Floats) -> Floats:
    """Lay `front` over `back`, both weighted by their coverage."""
    return back * (1.0 - front[..., -1:]) + front


def _photograph(
    pile: _Pile, focus: Floats, radius: float, sigma: float, seed: SeedSequence, dtype: DTypeLike
) -> Simulation:
    """Take one frame at every focus plane."""
    check_sigma(sigma)
    depth = np.zeros(next(iter(pile.values())).shape[:2])
    for layer_depth, paint in pile.items():
        depth[paint[..., -1] >= 0.5] = layer_depth
    sharp = _expose(pile, 0.0, 0.0)
    target = _one(np.zeros(sharp.shape, dtype), "the requested frame")
    frames = []
    for plane, frame_seed in zip(focus, seed.spawn(len(focus)), strict=True):
        noise = np.random.default_rng(frame_seed).normal(0.0, sigma, sharp.shape)
        frames.append(target.from_levels((_expose(pile, plane, radius) + noise).astype(np.float32)))
    truth = target.from_levels(sharp.astype(np.float32))
    chosen = _nearest(focus, depth).astype(np.uint8)
    return Simulation(
        frames=tuple(frames),
        truth=truth,
        source_map=chosen,
        depth=depth,
        focus=tuple(focus.tolist()),
        sigma=float(sigma),
    )


def _expose(pile: _Pile, plane: float, max_radius: float) -> Floats:
    """Blur every layer by its distance from `plane` and lay them over each other."""
    blurred = (_blur(paint, max_radius * abs(depth - plane)) for depth, paint in pile.items())
    view = reduce(_cover, blurred)[..., :-1]
    return view[..., 0] if view.shape[2] == 1 else view


def _blur(paint: Floats, radius: float) -> Floats:
    """Defocus a layer by a disc; the borders of the picture are mirrored."""
    import cv2

    if radius <= 0.5:
        return paint
    blurred = cv2.filter2D(paint, -1, disc_kernel(radius), borderType=cv2.BORDER_REFLECT)
    # Rounding must not leave a trace of a layer where it does not reach, nor shine through it.
    alpha = blurred[..., -1]
    blurred[alpha < 1e-9] = 0.0
    alpha[alpha > 1.0 - 1e-9] = 1.0
    return np.asarray(blurred, np.float64)


def _nearest(focus: Floats, depth: Floats) -> NDArray[np.intp]:
    """Return the index of the focus plane nearest to each depth."""
    return np.asarray(np.abs(depth[..., None] - focus).argmin(axis=-1))


def _random_outline(size: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Return the coverage of an object with a wavy outline at a random place."""
    y, x = (np.arange(side) - rng.uniform(0.15, 0.85) * side for side in size)
    radius = rng.uniform(0.12, 0.34) * min(size)
    waves = ((n, rng.uniform(-0.2, 0.2), rng.uniform(0, 2 * np.pi)) for n in range(2, 7))
    return wavy_disc(y, x, radius, waves)


def _resize(image: Pixels, size: tuple[int, ...]) -> Floats:
    """Stretch to `size`: averaging what gets smaller, cubic what gets larger."""
    import cv2

    method = cv2.INTER_AREA if image.shape[0] > size[0] else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(image, size[::-1], interpolation=method), np.float64)


def _one(picture: ArrayLike, name: str) -> Stack:
    """Make a stack of one picture; its white is that of its dtype, not what it happens to show."""
    white = white_of_type(np.uint16) if np.asarray(picture).dtype == np.uint16 else None
    return Stack.from_arrays([picture], white=white, names=[name])


def _to_floats(source: Stack, colour: bool) -> Floats:
    """Return the one picture of a stack as grey levels, shape (H, W, 3) or (H, W, 1)."""
    levels = np.atleast_3d(source.to_levels(source[0]) if colour else source.luminance(0))
    return np.broadcast_to(levels, (*source.shape[:2], 3 if colour else 1)).astype(np.float64)
