"""`Stack`, the frames that go in.

Frames keep their native dtype. All arithmetic happens in *grey levels*: float32 on the 0-255
scale, whatever the depth of the file. `Stack.to_levels` and `Stack.from_levels` are the only two
places where that scale is applied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from cofuse.arguments import check, check_number
from cofuse.errors import CofuseError
from cofuse.images.pixels import (
    Levels,
    Pixels,
    as_array,
    checked,
    describe,
    found_white,
    luminance,
    white_of_type,
)
from cofuse.images.store import FrameStore, Reduced, reduced_copy
from cofuse.images.tiles import done_ahead, processors

#: A float frame whose values pass this is certainly not on the 0-1 scale.
_FLOAT_SCALE_LIMIT = 16.0

#: Thumbnails have about so many pixels along their shorter side, each the mean of a block of at
#: least so many pixels along a side, so that noise hardly counts.
_THUMBNAIL, _BLOCK = 128, 8

#: Two frames are read at a time; more where they are so small that all together take no more.
_READ_AT_A_TIME, _READ_BYTES = 2, 96 << 20

#: Reads rows and columns of a frame; what it returns is not to be written to.
PartReader = Callable[[slice, slice], Pixels]
Result = TypeVar("Result")


class Stack:
    """K pictures of one scene: same shape, same dtype, each read only when asked for.

    Parameters
    ----------
    readers
        One function a frame; each returns the frame as an array of shape (H, W) or (H, W, 3).
        They may be called more than once.
    white
        The value that stands for white (255 grey levels); a 12-bit sensor stored in uint16 has
        ``white=4095``. Default: 255 for uint8, 1.0 for floats. Of uint16 frames it is found: 65535
        where they use the top bit, otherwise the largest value that is more than a stray pixel's.
    names
        One name a frame, for messages and reports.
    concurrent
        Whether several readers may be called at once, each from a thread of its own.
    kind
        Shape and dtype of the frames, where they are known: then none is read yet. Default: those
        of the first frame.
    """

    def __init__(
        self,
        readers: Sequence[Callable[[], Pixels]],
        *,
        white: float | None = None,
        names: Sequence[str] | None = None,
        concurrent: bool = False,
        kind: tuple[tuple[int, ...], np.dtype[Any]] | None = None,
    ) -> None:
        check("readers", readers, "functions", lambda given: all(map(callable, given)))
        check("names", names, "texts", lambda given: given is None or iter(given))
        if not readers:
            raise CofuseError("no frames were given; a stack needs at least one picture")
        self.names = tuple(names or (f"frame {k + 1}" for k in range(len(readers))))
        if len(self.names) != len(readers):
            raise CofuseError(f"{len(readers)} frames but {len(self.names)} names were given")
        self._readers = tuple(readers)
        self._concurrent = concurrent
        self._in_memory = False
        #: What keeps the frames that were read, if anything does, and their places there.
        self._store: FrameStore | None = None
        self._places: tuple[int, ...] = ()
        #: Number of the frame that the others were brought into place of, if they were.
        self.reference: int | None = None
        first = checked(self._readers[0](), self.names[0]) if kind is None else None
        if first is not None:
            kind = first.shape, first.dtype
        assert kind is not None
        self.shape, self.dtype = kind
        if white is not None:
            # Of whites far from the values nothing is left in float32.
            check_number("white", white, 1 if self.dtype.kind == "u" else 1e-6, 10**9)
        self._floats_to_1 = white is None and self.dtype.kind == "f"
        self._white_is_found = False
        of_type = white_of_type(self.dtype)
        if white is None and (
            self.dtype != np.uint16 or (first is not None and found_white([first]) == of_type)
        ):
            white = of_type
        self._white = None if white is None else float(white)
        if first is not None:
            self._check_scale(first, self.names[0])

    @classmethod
    def from_arrays(
        cls,
        frames: Sequence[ArrayLike],
        *,
        white: float | None = None,
        names: Sequence[str] | None = None,
    ) -> Stack:
        """Make a stack of arrays already in memory; they are checked, viewed, never written to."""
        try:
            arrays = [as_array(frame, f"frame {k + 1}") for k, frame in enumerate(frames)]
        except (TypeError, ValueError) as error:  # nothing to go through; rows of many lengths
            raise CofuseError(f"the frames are no arrays ({error}); expected several") from error
        readers = [partial(np.asarray, array) for array in arrays]
        stack = cls(readers, white=white, names=names, concurrent=True)
        for index in range(1, len(stack)):
            stack[index]  # checked now, not again for every part that is read
        stack._in_memory = True
        return stack

    @classmethod
    def of(cls, frames: Stack | Sequence[ArrayLike], *, white: float | None = None) -> Stack:
        """Take a stack as it is; make one of arrays."""
        return frames if isinstance(frames, Stack) else cls.from_arrays(frames, white=white)

    def made_into(
        self,
        readers: Sequence[Callable[[], Pixels]],
        *,
        names: Sequence[str] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> Stack:
        """Return a stack of frames that are made of these, of their kind and white.

        Parameters
        ----------
        readers
            One function a frame; called together where those of this stack may be.
        names, shape
            Those of the new frames, where they are others.
        """
        assert self.white > 0  # is found now: that of other frames may differ
        made = copy(self)
        made._readers = tuple(readers)
        made._in_memory, made._store, made._floats_to_1 = False, None, False
        made.reference = None
        made.names = self.names if names is None else tuple(names)
        made.shape = self.shape if shape is None else shape
        assert len(made.names) == len(made._readers)
        return made

    @property
    def white(self) -> float:
        """The value that stands for white; to find it may take a look at every frame."""
        if self._white is None:
            with self.ahead(self.__getitem__) as frames:
                self._white = found_white(frames)
            self._white_is_found = self._white < white_of_type(self.dtype)
        return self._white

    @property
    def white_is_found(self) -> bool:
        """Whether white is what the frames show, neither given nor that of their dtype."""
        return bool(self.white) and self._white_is_found

    @property
    def ceiling(self) -> float:
        """The value at which light is cut off: white, or if that was found all the dtype holds."""
        return white_of_type(self.dtype) if self.white_is_found else self.white

    def only(self, numbers: Sequence[int]) -> Stack:
        """Return a stack of some of these frames, of the same white; what is kept stays so."""
        assert self.white > 0  # is found now: that of fewer frames may differ
        some = copy(self)
        some._readers = tuple(self._readers[number] for number in numbers)
        some.names = tuple(self.names[number] for number in numbers)
        some._places = self._places and tuple(self._places[number] for number in numbers)
        at = {number: place for place, number in enumerate(numbers)}
        some.reference = None if self.reference is None else at.get(self.reference)
        return some

    def __len__(self) -> int:
        return len(self._readers)

    def __getitem__(self, index: int) -> Pixels:
        """Read one frame and check that it fits the others."""
        if self._store is not None:
            return self._store.read(self._places[index])
        if self._in_memory:
            return self._readers[index]()
        name = self.names[index]
        frame = checked(self._readers[index](), name)
        if frame.shape != self.shape or frame.dtype != self.dtype:
            raise CofuseError(
                f"{name} is {describe(frame.shape, frame.dtype)} but {self.names[0]} is "
                f"{describe(self.shape, self.dtype)}; all frames must agree"
            )
        self._check_scale(frame, name)
        return frame

    def _check_scale(self, frame: Pixels, name: str) -> None:
        """Refuse floats that are certainly not on the 0-1 scale they are read on."""
        if self._floats_to_1 and (largest := float(np.abs(frame).max())) > _FLOAT_SCALE_LIMIT:
            raise CofuseError(
                f"{name} holds float values up to {largest:.6g}, but floats are read on a 0-1 "
                "scale; pass the value of white (for example 255)"
            )

    def __iter__(self) -> Iterator[Pixels]:
        return (self[k] for k in range(len(self)))

    @property
    def in_memory(self) -> bool:
        """Whether all frames are arrays in memory."""
        return self._in_memory

    @property
    def at_hand(self) -> bool:
        """Whether all frames are arrays, or `kept`: none will be decoded."""
        return self._in_memory or (self._store is not None and self._store.full)

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        return math.prod(self.shape) * self.dtype.itemsize

    def part_reader(self, index: int) -> PartReader:
        """Open one frame to read parts of it; of `kept` frames nothing but these is read."""
        if self._store is not None:
            return partial(self._store.read, self._places[index])
        frame = self[index]
        return lambda rows, columns: frame[rows, columns]

    def part_levels(self, index: int, where: tuple[slice, slice]) -> Levels:
        """Read rows and columns of a frame in grey levels."""
        return self.to_levels(self.part_reader(index)(*where))

    @contextmanager
    def ahead(
        self,
        work: Callable[[int], Result],
        indices: Sequence[int] | None = None,
        *,
        most: int | None = None,
    ) -> Iterator[Iterator[Result]]:
        """Do what reads and uses frames, by their index, on threads where the readers allow it.

        The results come in order. Two large frames are at work beside the one given last, or
        ``most`` of them.
        """
        wanted = range(len(self)) if indices is None else indices
        if most is None:
            most = max(_READ_AT_A_TIME, _READ_BYTES // max(self.frame_bytes, 1))
        alone = self.at_hand or not self._concurrent or processors() == 1
        workers = 0 if alone else min(processors(), most, len(wanted))
        with done_ahead(work, wanted, workers=workers) as coming:
            yield coming

    def read_once(self) -> Stack:
        """Return a stack that keeps every frame, once it was read, in a temporary file.

        The file goes with the last stack that uses it. Arrays are taken as they are.
        """
        if self._in_memory or self._store is not None:
            return self
        keeping = copy(self)
        keeping._store = FrameStore(self.__getitem__, len(self), self.shape, self.dtype)
        keeping._places = tuple(range(len(self)))
        return keeping

    def kept(self) -> Stack:
        """Return a stack as `read_once` does, with every frame read."""
        keeping = self.read_once()
        if (store := keeping._store) is not None and not store.full:
            # No frame is held longer than it takes to put it away.
            with keeping.ahead(lambda index: store.fetch(keeping._places[index]) is None) as done:
                for _ in done:
                    pass
        return keeping

    @property
    def height(self) -> int:
        """Rows of pixels."""
        return self.shape[0]

    @property
    def width(self) -> int:
        """Columns of pixels."""
        return self.shape[1]

    @property
    def is_colour(self) -> bool:
        """Whether the frames are RGB rather than grey."""
        return len(self.shape) == 3

    def to_levels(self, frame: Pixels) -> Levels:
        """Turn native values into float32 grey levels, white at 255."""
        if self.dtype == np.uint8 and self.white == 255.0:
            return frame.astype(np.float32)
        return (frame * np.float32(255.0 / self.white)).astype(np.float32, copy=False)

    def from_levels(self, levels: Levels) -> Pixels:
        """Turn grey levels back into native values; integers are rounded and clipped."""
        values = levels * np.float32(self.white / 255.0)
        if self.dtype.kind == "u":
            np.clip(np.rint(values, out=values), 0, np.iinfo(self.dtype).max, out=values)
        return values.astype(self.dtype)

    def reduced(self, index: int) -> Reduced:
        """Return a copy of at most two million pixels; of `kept` frames it is at hand."""
        if self._store is not None:
            return self._store.reduced(self._places[index])
        return reduced_copy(self[index])

    def thumbnail(self, index: int) -> Levels:
        """Luminance of a frame in grey levels, made very small; made of its reduced copy."""
        return luminance(self.to_levels(_thumbnail(self.reduced(index).pixels)))

    def luminance(self, index: int) -> Levels:
        """Read one frame as grey levels of its luminance, shape (H, W)."""
        return luminance(self.to_levels(self[index]))


def _thumbnail(frame: Pixels) -> Pixels:
    """Means of blocks of a frame; what is left over at two borders counts in the last blocks."""
    import cv2  # takes a while to load

    scale = max(_BLOCK, min(frame.shape[:2]) // _THUMBNAIL)
    rows, columns = (max(1, length // scale) for length in frame.shape[:2])
    return np.asarray(cv2.resize(frame, (columns, rows), interpolation=cv2.INTER_AREA))
