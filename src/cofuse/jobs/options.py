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
        Which of the frames to take, counted from 1: 3-40 for the third to the fortieth, 3-40:2 for
        every second of them, 1,5,9- for some and all the rest.
    white
        Value of white (4095 for 12 bits in 16); default what the files say, else what 16-bit frames
        show, or the largest the files can hold.
    raw
        How to develop camera RAW: display, as a screen shows it, or linear.
    on_damage
        What to do with a JPEG file whose packed pixels are damaged: refuse it, or warn and take
        what could be decoded.
    hot_pixels
        auto to mend pixels that shine in all frames at the same place of the sensor, or off.
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
        Bring the frames into place first. Frames that lie right already are left untouched.
    transform
        What may differ between frames: translation, similarity (shift, rotation and scale),
        affine or homography.
    reference
        Number, from 1, of the frame that stays as it is and whose metadata are kept; default the
        middle one.
    on_failure
        What to do with a frame that cannot be aligned: stop, or leave-out.
    match_exposure
        Give all frames the brightness and white balance of the reference, or make all darker where
        that would cut off highlights.
    parallax
        Bend frames onto the reference where near and far shift against each other so much that no
        transform of the whole brings them together.
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
        auto, fast without the trained model, or paper for the letter's own method.
    sigma
        Noise level in 8-bit grey levels (white at 255) whatever the depth, 0 to 128, or auto to
        estimate it.
    noise
        Take the noise, by frequency, frame, colour and brightness, from this file that cofuse
        noise wrote.
    denoise
        How much of the noise to take out: from 0, nothing, to 1, all of it.
    operator
        Name or file of an analysis operator to use instead of that of fast or paper.
    setting
        Change one setting of the preset, as NAME=VALUE; may be given more than once.
    max_memory
        Memory to stay below, for example 2GB; default a safe share of what is free.
    device
        Where to run the model of the preset auto: cpu, cuda for an NVIDIA GPU, mps for a Mac's, or
        auto for a GPU with CUDA if there is one and it is worth its while.
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
        Also write which frame every pixel came from: black is the first, white the last; a
        picture in colours, with a legend, is written beside it.
    depth_map
        Also write the depth, 16 bits, black at the first frame and white at the last; a picture in
        colours, with a legend, is written beside it.
    confidence_map
        Also write how sure the depth is, black not at all.
    point_cloud
        Also write the depth as points in space with the picture's colours, .ply.
    z_step
        Distance of the focus planes of neighbouring frames in micrometres, negative where later
        frames are nearer; default what OME metadata say.
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
