"""Pictures out: whole or not at all, and never with fewer bits than they had."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cofuse.errors import CofuseError

__all__ = ["check_destination", "check_output", "write_image", "written_whole"]

Pixels = NDArray[Any]
PathLike = str | os.PathLike[str]


def write_image(path: PathLike, image: Pixels, *, overwrite: bool = False) -> Path:
    """Write a picture in the format its file name asks for.

    ``.png`` takes 8 and 16 bits, ``.tif`` and ``.tiff`` also floats (both without loss);
    ``.webp`` (without loss), ``.bmp`` and ``.jpg`` (quality 95, full colour resolution) 8 bits
    only. WebP knows no grey: a grey picture comes back as RGB.

    Parameters
    ----------
    path
        The file to write; its folder must exist.
    image
        Shape (H, W) or (H, W, 3); uint8, uint16, float32 or float64.
    overwrite
        Whether an existing file may be replaced.

    Returns
    -------
    Path
        The file written. It appears under its name only when it is complete.

    Raises
    ------
    CofuseError
        The format cannot hold the picture, or the file cannot or may not be written.
    """
    image = np.asarray(image)
    path = check_output(path, overwrite=overwrite, dtype=image.dtype)
    if image.ndim not in (2, 3) or image.shape[2:] not in ((), (3,)) or image.size == 0:
        raise CofuseError(
            f"{path} cannot be written from an array of shape {image.shape}; expected "
            "(height, width) or (height, width, 3)"
        )
    with written_whole(path, overwrite=overwrite) as file:
        native = np.ascontiguousarray(image, dtype=image.dtype.newbyteorder("="))
        _FORMATS[path.suffix.lower()].encode(file, native)
    return path


def check_output(path: PathLike, *, overwrite: bool, dtype: DTypeLike | None = None) -> Path:
    """Make sure, without writing, that a picture can be written to ``path``.

    Parameters
    ----------
    path
        The file that is to be written.
    overwrite
        Whether an existing file may be replaced.
    dtype
        The dtype the picture will have, if it is known: not every format holds every depth.

    Returns
    -------
    Path
        ``path``, as a `Path`.

    Raises
    ------
    CofuseError
        As `write_image` would.
    """
    path = Path(path)
    known = ", ".join(_FORMATS)
    if path.suffix.lower() not in _FORMATS:
        what = f"suffix {path.suffix!r}" if path.suffix else "no suffix"
        raise CofuseError(f"{path} has {what}, which names no picture format; use one of {known}")
    if dtype is not None:
        _check_depth(path, np.dtype(dtype))
    check_destination(path, overwrite=overwrite)
    return path


def check_destination(path: Path, *, overwrite: bool) -> None:
    """Refuse a file that may not be replaced, and a folder that cannot be written to."""
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
            raise _exists(path)
    except OSError as error:
        raise CofuseError(f"{path} cannot be written: {error.strerror}; check the path") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CofuseError(
            f"{path} cannot be written: no permission to write in {folder}; choose another folder"
        )


@contextmanager
def written_whole(path: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Give a file to write to that becomes ``path`` on success and vanishes on failure.

    The content goes into a temporary file in the same folder, reaches the disk, and is then
    renamed; a reader sees the old file or the new one, never a part.
    """
    check_destination(path, overwrite=overwrite)
    # A link is written through, not replaced. The name is short: `path` may be of full length.
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".cofuse-{secrets.token_hex(8)}.tmp")
    try:
        # Opened plainly, not by mkstemp, so that the umask decides on the permissions.
        with temporary.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            temporary.replace(target)
        else:
            _move_without_replacing(temporary, target, path)
    except CofuseError:
        raise
    except (OSError, ValueError, RuntimeError) as error:  # the disk; Pillow; imagecodecs
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise CofuseError(
            f"{path} could not be written ({reason}); nothing was left behind, "
            "try another folder or format"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _move_without_replacing(temporary: Path, target: Path, path: Path) -> None:
    """Give a finished file its name, unless somebody else took it meanwhile."""
    try:
        os.link(temporary, target)
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:  # a file system without hard links: look, then rename
        if target.exists():
            raise _exists(path) from error
        temporary.replace(target)


def _exists(path: Path) -> CofuseError:
    """Say that a file is in the way."""
    return CofuseError(f"{path} exists; pass --overwrite / overwrite=True to replace it")


def _check_depth(path: Path, dtype: np.dtype[Any]) -> None:
    """Refuse to store values in a format that has no room for them."""
    allowed = _FORMATS[path.suffix.lower()].dtypes
    if dtype.name in allowed:
        return
    if dtype.name not in _TIFF.dtypes:
        expected = f"expected {', '.join(_TIFF.dtypes)}"
    else:
        remedy = " or ".join(s for s, f in _FORMATS.items() if dtype.name in f.dtypes)
        expected = f"this format holds {' and '.join(allowed)} only: choose {remedy}"
    raise CofuseError(f"{path} cannot hold values of type {dtype.name}; {expected}")


@dataclass(frozen=True)
class _Format:
    """What a file format takes, and how it is encoded."""

    dtypes: tuple[str, ...]
    encode: Callable[[BinaryIO, Pixels], None]


def _encode_png(file: BinaryIO, image: Pixels) -> None:
    """Write PNG, 8 or 16 bits."""
    import imagecodecs

    file.write(imagecodecs.png_encode(image))


def _encode_tiff(file: BinaryIO, image: Pixels) -> None:
    """Write TIFF, any depth, deflated."""
    import tifffile

    tifffile.imwrite(
        file,
        image,
        photometric="rgb" if image.ndim == 3 else "minisblack",
        compression="zlib",
        predictor=True,
        # Left to itself tifffile hopes that compression keeps a large picture below 4 GB.
        bigtiff=image.nbytes > 2**32 - 2**25,
        software="cofuse",
        metadata=None,
    )


def _encode_jpeg(file: BinaryIO, image: Pixels) -> None:
    """Write JPEG at quality 95, 4:4:4."""
    from PIL import Image

    Image.fromarray(image).save(file, "JPEG", quality=95, subsampling=0)


def _encode_webp(file: BinaryIO, image: Pixels) -> None:
    """Write WebP without loss."""
    from PIL import Image

    Image.fromarray(image).save(file, "WEBP", lossless=True)


def _encode_bmp(file: BinaryIO, image: Pixels) -> None:
    """Write BMP."""
    from PIL import Image

    Image.fromarray(image).save(file, "BMP")


_TIFF = _Format(("uint8", "uint16", "float32", "float64"), _encode_tiff)
_FORMATS = {
    ".png": _Format(("uint8", "uint16"), _encode_png),
    ".tif": _TIFF,
    ".tiff": _TIFF,
    ".jpg": _Format(("uint8",), _encode_jpeg),
    ".jpeg": _Format(("uint8",), _encode_jpeg),
    ".webp": _Format(("uint8",), _encode_webp),
    ".bmp": _Format(("uint8",), _encode_bmp),
}
