"""The options of a job, in the groups that the command line and the page show.

Frames are counted from 1 here, as people count them; everywhere else from 0. The functions below
read options that are texts or files, and refuse values that are wrong whatever the frames are.
"""

# Annotations are not postponed: the command line takes these classes further in other modules.

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from cofuse.arguments import MOST_SIGMA, check, check_number, check_sigma
from cofuse.errors import CofuseError

if TYPE_CHECKING:  # the help of commands does without what takes time to load
    from cofuse.fusion.presets import FusionSettings
    from cofuse.images import Stack
    from cofuse.sensor import NoiseLaw

#: Most characters of a file of transforms or of a noise law.
_LARGEST_FILE = 64 * 2**20
_RANGE = re.compile(r"(\d{1,9})(?:(-)(\d{1,9})?)?(?::(\d{1,9}))?")

Content = TypeVar("Content")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which frames to take, and how to read them."""

    frames: str | None = None
    """Which frames to take, counted from 1: 3-40, 3-40:2 for every second of them, or 1,5,9- for
    two and all from the ninth on."""
    white: float | None = None
    """Value of white, 4095 for 12 bits in 16; default what the files say, else what 16-bit frames
    show, or the largest the files can hold."""
    raw: Literal["display", "linear"] = "display"
    """How to develop camera RAW: display, as a screen shows it, or linear."""
    on_damage: Literal["refuse", "warn"] = "refuse"
    """What to do with a damaged JPEG file: refuse it, or warn and take what could be decoded."""
    hot_pixels: Literal["auto", "off"] = "auto"
    """auto mends pixels that shine at one place of the sensor in all frames; off does not."""


@dataclass(frozen=True, kw_only=True)
class Aligning:
    """How to bring the frames into place."""

    align: bool = True
    """Bring the frames into place first; frames that lie right already are left untouched."""
    transform: Literal["translation", "similarity", "affine", "homography"] = "similarity"
    """What may differ between frames: translation, similarity (shift, rotation and scale), affine
    or homography."""
    reference: int | None = None
    """Number, from 1, of the frame that stays in place and whose metadata are kept; default the
    middle one."""
    on_failure: Literal["stop", "leave-out"] = "stop"
    """What to do with a frame that cannot be aligned: stop, or leave-out."""
    match_exposure: bool = True
    """Give all frames the brightness and white balance of the reference, or make all darker where
    that would clip highlights."""
    parallax: bool = True
    """Bend frames onto the reference where near and far shift against each other."""
    crop: bool = True
    """Cut off what not all frames cover."""
    transforms: Path | None = None
    """Take the transforms of an earlier run from this file instead of finding them."""
    save_transforms: Path | None = None
    """Write the transforms to this file, as JSON."""
    align_only: bool = False
    """Write the aligned frames, as TIFF, to the output, a folder, and do no more."""


@dataclass(frozen=True, kw_only=True)
class Fusing:
    """How to fuse."""

    preset: str = "auto"
    """auto; fast, without the trained model; or paper, the letter's own method."""
    sigma: str = "auto"
    """Noise level in 8-bit grey levels (0 to 255) whatever the depth, 0 to 128; auto estimates
    it."""
    noise: Path | None = None
    """Take the noise from this file, which cofuse noise wrote, instead of estimating it."""
    denoise: float = 1.0
    """How much of the noise to remove, from 0, nothing, to 1, all of it."""
    operator: str | None = None
    """Name or file of an analysis operator to use instead of that of fast or paper."""
    setting: tuple[str, ...] = ()
    """Change a setting of the preset, as NAME=VALUE; may be given more than once."""
    max_memory: str | None = None
    """Memory to stay below, for example 2GB; default a safe share of what is free."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to run the model of the preset auto: cpu, cuda (an NVIDIA GPU), mps (a Mac's), or auto:
    cuda if there is one and the frames are large enough to be worth it."""


@dataclass(frozen=True, kw_only=True)
class Writing:
    """How to write pictures."""

    bit_depth: Literal["8", "16", "float"] | None = None
    """8, 16 or float; default that of the frames."""
    quality: int | None = None
    """Quality of JPEG and WebP, 1 to 100; default 95 for JPEG, WebP without loss."""
    overwrite: bool = False
    """Replace output files that exist."""

    @property
    def depth(self) -> Literal[8, 16, "float"] | None:
        """The depth asked for, as `write_image` takes it."""
        return {None: None, "8": 8, "16": 16, "float": "float"}[self.bit_depth]


