"""From light to the values of a file: sensor, mosaic, noise, tone curve, sharpening, JPEG."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.learning.world.chance import Chance, WorldSettings
from cofuse.learning.world.layered import Light
from cofuse.learning.world.sensor import DEMOSAICINGS, Mosaic, NoiseLevel, Tone, grain, smoothed
from cofuse.learning.world.sources import luminance

#: Steps at quality 50 of luminance and chrominance (ITU-T T.81, Annex K).
_LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *(((99,) * 8,) * 4),
)
#: Rows: Y, Cb, Cr from red, green, blue.
_TO_YCC = (
    (0.299, 0.587, 0.114),
    (-0.168735892, -0.331264108, 0.5),
    (0.5, -0.418687589, -0.081312411),
)
_TO_RGB = ((1.0, 0.0, 1.402), (1.0, -0.344136286, -0.714136286), (1.0, 1.772, 0.0))


def compressed(frames: Tensor, quality: Tensor, subsampling: tuple[int, int] = (1, 1)) -> Tensor:
    """Write frames (B, K, 3, H, W), 0 to 1, as JPEG of a quality (B,) and read them again.

    ``subsampling`` says how many rows and columns share their chrominance. Blocks begin at the
    first row and column.
    """
    to_ycc = torch.tensor(_TO_YCC, device=frames.device)
    levels = (frames.clamp(0, 1) * 255).round()
    # Whole numbers between all steps, as libraries have them.
    ycc = (levels[:, :, None] * to_ycc[:, :, None, None]).sum(3).round()
    luminance, chrominance = ycc[:, :, :1] - 128, ycc[:, :, 1:]
    luminance = _quantised(luminance, quality, _LUMINANCE)
    shape = chrominance.shape
    small = F.avg_pool2d(chrominance.flatten(0, 1), subsampling, ceil_mode=True).round()
    small = _quantised(small.view(*shape[:3], *small.shape[-2:]), quality, _CHROMINANCE)
    scale = tuple(float(n) for n in subsampling)
    large = F.interpolate(small.flatten(0, 1), scale_factor=scale, mode="bilinear")
    chrominance = large[..., : shape[-2], : shape[-1]].view(shape)
    ycc = torch.cat([luminance + 128, chrominance], 2)
    to_rgb = torch.tensor(_TO_RGB, device=frames.device)
    rgb = (ycc[:, :, None] * to_rgb[:, :, None, None]).sum(3)
    return rgb.round().clamp(0, 255) / 255


def _quantised(planes: Tensor, quality: Tensor, table: tuple[tuple[int, ...], ...]) -> Tensor:
    """Round the cosine transform of planes (B, K, C, H, W) to the steps of a quality (B,)."""
    shape = planes.shape
    # In double precision: training may let matrix products of floats be rounded to 10 bits.
    flat = planes.flatten(0, 2)[:, None].double()
    flat = F.pad(flat, (0, -shape[-1] % 8, 0, -shape[-2] % 8), mode="replicate")
    rows, columns = flat.shape[-2] // 8, flat.shape[-1] // 8
    blocks = flat.view(shape[0], -1, rows, 8, columns, 8)
    place = torch.arange(8, device=planes.device)
    cosines = torch.cos(math.pi / 16 * torch.outer(place, 2 * place + 1).double())
    cosines = F.normalize(cosines, dim=1)
    coefficients = torch.einsum("ui,bnricj,vj->bnrucv", cosines, blocks, cosines)
    percent = torch.where(quality < 50, 5000 / quality, 200 - 2 * quality)[:, None, None]
    steps = torch.tensor(table, device=planes.device) * percent
    steps = ((steps + 50) / 100).floor().clamp(1, 255)[:, None, None, :, None]
    coefficients = (coefficients / steps).round() * steps
    blocks = torch.einsum("ui,bnrucv,vj->bnricj", cosines, coefficients, cosines)
    whole = blocks.reshape(-1, rows * 8, columns * 8)[:, : shape[-2], : shape[-1]]
    return whole.reshape(shape).round().clamp(-128, 127).to(planes.dtype)


@dataclass(frozen=True)
class Scenes:
    """A batch of B stacks of K frames of side S, values of files from 0 to 1.

    Attributes
    ----------
    frames
        What files hold, (B, K, 3, S, S), noise and rounding included.
    clean
        The same without noise, JPEG and rounding.
    truth
        All in focus, (B, 3, S, S); every place as the frame shows it, and where, that blurs it
        least. As bright as frames are that were made alike, else as their mean.
    floor
        Share (B,) of the noise's variance at mid-grey that is there in black.
    """

    frames: Tensor
    clean: Tensor
    truth: Tensor
    floor: Tensor


def photograph(
    chance: Chance, settings: WorldSettings, light: Light, grey: Tensor, *, specimen: bool = False
) -> Scenes:
    """Take frames of some light; ``grey`` (B,) says which have no colours.

    ``specimen`` is for microscopes: their pictures are often taken by sensors that count photons.
    """
    batch, frames = light.frames.shape[:2]
    views = torch.cat([light.frames, light.truth[:, None]], 1)
    tone = Tone.draw(chance, batch, 1, 1, 1, 1) if light.linear else None
    if specimen and chance.happens(0.5):
        # Scientific cameras have no tone curve.
        tone = Tone(torch.ones(batch, 1, 1, 1, 1, device=chance.device))
    level = NoiseLevel.draw(chance, settings, batch, frames)
    if chance.happens(settings.plain):
        clean = _greyed(_displayed(views, tone), grey)
        noise = chance.normal(*light.frames.shape)
        noise = torch.where(grey[:, None, None, None, None], noise[:, :, :1], noise)
        noisy = (clean[:, :frames] + level.sigma * noise).clamp(0, 1)
        noisy = (noisy * 255).round() / 255 if chance.happens(0.5) else noisy
        floor = torch.ones(batch, device=chance.device)
        return Scenes(noisy, clean[:, :-1], clean[:, -1], floor)
    if specimen:
        # Long exposures and cooled sensors: the loudest are not as loud.
        level = NoiseLevel(0.4 * level.sigma, level.floor)
        way = chance.pick(photons=0.6, grain=0.3, mosaic=0.1)
    else:
        # Collections are made from pictures that have been through all this before.
        way = chance.pick(grain=1.0, mosaic=1.0 if light.linear else 0.5)
    if way == "mosaic":
        noisy, clean, floor = _through_mosaic(chance, views, level, tone)
        noisy, clean = _greyed(noisy, grey), _greyed(clean, grey)
    else:
        clean, floor = _greyed(_displayed(views, tone), grey), level.floor.flatten()
        if way == "photons":
            noisy = _counted(chance, clean[:, :frames], level)
        else:
            noise = grain(chance, batch, frames, views.shape[-1])
            noisy = clean[:, :frames] + level.at(clean[:, :frames]) * noise
        # Grey pictures have the same noise in all their planes.
        noisy = torch.where(grey[:, None, None, None, None], noisy[:, :, :1], noisy)
    values = torch.cat([noisy, clean], 1)
    if not specimen and chance.happens(0.55 if light.linear else 0.3):
        values = _processed(chance, values, level)
    values = values.clamp(0, 1)
    noisy, clean, truth = values[:, :frames], values[:, frames:-1], values[:, -1]
    return Scenes(_stored(chance, settings, noisy, specimen=specimen), clean, truth, floor)


def _stored(chance: Chance, settings: WorldSettings, frames: Tensor, *, specimen: bool) -> Tensor:
    """Write frames to files and read them: as JPEG, or rounded to whole numbers."""
    if chance.happens(settings.jpeg * (0.3 if specimen else 1.0)):
        quality = chance.uniform(len(frames), low=60.0, high=98.0).round()
        kind = chance.pick(full=0.4, columns=0.2, quarter=0.4)
        share = {"full": (1, 1), "columns": (1, 2), "quarter": (2, 2)}[kind]
        return compressed(frames, quality, share)
    steps = 255.0
    if not chance.happens(0.4 if specimen else 0.7):
        # A sensor of 12 bits in a file of 16, a full file of 16, or some hundred counts.
        steps = float(chance.host.choice([4095, 65535, chance.whole(300, 900)]))
    return (frames * steps).round() / steps


def _displayed(light: Tensor, tone: Tone | None) -> Tensor:
    """Values of a file, 0 to 1; without a tone curve they are that already, but for clipping."""
    return light.clamp(0, 1) if tone is None else tone.display(light)


def _greyed(values: Tensor, grey: Tensor) -> Tensor:
    return torch.where(grey[:, None, None, None, None], luminance(values), values)


def _counted(chance: Chance, clean: Tensor, level: NoiseLevel) -> Tensor:
    """Count photons, and add the noise of reading them out."""
    variance = level.sigma.square().clamp_min(1e-9)
    # The number of photons at white under which their variance at mid-grey is the part that grows.
    photons = 0.5 / (variance * (1 - level.floor).clamp_min(1e-3))
    counts = torch.poisson(clean * photons, generator=chance.generator) / photons
    noisy = counts + (level.floor * variance).sqrt() * chance.normal(*clean.shape)
    return torch.where(level.sigma > 0, noisy, clean)


def _through_mosaic(
    chance: Chance, views: Tensor, level: NoiseLevel, tone: Tone | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Noisy frames, clean views, and the floor: noise where light becomes numbers.

    Red and blue are amplified for the white balance, and colours made purer than the sensor's
    filters see them: so chrominance is noisier than luminance, and red and blue than green.
    """
    batch, count = views.shape[:2]
    frames = count - 1
    mosaic = Mosaic(chance, views.shape[-1])
    balance = torch.ones(batch, 1, 3, 1, 1, device=views.device)
    purity = torch.zeros(batch, 1, 1, 1, 1, device=views.device)
    middle: Tensor | float = 0.5
    level_in_light = level
    if tone is not None:
        balance[:, :, ::2] = chance.uniform(batch, 1, 2, 1, 1, low=1.0, high=2.2)
        purity = chance.uniform(batch, 1, 1, 1, 1, high=0.3)
        middle = Tone(tone.gamma).light(torch.full_like(level.floor, 0.5))
        # In light nearly all of the variance grows; the curve then lifts what is left in black.
        level = NoiseLevel(0.7 * level.sigma, 0.2 * level.floor)
        level_in_light = NoiseLevel(level.sigma / tone.slope(middle, 1e-4), level.floor)
    filtered = ((views + purity * luminance(views)) / (1 + purity)).clamp(0, 1)
    if tone is not None:
        # Lens and filter keep detail from the sensor that is finer than its mosaic.
        filtered = smoothed(filtered, chance.number(0.45, 0.8))
    plane = mosaic.seen(filtered)[:, :, None]
    amplified = mosaic.seen(balance.expand(-1, -1, -1, *views.shape[-2:]))[:, :, None]
    seen = plane[:, :frames]
    sigma = level_in_light.at(seen / amplified, middle) * amplified
    noisy = (seen + sigma * chance.normal(*seen.shape)).clamp(0, 1)
    way = str(chance.host.choice(DEMOSAICINGS))
    picture = mosaic.developed(torch.cat([noisy, plane], 1)[:, :, 0], way)
    picture = _displayed((1 + purity) * picture - purity * luminance(picture), tone)
    floor = level.floor_of(tone, middle)
    return picture[:, :frames], picture[:, frames:], floor


def _processed(chance: Chance, values: Tensor, level: NoiseLevel) -> Tensor:
    """Smooth and sharpen as cameras and programs do, which sharpen less what has more noise."""
    if chance.happens(0.25):
        grey = luminance(values)
        values = grey + smoothed(values - grey, chance.number(0.6, 2.5))
    if chance.happens(0.25):
        values = smoothed(values, chance.number(0.35, 0.9))
    if chance.happens(0.35):
        fine = values - smoothed(values, chance.number(0.6, 1.6))
        amount = chance.uniform(len(values), 1, 1, 1, 1, low=0.2, high=1.3)
        values = values + amount / (1 + 30 * level.sigma[:, :1]) * fine
    return values
