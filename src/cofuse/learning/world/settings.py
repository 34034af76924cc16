"""How often things happen in the world, each number with its reason beside it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WorldSettings"]


@dataclass(frozen=True)
class WorldSettings:
    """Probabilities of a batch, unless they are said to be a picture's.

    The first five are weights of the kinds of scenes; they need not add up to 1.
    """

    #: Layers before a slanted ground, in linear light: what a camera sees, so half of all.
    photographic: float = 0.5
    #: Bodies in transmitted or emitted light: as many real stacks come from microscopes as from
    #: lenses, but with fewer surprises.
    specimens: float = 0.2
    #: Bodies that are not all in focus anywhere: without them networks learn from specimens that
    #: what is darkest is right, and mix the darkest parts of all frames.
    thick: float = 0.15
    #: Regions cut by hard masks, as collections with a truth are made. Their borders want weights
    #: that are exact to the pixel, which nothing else teaches.
    masked: float = 0.25
    #: Pictures blurred pixel by pixel after a map of depth: the other way to make collections.
    mapped: float = 0.12
    #: Scenes whose ground is drawn: print, boards, worn surfaces are rare among photographs and
    #: common in stacks.
    drawn: float = 0.2
    #: Objects before the ground, at the most; each costs as much as the ground.
    objects: int = 3
    #: Grounds far behind all that is ever in focus, of photographic scenes with objects.
    far_ground: float = 0.35
    #: Largest radius of a blur, pixels; a macro lens easily has more, but then nothing is left
    #: that could be told from a gradient.
    largest_blur: float = 64.0
    #: Scenes, of a picture, that even in focus are soft; 0.4 to 4 pixels standard deviation.
    soft: float = 0.25
    #: The same of microscopes, which have more pixels than their light can resolve.
    soft_specimens: float = 0.6
    #: Photographic scenes through a lens whose colours do not focus together.
    fringed: float = 0.25
    #: Frames that do not lie on each other: hand-held, breathing, parallax.
    moved: float = 0.45
    #: Of those moved, such that were resampled by an aligner after they were read.
    resampled: float = 0.6
    #: Frames of different brightness or colour.
    unsteady: float = 0.4
    #: Of these, such whose brightness the aligner has made alike again.
    corrected: float = 0.7
    #: A frame that is there twice, noise and all; copies are left out before, as far as exact.
    repeated: float = 0.03
    #: Grey pictures.
    grey: float = 0.25
    #: Pictures, each for itself, without noise: rendered ones, and means of many exposures.
    noiseless: float = 0.15
    #: And such with less than half a grey level of it, where rounding is as large.
    quiet: float = 0.15
    #: Largest standard deviation of the noise, of a picture, in grey levels; each octave from half
    #: a level on is as likely.
    loudest: float = 35.0
    #: Batches with white noise and nothing else done to them: what most comparisons are made with.
    plain: float = 0.15
    #: Frames that were stored as JPEG.
    jpeg: float = 0.45
