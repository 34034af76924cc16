"""Files out: whole or not at all, and pictures never with fewer bits than they had."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cofuse.arguments import check, check_number, check_path
from cofuse.errors import CofuseError
from cofuse.files.encoding import FORMATS, suffix_of
from cofuse.files.metadata import Metadata, outgoing
from cofuse.files.sources import PathLike
from cofuse.files.transaction import clear_leftovers, hidden_name, in_the_way, move, not_written
from cofuse.images import Pixels
from cofuse.images.pixels import white_of_type

#: 8 or 16 bits, or floats from 0 to 1.
BitDepth = Literal[8, 16, "float"]

#: Rows converted at a time: the floats in between take 8 bytes a value.
_ROWS = 256


def write_image(
    path: PathLike,
    image: Pixels,
    *,
    metadata: Metadata | None = None,
    alpha: Pixels | None = None,
    quality: int | None = None,
    depth: BitDepth | None = None,
    white: float | None = None,
    opaque: float | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a picture in the format of its file name.

    ``.png`` takes 8 and 16 bits, ``.tif``, ``.tiff`` and ``.ome.tif`` also floats (all without
    loss); ``.webp``, ``.bmp`` and ``.jpg`` 8 bits only. WebP knows no grey: a grey picture comes
    back as RGB. The file appears under its name only when it is complete. What the format cannot
    hold, and what cannot or may not be written, is a `CofuseError`.

    Parameters
    ----------
    path
        The file to write; its folder must exist.
    image
        Shape (H, W) or (H, W, 3); uint8, uint16, float32 or float64.
    metadata
        That of the reference frame, from `read_metadata`. Profile, EXIF, XMP and resolution are
        written where the format has room for them (in BMP only the resolution); EXIF says upright,
        the picture's own size, this program and the time, and has no thumbnail.
    alpha
        How opaque each pixel is, shape (H, W), same dtype as ``image``; not for JPEG and BMP.
    quality
        From 1 to 100. Default: 95 for JPEG, which keeps full colour resolution; WebP without loss.
    depth
        8, 16 or ``"float"`` to convert the values; by default they are written as they are.
    white
        The value of white when they are converted; by default the largest the dtype can have.
    opaque
        The value of ``alpha`` that hides all when it is converted; by default that of white.
    overwrite
        Whether an existing file may be replaced.
    """
    image = np.asarray(image)
    check_format(path, dtype=image.dtype, depth=depth, alpha=alpha is not None)
    path = Path(path)
    if image.ndim not in (2, 3) or image.shape[2:] not in ((), (3,)) or image.size == 0:
        raise CofuseError(
            f"{path} cannot be written from an array of shape {image.shape}; expected "
            "(height, width) or (height, width, 3)"
        )
    if quality is not None:
        check_number("quality", quality, 1, 100, whole=True)
    if white is not None:
        check("white", white, "a number above 0", lambda given: 0 < given < np.inf)
    check("metadata", metadata, "Metadata", lambda m: m is None or isinstance(m, Metadata))
    if alpha is not None:
        alpha = np.asarray(alpha)
        if alpha.shape != image.shape[:2] or alpha.dtype != image.dtype:
            raise CofuseError(
                f"{path} cannot be written with alpha of shape {alpha.shape} and type "
                f"{alpha.dtype}; expected {image.shape[:2]} and {image.dtype} as the picture has"
            )
    samples = _converted(image, depth, white)
    if metadata is not None:
        height, width = image.shape[:2]
        if samples.dtype != image.dtype.newbyteorder("="):
            metadata = replace(metadata, white=None)  # it was of the values before
        metadata = outgoing(metadata, width=width, height=height, colour=image.ndim == 3)
    if alpha is not None:
        samples = np.dstack([samples, _converted(alpha, depth, opaque or white)])
    with written_whole(path, overwrite=overwrite) as file:
        FORMATS[suffix_of(path)].encode(file, samples, metadata or Metadata(), quality)
    return path


def check_format(
    path: PathLike,
    *,
    dtype: DTypeLike | None = None,
    depth: BitDepth | None = None,
    alpha: bool = False,
) -> None:
    """Refuse a name of no picture format, or of one that does not hold what is to be written.

    ``dtype`` is that of the picture if it is known, ``depth`` what it is to be converted to, and
    ``alpha`` tells whether it has transparency.
    """
    check_path("path", path)
    path = Path(path)
    suffix = suffix_of(path)
    if suffix not in FORMATS:
        what = f"suffix {path.suffix!r}" if path.suffix else "no suffix"
        known = ", ".join(FORMATS)
        raise CofuseError(f"{path} has {what}, which names no picture format; use one of {known}")
    converted = _dtype_at(np.dtype(np.uint8 if dtype is None else dtype), depth).name
    if dtype is not None and converted not in FORMATS[suffix].dtypes:
        others = " or ".join(s for s, f in FORMATS.items() if converted in f.dtypes)
        bits = 16 if suffix == ".png" else 8
        remedy = f"choose {others}, or give up the finer steps with `depth={bits}`"
        if not others:
            remedy = f"expected {', '.join(FORMATS['.tif'].dtypes)}"
        raise CofuseError(f"{path} cannot hold values of type {converted}; {remedy}")
    if alpha and not FORMATS[suffix].alpha:
        remedy = " or ".join(suffix for suffix, f in FORMATS.items() if f.alpha)
        raise CofuseError(f"{path} cannot hold transparency; choose {remedy}, or leave alpha out")


