"""Sheets of the hardest places of a stack: what every method made of them, side by side.

Places are looked for where `auto` lost most, where it has most steps that no frame has, where the
methods disagree most, and in a background that no frame has in focus but that the frames show
differently: there patches and seams stand out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.images import luminance
from experiments.realness import Frames, Judgement, energy

Picture = NDArray[Any]
Map = NDArray[np.float32]

#: Side of a tile, height of a line of text and distance of tiles, in pixels of the sheet.
_TILE, _LINE, _GAP = 320, 22, 6
#: A background counts where no frame has more energy than this quantile of the best frame's.
_BLURRED = 0.3
#: Tiles that span fewer grey levels than the first are stretched to the second, as if they spanned
#: the third at least.
_FAINT, _SHOWN, _LEAST_SPAN = 120.0, 200.0, 60.0
_BOX = (255, 60, 60)
_NOTHING_BEYOND = cv2.BORDER_CONSTANT


@dataclass(frozen=True)
class Place:
    """A square of the picture, and why it is looked at."""

    top: int
    left: int
    side: int
    why: str

    def cut(self, picture: Picture) -> Picture:
        """Cut the place out of a picture or map."""
        return picture[self.top : self.top + self.side, self.left : self.left + self.side]


def hardest_places(
    results: dict[str, Picture], frames: Sequence[Picture], known: Frames
) -> list[Place]:
    """Find places of every kind, the hardest first, none twice."""
    ours = next(iter(results))
    judged = known.judge(results[ours])
    side = _TILE // _zoom(results[ours])
    wanted = (
        (f"{ours} loses", 2, judged.lost * np.sqrt(np.maximum(known.best, 0.0))),
        (f"{ours} has phantoms", 2, _padded(judged.phantom)),
        ("methods disagree", 2, _disagreement(list(results.values()))),
        ("blurred background", 2, _restless_background(frames, known)),
    )
    places: list[Place] = []
    free = np.ones(known.best.shape, np.float32)
    for why, count, score in wanted:
        means = cv2.blur(np.asarray(score, np.float32), (side, side), borderType=_NOTHING_BEYOND)
        least = 0.1 * float((means * free).max())
        for _ in range(count):
            means *= free
            row, column = (int(at) for at in np.unravel_index(int(means.argmax()), means.shape))
            if means[row, column] <= least:
                break
            top, left = (
                int(np.clip(at - side // 2, 0, max(0, length - side)))
                for at, length in zip((row, column), means.shape, strict=True)
            )
            places.append(Place(top, left, side, why))
            # The middle of another place lies beyond this one: they overlap by half at most.
            free[max(0, row - side * 3 // 4) :, max(0, column - side * 3 // 4) :][
                : side * 3 // 2, : side * 3 // 2
            ] = 0.0
    return places


def sheet(
    title: str,
    results: dict[str, Picture],
    frames: Sequence[Picture],
    known: Frames,
    places: Sequence[Place],
) -> Picture:
    """Draw the whole picture with the places marked, then a row of tiles for each of them."""
    judged = {name: known.judge(picture) for name, picture in results.items()}
    first = next(iter(results.values()))
    zoom = _zoom(first)
    width = (len(results) + 1) * (_TILE + _GAP)
    words = [f"{title}: crops at {100 * zoom} %", "", "of the whole picture:"]
    for name in results:
        lost, phantom = judged[name].shares
        words.append(f"{name}: lost {100 * lost:.1f} %, phantom {100 * phantom:.2f} %")
    rows = [_overview(first, places, words, width)]
    for number, place in enumerate(places, 1):
        cuts = [place.cut(frame) for frame in frames]
        best = max(range(len(cuts)), key=lambda k: float(energy(cuts[k]).mean()))
        tiles = {
            f"{name}{_faults(judged[name], place)}": place.cut(picture)
            for name, picture in results.items()
        }
        tiles[f"frame {best + 1}, sharpest here"] = cuts[best]
        gain, middle = _contrast(list(tiles.values()))
        stretched = f", contrast x {gain:.1f}" if gain > 1 else ""
        row = np.full((_TILE + 2 * _LINE + _GAP, width, 3), 255, np.uint8)
        _write(row, f"{number}. {place.why}{stretched}", (0, 0), weight=2)
        for column, (text, tile) in enumerate(tiles.items()):
            left = column * (_TILE + _GAP)
            _write(row, text, (_LINE, left))
            large = _enlarged(_stretched(tile, gain, middle), zoom)
            row[2 * _LINE :][: large.shape[0], left : left + large.shape[1]] = large
        rows.append(row)
    return np.concatenate(rows, axis=0)


def _faults(judged: Judgement, place: Place) -> str:
    """Say what a tile has lost and what it invents, in percent of the tile."""
    lost, phantom = (100 * float(place.cut(mask).mean()) for mask in (judged.lost, judged.phantom))
    return f": lost {lost:.0f}, phantom {phantom:.1f} %"


def _disagreement(pictures: Sequence[Picture]) -> Map:
    """Spread of the methods' luminance, grain aside."""
    grey = [cv2.GaussianBlur(luminance(p.astype(np.float32)), (0, 0), 1.5) for p in pictures]
    return np.asarray(np.std(grey, axis=0), np.float32)