@dataclass(frozen=True, kw_only=True)
class Maps:
    """What else to write."""

    source_map: Path | None = None
    """Also write which frame every pixel came from, black the first and white the last, and the
    same in colours with a legend."""
    depth_map: Path | None = None
    """Also write the depth, 16 bits, black at the first frame and white at the last, and the same
    in colours with a legend."""
    confidence_map: Path | None = None
    """Also write how sure the depth is: black not at all, white entirely."""
    point_cloud: Path | None = None
    """Also write the depth as points in space with the picture's colours, .ply."""
    z_step: float | None = None
    """Micrometres from one focus plane to the next, negative where later frames are nearer; default
    what OME metadata say."""
    pixel_size: float | None = None
    """Size of a pixel in micrometres; default what OME metadata say."""
    report: Path | None = None
    """Also write a report in JSON."""

    @property
    def needs_depth(self) -> bool:
        """Whether any of this is made from the depth."""
        return any((self.depth_map, self.confidence_map, self.point_cloud))


@dataclass(frozen=True)
class Request:
    """One job: these frames, this picture."""

    inputs: tuple[str, ...]
    output: Path
    reading: Reading = field(default_factory=Reading)
    aligning: Aligning = field(default_factory=Aligning)
    fusing: Fusing = field(default_factory=Fusing)
    writing: Writing = field(default_factory=Writing)
    maps: Maps = field(default_factory=Maps)


#: The group of every option, and the types of options that are files or texts.
_GROUPS = (Reading, Aligning, Fusing, Writing, Maps)
_GROUP_OF: dict[str, Any] = {own.name: kind for kind in _GROUPS for own in fields(kind)}
_TYPES: dict[str, Any] = {
    own.name: Path for kind in _GROUPS for own in fields(kind) if "Path" in str(own.type)
} | dict.fromkeys(("sigma", "max_memory", "bit_depth"), str)