def _dtype_at(dtype: np.dtype[Any], depth: BitDepth | None) -> np.dtype[Any]:
    """Return the dtype that values of ``dtype`` have at a depth."""
    if depth is None or (depth == "float" and dtype.kind == "f"):
        return dtype
    kinds = {8: np.uint8, 16: np.uint16, "float": np.float32}
    if depth not in tuple(kinds):
        raise CofuseError(f"`depth` is {depth!r}; expected 8, 16 or 'float'")
    return np.dtype(kinds[depth])


def _converted(image: Pixels, depth: BitDepth | None, white: float | None) -> Pixels:
    """Bring values to another depth, rounded; ``white`` becomes the white of that depth.

    They come in this machine's byte order, rows one after the other.
    """
    dtype = _dtype_at(image.dtype, depth)
    if dtype == image.dtype:
        return np.ascontiguousarray(image, dtype=dtype.newbyteorder("="))
    white = white_of_type(image.dtype) if white is None else white
    largest = white_of_type(dtype)
    result = np.empty(image.shape, dtype)
    for top in range(0, len(image), _ROWS):
        values = image[top : top + _ROWS] * np.float64(largest / white)
        if dtype.kind == "u":
            if not np.isfinite(values).all():
                raise CofuseError("the picture holds NaN or infinite values; expected numbers")
            np.clip(np.rint(values, out=values), 0, largest, out=values)
        result[top : top + _ROWS] = values
    return result


def index_dtype(frames: int) -> np.dtype[Any]:
    """Return the dtype in which every index has its own grey: 8 bits up to 256 frames, else 16."""
    return np.dtype(np.uint8 if frames <= 256 else np.uint16)


def index_picture(index: NDArray[Any], frames: int) -> NDArray[Any]:
    """Show frame indices as grey, the first frame black and the last white, in `index_dtype`."""
    dtype = index_dtype(frames)
    scale = white_of_type(dtype) / max(frames - 1, 1)
    return np.rint(index.astype(np.float64) * scale).astype(dtype)


def check_destination(path: PathLike, *, overwrite: bool) -> Path:
    """Refuse a file that may not be replaced, and a folder that cannot be written to."""
    path = Path(path)
    folder = path.parent
    try:
        if not folder.is_dir():
            what = "is not a folder" if folder.exists() else "does not exist"
            raise CofuseError(f"{path} cannot be written: {folder} {what}; create the folder first")
        if path.is_dir():
            raise CofuseError(f"{path} is a folder; expected the name of a file to write")
        if path.exists() and not path.is_file():  # renaming over /dev/null would be the end of it
            raise CofuseError(f"{path} is not an ordinary file; choose another name")
        if path.exists() and not overwrite:
            raise in_the_way(path)
    except OSError as error:
        raise CofuseError(f"{path} cannot be written: {error.strerror}; check the path") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CofuseError(f"{path} cannot be written: no permission in {folder}; choose another")
    return path


def check_folder(folder: Path) -> None:
    """Refuse what is no folder, or one that cannot be made; it is made with the files."""
    if folder.is_dir():
        return
    if folder.exists():
        raise CofuseError(f"{folder} is a file; expected a folder for the results")
    above = next(path for path in folder.absolute().parents if path.exists())
    if not above.is_dir():
        raise CofuseError(f"the folder {folder} cannot be made: {above} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise CofuseError(f"the folder {folder} cannot be made: no permission to write in {above}")


@contextmanager
def written_whole(path: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Open a file for writing that becomes ``path`` on success and vanishes on failure.

    The content goes into a temporary file in the same folder, is flushed to the disk, and then
    renamed: a reader sees the old file or the new one, never a part.
    """
    check_destination(path, overwrite=overwrite)
    # A link is written through, not replaced. The name is short: `path` may be of full length.
    target = Path(os.path.realpath(path))
    clear_leftovers(target.parent)
    temporary = target.with_name(f"{hidden_name()}.tmp")
    try:
        # Opened plainly, not by mkstemp, so that the umask decides on the permissions.
        with temporary.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        move(temporary, target, overwrite=overwrite)
    except CofuseError:
        raise
    except (OSError, ValueError, RuntimeError) as error:  # the disk; Pillow; imagecodecs
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise not_written(path, reason) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: PathLike, data: Mapping[str, Any], *, overwrite: bool = False) -> Path:
    """Write a report as UTF-8 JSON, whole or not at all.

    NaN and infinities are refused: JSON does not know them. `plain` makes them None.
    """
    path = Path(path)
    try:
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        content = text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise CofuseError(
            f"{path} cannot be written as JSON ({error}); expected finite numbers, text, lists "
            "and dictionaries"
        ) from error
    with written_whole(path, overwrite=overwrite) as file:
        file.write(content)
    return path


def plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Turn values into what JSON knows: NaN and infinities into None, paths into text."""
    text = json.dumps(facts, default=_plainer, ensure_ascii=False)
    # A file's name may hold bytes that are no text; JSON cannot.
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    found: dict[str, Any] = json.loads(text, parse_constant=lambda _: None)
    return found


def _plainer(value: Any) -> Any:
    """Turn what JSON does not know into what it knows better."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if dataclasses.is_dataclass(value):
        return vars(value)
    return dict(value) if isinstance(value, Mapping) else str(value)