def _restless_background(frames: Sequence[Picture], known: Frames) -> Map:
    """How much frames differ coarsely where none of them has detail."""
    highest = np.full(known.best.shape, -np.inf, np.float32)
    lowest = -highest
    for frame in frames:
        coarse = cv2.GaussianBlur(luminance(frame.astype(np.float32)), (0, 0), 4.0)
        np.maximum(highest, coarse, out=highest)
        np.minimum(lowest, coarse, out=lowest)
    blurred = known.best <= np.quantile(known.best, _BLURRED)
    return np.asarray((highest - lowest) * blurred, np.float32)


def _padded(mask: NDArray[np.bool_]) -> Map:
    """Give the last row and column, which have no step, none that counts."""
    return np.pad(mask, ((0, 1), (0, 1))).astype(np.float32)


def _zoom(picture: Picture) -> int:
    """Enlarge small pictures, whose faults are small, more."""
    width = max(picture.shape[:2])
    return 3 if width < 700 else 2 if width < 3000 else 1


def _contrast(tiles: Sequence[Picture]) -> tuple[float, NDArray[np.float32]]:
    """How much to stretch the tiles of a row, and about which level of every colour."""
    every = np.concatenate([tile.reshape(-1, *tile.shape[2:]) for tile in tiles])
    low, high = np.quantile(every, (0.02, 0.98), axis=0)
    span = float(np.max(high - low))
    gain = _SHOWN / max(span, _LEAST_SPAN) if span < _FAINT else 1.0
    return gain, np.asarray((low + high) / 2, np.float32)


def _stretched(tile: Picture, gain: float, middle: NDArray[np.float32]) -> Picture:
    levels = middle + gain * (tile.astype(np.float32) - middle)
    return np.clip(np.rint(levels), 0, 255).astype(np.uint8)


def _enlarged(tile: Picture, zoom: int) -> Picture:
    """Enlarge by whole pixels, nothing smoothed, in RGB."""
    tile = tile if tile.ndim == 3 else np.repeat(tile[..., None], 3, axis=2)
    return tile.repeat(zoom, axis=0).repeat(zoom, axis=1)


def _overview(
    picture: Picture, places: Sequence[Place], words: Sequence[str], width: int
) -> Picture:
    """Draw the picture small, the places numbered, and write lines beside it."""
    room = (2 * _TILE, width - 2 * _TILE)
    scale = min(1.0, *(most / side for most, side in zip(room, picture.shape, strict=False)))
    small = cv2.resize(
        _enlarged(picture, 1), None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA
    )
    height, wide = small.shape[:2]
    page = np.full((max(height, _LINE * len(words)) + _GAP, width, 3), 255, np.uint8)
    page[:height, :wide] = small
    for number, place in enumerate(places, 1):
        top, left, side = (round(scale * n) for n in (place.top, place.left, place.side))
        cv2.rectangle(page, (left, top), (left + side, top + side), _BOX, 2)
        page[top : top + _LINE, left : left + _LINE] = 255
        _write(page, str(number), (top, left + 5), weight=2, colour=_BOX)
    for line, text in enumerate(words):
        _write(page, text, (line * _LINE, wide + 2 * _GAP), weight=1 if line else 2)
    return page


def _write(
    page: Picture,
    text: str,
    corner: tuple[int, int],
    *,
    weight: int = 1,
    colour: tuple[int, int, int] = (0, 0, 0),
) -> None:
    place = (corner[1], corner[0] + _LINE - 7)
    cv2.putText(page, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.5, colour, weight, cv2.LINE_AA)
