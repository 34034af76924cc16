"""What training makes small: errors of the picture, and of the choice of frames."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.learning.end_to_end.scenes import Scenes

__all__ = ["SMALL_ERROR", "choice_loss", "log_error", "ssim"]

#: Squared grey levels below which errors no longer count much.
SMALL_ERROR = 0.05


def log_error(picture: Tensor, truth: Tensor) -> Tensor:
    """Mean of log squared errors: up to a factor, minus the mean PSNR."""
    return torch.log((picture - truth).square().mean((1, 2)) + SMALL_ERROR).mean()


def ssim(picture: Tensor, truth: Tensor) -> Tensor:
    """Mean SSIM of every picture, with the usual Gaussian windows of 11 pixels."""
    offsets = torch.arange(11, device=picture.device) - 5.0
    weights = torch.softmax(-(offsets**2) / 4.5, 0)

    def smooth(*planes: Tensor) -> Tensor:
        maps = torch.stack(planes, 1).flatten(0, 1)[:, None]
        rows = F.conv2d(maps, weights.view(1, 1, -1, 1))
        return F.conv2d(rows, weights.view(1, 1, 1, -1)).view(len(picture), len(planes), -1)

    products = (picture * picture, truth * truth, picture * truth)
    a, b, aa, bb, ab = smooth(picture, truth, *products).unbind(1)
    low, high = (0.01 * 255.0) ** 2, (0.03 * 255.0) ** 2
    likeness = (2.0 * a * b + low) * (2.0 * (ab - a * b) + high)
    return (likeness / ((a * a + b * b + low) * (aa + bb - a * a - b * b + high))).mean(1)


def choice_loss(scores: Tensor, stacks: Scenes) -> Tensor:
    """Log of the squared error to be expected of copying frames with these scores.

    Where frames hardly differ the less blurred one is to be chosen: it costs a little less.
    """
    error = (stacks.frames - stacks.truth[:, None]).square()
    cost = F.avg_pool2d(error, 3, 1, 1, count_include_pad=False)
    cost = cost + 0.02 * stacks.radius.square()
    expected = (torch.softmax(scores, 1) * cost).sum(1).mean((1, 2))
    surplus = expected - cost.amin(1).mean((1, 2))
    return torch.log(surplus + SMALL_ERROR).mean()
