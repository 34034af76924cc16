"""The weigher of the joint model: scores of every frame at every pixel, and the stages' guides.

Two passes over the frames. The first encodes each on all levels and keeps only the running mean
and maximum of its features; the second encodes again and decodes to scores. Only what the wanted
scores depend on is made: `joint_reach` follows them back through the levels, so a tile's scores are
those of the whole picture, whatever lies around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cofuse.kernels import cpu, joint_loops
from cofuse.kernels.joint_layers import (
    CACHED_ROWS,
    Piece,
    Scratch,
    convolve,
    cut,
    mix,
    pack_analysis,
    pack_detail,
    pack_fours,
    pack_threes,
)
from cofuse.kernels.joint_reach import ANALYSIS_REACH, DETAIL_REACH, Reach, Spans, clip, grow

__all__ = ["Guides", "Weigher"]

Floats = NDArray[np.float32]

#: Features of all frames are kept for the second pass when they take at most this many bytes.
_KEPT_BYTES = 96 << 20


class Guides:
    """What all frames together tell the stages; gathered frame by frame.

    Parameters
    ----------
    weight
        The model's array, (channels, 2 · channels of an answer, 1, 1).
    """

    def __init__(self, weight: Floats) -> None:
        self.weight = weight[..., 0, 0]
        self.pool: tuple[Floats, Floats] | None = None
        self.count = 0

    def add(self, answer: Floats) -> None:
        """Take in a frame's answer at half size."""
        if self.pool is None:
            self.pool = answer.copy(), answer.copy()
        else:
            _add_to_pool(self.pool, answer)
        self.count += 1

    def planes(self, channels: slice, rows: slice, columns: slice) -> Floats:
        """Some channels at half size, four to a guide; rows and columns of what was gathered."""
        assert self.pool is not None, "there is at least one frame"
        total, largest = (np.ascontiguousarray(part[:, rows, columns]) for part in self.pool)
        weight = self.weight[channels]
        out = np.zeros((len(weight), *total.shape[1:]), np.float32)
        mix(total, weight[:, : len(total)] / np.float32(self.count), out)
        return mix(largest, weight[:, len(total) :], out)