def request_of(inputs: Iterable[str], output: Path, **options: Any) -> Request:
    """Make a request of options by name, whatever their group."""
    given: dict[Any, dict[str, Any]] = {kind: {} for kind in _GROUPS}
    for name, value in options.items():
        if name not in _GROUP_OF:
            import difflib

            near = difflib.get_close_matches(name, _GROUP_OF, 1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise CofuseError(f"there is no option `{name}`{hint}")
        if value is not None and name in _TYPES:
            value = _TYPES[name](value)
        given[_GROUP_OF[name]][name] = value
    groups = {kind.__name__.lower(): kind(**values) for kind, values in given.items()}
    return Request(tuple(inputs), output, **groups)


class Given(NamedTuple):
    """The content of options that are texts or files; None where they are left to be found."""

    settings: "FusionSettings"
    noise: "NoiseLaw | float | None"
    #: In bytes.
    max_memory: int | None


def check_options(request: Request) -> Given:
    """Refuse options that are wrong whatever the frames are, before these are looked for."""
    from cofuse.fusion.presets import check_method, resolve_preset
    from cofuse.images.memory import parse_size

    reading, aligning, fusing = request.reading, request.aligning, request.fusing
    settings = _changed(resolve_preset(fusing.preset), fusing.setting)
    check_method(settings, denoise=fusing.denoise, device=fusing.device, operator=fusing.operator)
    noise = read_noise(fusing.sigma, fusing.noise)
    max_memory = None if fusing.max_memory is None else parse_size(fusing.max_memory)
    if reading.frames is not None:
        _range_parts(reading.frames)
    if aligning.reference is not None:
        check_number("reference", aligning.reference, 1, whole=True)
    needs_aligning = aligning.align_only or aligning.transforms or aligning.save_transforms
    if needs_aligning and not aligning.align:
        raise CofuseError("`align=False` leaves nothing to align; leave it out")
    if request.writing.quality is not None:
        check_number("quality", request.writing.quality, 1, 100, whole=True)
    for name, value in (("white", reading.white), ("pixel_size", request.maps.pixel_size)):
        if value is not None:
            check(name, value, "a number above 0", lambda given: 0 < given < math.inf)
    if (step := request.maps.z_step) is not None:
        check("z_step", step, "a number other than 0", lambda given: math.isfinite(given) and given)
    return Given(settings, noise, max_memory)


def _changed(settings: "FusionSettings", changes: Sequence[str]) -> "FusionSettings":
    """Change settings by texts NAME=VALUE; a value that reads as a number is one."""
    changed: dict[str, Any] = {}
    for change in changes:
        name, equals, text = change.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in vars(settings):
            raise CofuseError(
                f"`setting` {change} names no setting; expected NAME=VALUE with one of "
                f"{', '.join(vars(settings))}"
            )
        changed[name] = text
        for kind in () if isinstance(vars(settings)[name], str) else (float, int):
            with suppress(ValueError):
                changed[name] = kind(text)
    try:
        return dataclasses.replace(settings, **changed)
    except CofuseError as error:
        raise CofuseError(f"`setting`: {error}") from error


def _range_parts(text: str) -> list[re.Match[str]]:
    """Take frame numbers such as 3-40:2 or 1,5,9- apart at the commas."""
    found = [_RANGE.fullmatch(part.strip()) for part in text.split(",")]
    if None in found:
        raise CofuseError(
            f"`frames` is {text!r}, which is no range; expected numbers from 1 such as 3-40, "
            "3-40:2 or 1,5,9-"
        )
    return [match for match in found if match]


def parse_range(text: str, count: int) -> tuple[int, ...]:
    """Read frame numbers such as 3-40:2 or 1,5,9-; the indices are from 0."""
    found: list[int] = []
    for match in _range_parts(text):
        first, dash, last, step = match.groups()
        end = int(last) if last else count if dash else int(first)
        if not 1 <= int(first) <= end <= count or int(step or 1) < 1:
            raise CofuseError(
                f"the frames {match[0]!r} are not among the {count} there are; expected "
                f"numbers from 1 to {count}, the smaller first"
            )
        found += range(int(first) - 1, end, int(step or 1))
    if len(set(found)) < len(found):
        raise CofuseError(f"the frames {text!r} name a frame twice; name each once")
    return tuple(found)


def read_noise(sigma: str, noise: Path | None) -> "NoiseLaw | float | None":
    """Read the given noise: a law from a file, or a level; None to estimate it."""
    from cofuse.sensor import NoiseLaw

    if sigma != "auto":
        try:
            level = float(sigma)
        except ValueError:
            raise CofuseError(
                f"`sigma` is {sigma!r}; expected auto or a number of 8-bit grey levels"
            ) from None
        check_sigma(level)
        if noise is None:
            return level
        raise CofuseError(
            "`sigma` and `noise` were both given; expected one of them: a noise law has its level"
        )
    if noise is None:
        return None
    law = read_saved(noise, NoiseLaw.from_json, "a noise law as `cofuse noise` writes it")
    if law.overall > MOST_SIGMA:
        raise CofuseError(
            f"{noise}: the noise is {law.overall:g} of 255 grey levels; expected up to {MOST_SIGMA}"
        )
    return law


def noise_of(stack: "Stack", given: "NoiseLaw | float | None") -> "NoiseLaw | None":
    """Return the given noise as the law of a stack; None to estimate it."""
    from cofuse.sensor import NoiseLaw

    if isinstance(given, float):
        return NoiseLaw.white(given, frames=len(stack), colour=stack.is_colour)
    return None if given is None else given.for_stack(len(stack), colour=stack.is_colour)


def read_saved(path: Path, decode: Callable[[str], Content], expected: str) -> Content:
    """Read and decode a small text file that an earlier run saved."""
    try:
        with path.open(encoding="utf-8") as file:
            return decode(file.read(_LARGEST_FILE))  # a longer text is cut, and then refused
    except OSError as error:
        raise CofuseError(f"{path} cannot be opened: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise CofuseError(f"{path} is no text; expected {expected}") from error
    except CofuseError as error:
        raise CofuseError(f"{path}: {error}") from error
