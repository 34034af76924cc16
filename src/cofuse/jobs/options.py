"""What may be asked of a job, in the groups that the command line and the page show.

Frames are counted from 1 here, as people count them; everywhere else from 0.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = ["Aligning", "Fusing", "Maps", "Reading", "Request", "Writing"]


@dataclass(frozen=True)
class Reading:
    """Which frames to take, and how to read them.

    Parameters
    ----------
    frames
        Which frames to take, counted from 1: 3-40, 3-40:2 for every second of them, or 1,5,9- for
        two and all from the ninth on.
    white
        Value of white, 4095 for 12 bits in 16; default what the files say, else what 16-bit frames
        show, or the largest the files can hold.
    raw
        How to develop camera RAW: display, as a screen shows it, or linear.
    on_damage
        What to do with a damaged JPEG file: refuse it, or warn and take what could be decoded.
    hot_pixels
        auto mends pixels that shine at one place of the sensor in all frames; off does not.
    """

    frames: str | None = None
    white: float | None = None
    raw: Literal["display", "linear"] = "display"
    on_damage: Literal["refuse", "warn"] = "refuse"
    hot_pixels: Literal["auto", "off"] = "auto"


@dataclass(frozen=True)
class Aligning:
    """How to bring the frames into place.

    Parameters
    ----------
    align
        Bring the frames into place first; frames that lie right already are left untouched.
    transform
        What may differ between frames: translation, similarity (shift, rotation and scale),
        affine or homography.
    reference
        Number, from 1, of the frame that stays in place and whose metadata are kept; default the
        middle one.
    on_failure
        What to do with a frame that cannot be aligned: stop, or leave-out.
    match_exposure
        Give all frames the brightness and white balance of the reference, or make all darker where
        that would clip highlights.
    parallax
        Bend frames onto the reference where near and far shift against each other.
    crop
        Cut off what not all frames cover.
    transforms
        Take the transforms of an earlier run from this file instead of finding them.
    save_transforms
        Write the transforms to this file, as JSON.
    align_only
        Write the aligned frames, as TIFF, to the output, a folder, and do no more.
    """

    align: bool = True
    transform: Literal["translation", "similarity", "affine", "homography"] = "similarity"
    reference: int | None = None
    on_failure: Literal["stop", "leave-out"] = "stop"
    match_exposure: bool = True
    parallax: bool = True
    crop: bool = True
    transforms: Path | None = None
    save_transforms: Path | None = None
    align_only: bool = False


@dataclass(frozen=True)
class Fusing:
    """How to fuse.

    Parameters
    ----------
    preset
        auto; fast, without the trained model; or paper, the letter's own method.
    sigma
        Noise level in 8-bit grey levels (0 to 255) whatever the depth, 0 to 128; auto estimates it.
    noise
        Take the noise from this file, which cofuse noise wrote, instead of estimating it.
    denoise
        How much of the noise to remove, from 0, nothing, to 1, all of it.
    operator
        Name or file of an analysis operator to use instead of that of fast or paper.
    setting
        Change a setting of the preset, as NAME=VALUE; may be given more than once.
    max_memory
        Memory to stay below, for example 2GB; default a safe share of what is free.
    device
        Where to run the model of the preset auto: cpu, cuda (an NVIDIA GPU), mps (a Mac's), or
        auto: cuda if there is one and the frames are large enough to be worth it.
    """

    preset: str = "auto"
    sigma: str = "auto"
    noise: Path | None = None
    denoise: float = 1.0
    operator: str | None = None
    setting: tuple[str, ...] = ()
    max_memory: str | None = None
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"


@dataclass(frozen=True)
class Writing:
    """How to write pictures.

    Parameters
    ----------
    bit_depth
        8, 16 or float; default that of the frames.
    quality
        Quality of JPEG and WebP, 1 to 100; default 95 for JPEG, WebP without loss.
    overwrite
        Replace output files that exist.
    """

    bit_depth: Literal["8", "16", "float"] | None = None
    quality: int | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class Maps:
    """What else to write.

    Parameters
    ----------
    source_map
        Also write which frame every pixel came from, black the first and white the last, and the
        same in colours with a legend.
    depth_map
        Also write the depth, 16 bits, black at the first frame and white at the last, and the same
        in colours with a legend.
    confidence_map
        Also write how sure the depth is: black not at all, white entirely.
    point_cloud
        Also write the depth as points in space with the picture's colours, .ply.
    z_step
        Micrometres from one focus plane to the next, negative where later frames are nearer;
        default what OME metadata say.
    pixel_size
        Size of a pixel in micrometres; default what OME metadata say.
    report
        Also write a report in JSON.
    """

    source_map: Path | None = None
    depth_map: Path | None = None
    confidence_map: Path | None = None
    point_cloud: Path | None = None
    z_step: float | None = None
    pixel_size: float | None = None
    report: Path | None = None

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