class Weigher:
    """The weigher for one piece of a picture.

    Parameters
    ----------
    arrays
        The model's arrays, by their names less the prefix ``weigher.``.
    rows, columns
        What to make of the picture's rows and columns.
    unit
        The stack's noise in grey levels.
    scratch
        Memory to work in, for this piece and the next.
    """

    def __init__(
        self,
        arrays: Mapping[str, Floats],
        rows: Reach,
        columns: Reach,
        unit: float,
        scratch: Scratch,
    ) -> None:
        self.arrays, self.scratch = arrays, scratch
        self.rows, self.columns = rows, columns
        self.log_unit = np.float32(np.log(unit))
        self.levels = len(rows.sizes)
        coarse, fine = (_mean_free(arrays[name]) for name in ("analysis", "detail"))
        self.analysis = [pack_analysis(coarse[:, i]) for i in (0, 1)]
        self.detail = [pack_detail(fine[:, i]) for i in (0, 1)]
        self.count = 0

    def scores(
        self,
        frames: Sequence[Floats],
        relative: Sequence[float],
        out: Floats,
        *,
        guides: Guides | None = None,
    ) -> Iterator[Floats]:
        """Weigh frames, in units of noise on the reach's picture, one after the other.

        Frame k's scores (channels, h, w) are made in ``out[k % len(out)]``. Where the stages
        are to be guided, the answers are gathered on the way.
        """
        self.count = len(frames)
        mean = frames[0].copy()
        for index in range(1, self.count):
            mean += frames[index]
        mean /= np.float32(self.count)
        base, fine_base = self._mean_coefficients(mean)
        keep = 2 * base.nbytes * self.count <= _KEPT_BYTES  # coarser levels add less than half
        kept: list[list[Piece]] = []
        pooled: list[tuple[Floats, Floats]] = []
        for index in range(self.count):
            place = f" of {index}" if keep else ""
            features = self._encode(frames[index], relative[index], base, place)
            if keep:
                kept.append(features)
            for level, piece in enumerate(features):
                inner = _inside(piece, self._spans("totals", level))
                if index == 0:
                    pooled.append(self._new_pool(f"pool {level}", inner))
                else:
                    _add_to_pool(pooled[level], inner)
        shared = [self._shared(level, pool) for level, pool in enumerate(pooled)]
        for index, noise in enumerate(relative):
            features = kept[index] if keep else self._encode(frames[index], noise, base, "")
            answer = self._decode(features, shared)
            if guides is not None:
                guides.add(_inside(answer, (self.rows.guides, self.columns.guides)))
            yield self._place(answer, frames[index], noise, fine_base, out[index % len(out)])

    def _mean_coefficients(self, mean: Floats) -> tuple[Floats, Floats]:
        """The mean frame's part of all coefficients, at half size and at full."""
        base = self._analyse(mean, self.analysis[1], "base")
        signal = self._signal(mean)
        fine_base = self.scratch.take(
            "fine base", 4 * len(self.detail[1]), *(n - 2 * DETAIL_REACH for n in signal.shape)
        )

        def work(start: int, stop: int) -> None:
            fine_base[:, start:stop] = 0
            joint_loops.detail(signal, self.detail[1], start, stop, fine_base)

        cpu._over_bands(work, fine_base.shape[1])
        return base, fine_base

    def _bias(self, name: str, relative: float) -> Floats:
        bias = self.arrays[name]
        shifted = bias[0] + bias[1] * self.log_unit + bias[2] * np.float32(np.log(relative))
        return np.asarray(shifted, np.float32)

    def _analyse(
        self,
        frame: Floats,
        taps: Floats,
        name: str,
        base: Floats | None = None,
        bias: Floats | None = None,
    ) -> Floats:
        """Coefficients at half size, added to ``base``; with a bias compressed and rectified."""
        spans = self._spans("features", 0)
        rows, columns = (grow((2 * a, 2 * b), ANALYSIS_REACH) for a, b in spans)
        take = self.scratch.take
        padded = cut(
            Piece(frame[None], (self.rows.picture, self.columns.picture)),
            (rows, columns),
            take("padded", 1, rows[1] - rows[0], columns[1] - columns[0]),
        )[0]
        halves = [take(f"columns {i}", len(padded), padded.shape[1] // 2) for i in (0, 1)]
        for parity, half in enumerate(halves):
            half[:] = padded[:, parity::2]
        height, width = (b - a for a, b in spans)
        out = take(name, 4 * len(taps), height, width)

        def work(start: int, stop: int) -> None:
            for first in range(start, stop, CACHED_ROWS):
                last = min(first + CACHED_ROWS, stop)
                out[:, first:last] = 0 if base is None else base[:, first:last]
                joint_loops.analyse(*halves, taps, first, last, out)
                if bias is not None:
                    joint_loops.compress(out, bias, first, last)

        cpu._over_bands(work, height)
        return out

    def _signal(self, frame: Floats) -> Floats:
        """What the filters at full size look at."""
        rows, columns = (grow(r.placed, DETAIL_REACH) for r in (self.rows, self.columns))
        out = self.scratch.take("signal", 1, rows[1] - rows[0], columns[1] - columns[0])
        piece = Piece(frame[None], (self.rows.picture, self.columns.picture))
        return np.asarray(cut(piece, (rows, columns), out)[0])

    def _encode(self, frame: Floats, relative: float, base: Floats, place: str) -> list[Piece]:
        """Features on all levels; ``base`` holds the mean frame's coefficients."""
        name, bias = "features {}" + place, self._bias("analysis_bias", relative)
        first = self._analyse(frame, self.analysis[0], name.format(0), base, bias)
        features = [Piece(first, self._spans("features", 0))]
        for level in range(1, self.levels):
            features.append(self._descend(level, features[-1], name.format(level)))
        return features

    def _descend(self, level: int, finer: Piece, name: str) -> Piece:
        """Features of a level from those of the next finer one."""
        wanted = self._spans("features", level)
        rows, columns = (
            clip(grow(span), reach.sizes[level])
            for span, reach in zip(wanted, (self.rows, self.columns), strict=True)
        )
        row, column = 2 * rows[0] - finer.spans[0][0], 2 * columns[0] - finer.spans[1][0]
        shape = len(finer.planes), rows[1] - rows[0], columns[1] - columns[0]
        halved = self.scratch.take("halved", *shape)
        planes = finer.planes
        cpu._over_bands(
            lambda start, stop: joint_loops.pool(planes, row, column, start, stop, halved), shape[1]
        )
        part = f"levels.{level}.descend"
        bias = self.arrays[part + "_bias"][:, None, None]
        return convolve(
            Piece(halved, (rows, columns)),
            wanted,
            self.arrays[part + ".weight"],
            bias,
            ("padded", name),
            self.scratch,
        )

    def _shared(self, level: int, pool: tuple[Floats, Floats]) -> Floats:
        """What all frames together say on a level, with all that is constant added."""
        total, largest = pool
        arrays, name = self.arrays, f"levels.{level}."
        weight = arrays[name + "shared.weight"]
        out = self.scratch.take(f"shared {level}", len(weight), *total.shape[1:])
        bias = arrays[name + "own_bias"] + arrays[name + "noise_bias"] * self.log_unit
        out[:] = bias[:, None, None]
        mix(total, weight[:, : len(total)] / np.float32(self.count), out)
        return mix(largest, weight[:, len(total) :], out)

    def _decode(self, features: list[Piece], shared: list[Floats]) -> Piece:
        """One frame's answer at half size."""
        answer: Piece | None = None
        for level in reversed(range(self.levels)):
            name = f"levels.{level}."
            small: Piece | None = None
            if answer is not None:
                weight = self.arrays[name + "ascend.weight"]
                ascended = self.scratch.take("ascended", len(weight), *answer.planes.shape[1:])
                ascended[:] = 0
                small = Piece(mix(answer.planes, weight, ascended), answer.spans)
            total = convolve(
                features[level],
                self._spans("totals", level),
                self.arrays[name + "own.weight"],
                shared[level],
                ("padded", "total"),
                self.scratch,
                small=small,
            )
            answer = convolve(
                total,
                self._spans("answers", level),
                self.arrays[name + "smooth.weight"],
                self.arrays[name + "smooth_bias"][:, None, None],
                ("padded", "answer"),
                self.scratch,
            )
        assert answer is not None, "there is at least one level"
        return answer

    def _place(
        self, answer: Piece, frame: Floats, relative: float, base: Floats, out: Floats
    ) -> Floats:
        """Scores at full size, from the answer at half size and the frame's own detail."""
        arrays, reach = self.arrays, (self.rows, self.columns)
        risen = convolve(
            answer,
            (self.rows.risen, self.columns.risen),
            arrays["rise.weight"],
            arrays["rise_bias"][:, None, None],
            ("padded", "risen"),
            self.scratch,
        )
        given = (
            risen.planes,
            tuple(r.placed[0] - 2 * r.risen[0] for r in reach),
            self._signal(frame),
            base,
            self.detail[0],
            self._bias("detail_bias", relative),
            pack_threes(arrays["place.weight"]),
            arrays["place_bias"],
            pack_fours(arrays["answer.weight"][..., 0, 0]),
            tuple(r.scores[0] - r.placed[0] for r in reach),
        )
        cpu._over_bands(
            lambda start, stop: joint_loops.place(*given, start, stop, out), len(out[0])
        )
        return out

    def _spans(self, what: str, level: int) -> Spans:
        return getattr(self.rows, what)[level], getattr(self.columns, what)[level]

    def _new_pool(self, name: str, planes: Floats) -> tuple[Floats, Floats]:
        """Begin a running sum and a running maximum."""
        total, largest = (self.scratch.take(f"{name} {i}", *planes.shape) for i in (0, 1))
        total[:], largest[:] = planes, planes
        return total, largest


def _add_to_pool(pool: tuple[Floats, Floats], planes: Floats) -> None:
    np.add(pool[0], planes, out=pool[0])
    np.maximum(pool[1], planes, out=pool[1])


def _inside(piece: Piece, spans: Spans) -> Floats:
    """View of spans within a piece."""
    rows, columns = (
        slice(want[0] - have[0], want[1] - have[0])
        for have, want in zip(piece.spans, spans, strict=True)
    )
    return piece.planes[:, rows, columns]


def _mean_free(filters: Floats) -> Floats:
    return np.asarray(filters - filters.mean((-2, -1), keepdims=True), np.float32)
