"""From light to the values of a file: sensor, mosaic, noise, tone curve, sharpening, rounding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.world.canvas import Canvas, WorldSettings
from training.world.jpeg import compressed
from training.world.pictures import luminance
from training.world.sensor import DEMOSAICINGS, Mosaic, NoiseLevel, Tone, grain, smoothed


@dataclass(frozen=True)
class Scenes:
    """A batch of B stacks of K frames of side S, values of files from 0 to 1."""

    frames: Tensor  #: What files hold, (B, K, 3, S, S), noise and rounding included.
    clean: Tensor  #: The same without noise, JPEG and rounding.
    #: All in focus, (B, 3, S, S): every place as the frame shows it, and where, that blurs it
    #: least. As bright as frames that were matched, else as their mean.
    truth: Tensor
    floor: Tensor  #: Share (B,) of the noise's variance at mid-grey that is there in black.


def capture(
    canvas: Canvas,
    settings: WorldSettings,
    views: Tensor,
    *,
    linear: bool,
    specimen: bool = False,
) -> Scenes:
    """Take frames of views (B, K + 1, 3, H, W), the last of which is the truth.

    Views are linear light, or, if not ``linear``, values of a file already. ``specimen`` is for
    microscopes: their pictures are often taken by sensors that count photons.
    """
    frames = views.shape[1] - 1
    grey = canvas.some(settings.grey + 0.4 * specimen)[:, None]

    def greyed(values: Tensor) -> Tensor:
        return torch.where(grey, luminance(values), values)

    tone = Tone.draw(canvas) if linear else None
    if specimen and canvas.happens(0.5):
        # Scientific cameras have no tone curve.
        tone = Tone(1.0)
    level = NoiseLevel.draw(canvas, settings, frames)
    if canvas.happens(settings.plain):
        way = "plain"
        level = NoiseLevel(level.sigma, torch.ones_like(level.floor))
    elif specimen:
        way = canvas.pick({"photons": 0.6, "grain": 0.3, "mosaic": 0.1})
        # Long exposures and cooled sensors: the loudest are not as loud.
        level = NoiseLevel(0.4 * level.sigma, level.floor)
    else:
        # Collections are made from pictures that have been through all this before.
        way = canvas.pick({"grain": 1.0, "mosaic": 1.0 if linear else 0.5})
    if way == "mosaic":
        noisy, clean, floor = _through_mosaic(canvas, views, level, tone)
        noisy, clean = greyed(noisy), greyed(clean)
    else:
        clean, floor = greyed(_displayed(views, tone)), level.floor.flatten()
        seen = clean[:, :frames]
        if way == "photons":
            noisy = _counted(canvas, seen, level)
        else:
            white = way == "plain"
            noise = canvas.normal(*seen.shape[1:]) if white else grain(canvas, frames)
            noisy = seen + level.at(seen) * noise
        # Grey pictures have the same noise in all their planes.
        noisy = torch.where(grey, noisy[:, :, :1], noisy)
    values = torch.cat([noisy, clean], 1)
    if way != "plain" and not specimen and canvas.happens(0.55 if linear else 0.3):
        values = _processed(canvas, values, level)
    values = values.clamp(0, 1)
    noisy, clean, truth = values[:, :frames], values[:, frames:-1], values[:, -1]
    if way != "plain":
        noisy = _stored(canvas, settings, noisy, specimen=specimen)
    elif canvas.happens(0.5):
        noisy = (noisy * 255).round() / 255
    return Scenes(noisy, clean, truth, floor)


def _stored(canvas: Canvas, settings: WorldSettings, frames: Tensor, *, specimen: bool) -> Tensor:
    """Write frames to files and read them: as JPEG, or rounded to whole numbers."""
    if canvas.happens(settings.jpeg * (0.3 if specimen else 1.0)):
        quality = canvas.uniform(60.0, 98.0).flatten().round()
        # Chrominance is stored for every pixel, every other column, or a quarter of the pixels.
        return compressed(frames, quality, canvas.pick({(1, 1): 0.4, (1, 2): 0.2, (2, 2): 0.4}))
    steps = 255.0
    if not canvas.happens(0.4 if specimen else 0.7):
        # A sensor of 12 bits in a file of 16, a full file of 16, or some hundred counts.
        steps = float(canvas.host.choice([4095, 65535, canvas.whole(300, 900)]))
    return (frames * steps).round() / steps


def _displayed(light: Tensor, tone: Tone | None) -> Tensor:
    """Values of a file, 0 to 1; without a tone curve they are that already, but for clipping."""
    return light.clamp(0, 1) if tone is None else tone.display(light)


def _counted(canvas: Canvas, clean: Tensor, level: NoiseLevel) -> Tensor:
    """Count photons, and add the noise of reading them out."""
    variance = level.sigma.square().clamp_min(1e-9)
    # The number of photons at white under which their variance at mid-grey is the part that grows.
    photons = 0.5 / (variance * (1 - level.floor).clamp_min(1e-3))
    counts = torch.poisson(clean * photons, generator=canvas.generator) / photons
    noisy = counts + (level.floor * variance).sqrt() * canvas.normal(*clean.shape[1:])
    return torch.where(level.sigma > 0, noisy, clean)


def _through_mosaic(
    canvas: Canvas, views: Tensor, level: NoiseLevel, tone: Tone | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Noisy frames, clean views, and the floor: noise where light becomes numbers.

    Red and blue are amplified for the white balance, and colours made purer than the sensor's
    filters see them: so chrominance is noisier than luminance, and red and blue than green.
    """
    mosaic = Mosaic(canvas)
    balance = torch.ones(canvas.batch, 1, 3, 1, 1, device=views.device)
    purity = torch.zeros_like(level.floor)
    middle: Tensor | float = 0.5
    level_in_light = level
    if tone is not None:
        balance[:, :, ::2] = canvas.uniform(1.0, 2.2, 1, 2, 1, 1)
        purity = canvas.uniform(high=0.3)[:, None]
        middle = Tone(tone.gamma).light(torch.full_like(level.floor, 0.5))
        # In light nearly all of the variance grows; the curve then lifts what is left in black.
        level = NoiseLevel(0.7 * level.sigma, 0.2 * level.floor)
        level_in_light = NoiseLevel(level.sigma / tone.slope(middle, 1e-4), level.floor)
    filtered = ((views + purity * luminance(views)) / (1 + purity)).clamp(0, 1)
    if tone is not None:
        # Lens and filter keep detail from the sensor that is finer than its mosaic.
        filtered = smoothed(filtered, canvas.number(0.45, 0.8))
    plane = mosaic.seen(filtered)[:, :, None]
    amplified = mosaic.seen(balance.expand(-1, -1, -1, *views.shape[-2:]))[:, :, None]
    seen = plane[:, :-1]
    sigma = level_in_light.at(seen / amplified, middle) * amplified
    noisy = (seen + sigma * canvas.normal(*seen.shape[1:])).clamp(0, 1)
    way = str(canvas.host.choice(DEMOSAICINGS))
    picture = mosaic.developed(torch.cat([noisy, plane], 1)[:, :, 0], way)
    picture = _displayed((1 + purity) * picture - purity * luminance(picture), tone)
    noisy, clean = picture.split([seen.shape[1], views.shape[1]], 1)
    return noisy, clean, level.floor_of(tone, middle)


def _processed(canvas: Canvas, values: Tensor, level: NoiseLevel) -> Tensor:
    """Smooth and sharpen as cameras and programs do, which sharpen less what has more noise."""
    if canvas.happens(0.25):
        grey = luminance(values)
        values = grey + smoothed(values - grey, canvas.number(0.6, 2.5))
    if canvas.happens(0.25):
        values = smoothed(values, canvas.number(0.35, 0.9))
    if canvas.happens(0.35):
        fine = values - smoothed(values, canvas.number(0.6, 1.6))
        amount = canvas.uniform(0.2, 1.3)[:, None]
        values = values + amount / (1 + 30 * level.sigma[:, :1]) * fine
    return values
