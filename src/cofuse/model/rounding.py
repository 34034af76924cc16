"""Layers whose planes are rounded to 8 bits, as the runtime computes them; needs torch.

Planes between two layers are whole numbers of steps, 0 to 255 of them: planes that are never below
zero count from 0, signed ones from 128. Kernels are rounded to 7 bits and a sign, with a step for
each channel that they make: no processor overflows then, whatever its instructions. The same
rounding is done in training, which so learns to live with it, on devices, and by ONNX Runtime.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

#: Largest number of steps of a plane and of a kernel.
_MOST, _MOST_OF_KERNELS = 255, 63
#: Step of a plane that nothing is known of.
_FIRST_STEP = 0.05
#: How fast the step of a plane follows the largest value that training sees.
_PACE = 0.01


class _Steps(torch.autograd.Function):
    """Planes as whole numbers of steps; a gradient passes where they are in range."""

    @staticmethod
    def forward(ctx: Any, planes: Tensor, step: Tensor, zero: int) -> Tensor:
        steps = (planes / step).round() + zero
        ctx.save_for_backward((steps >= 0) & (steps <= _MOST), step)
        return steps.clamp(0, _MOST)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        inside, step = ctx.saved_tensors
        return gradients[0] * inside / step, None, None

    @staticmethod
    def symbolic(graph: Any, planes: Any, step: Any, zero: int) -> Any:
        start = graph.op("Constant", value_t=torch.tensor(zero, dtype=torch.uint8))
        return graph.op("QuantizeLinear", planes, step, start)


class _Planes(torch.autograd.Function):
    """The planes that numbers of steps stand for."""

    @staticmethod
    def forward(ctx: Any, steps: Tensor, step: Tensor, zero: int) -> Tensor:
        ctx.save_for_backward(step)
        return (steps - zero) * step

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        (step,) = ctx.saved_tensors
        return gradients[0] * step, None, None

    @staticmethod
    def symbolic(graph: Any, steps: Any, step: Any, zero: int) -> Any:
        start = graph.op("Constant", value_t=torch.tensor(zero, dtype=torch.uint8))
        return graph.op("DequantizeLinear", steps, step, start)


class Rounded(nn.Module):
    """Rounds planes to steps; while it trains, the step follows the largest value seen."""

    step: Tensor

    def __init__(self, *, signed: bool = False) -> None:
        super().__init__()
        self.zero = (_MOST + 1) // 2 if signed else 0
        self.register_buffer("step", torch.tensor(_FIRST_STEP))

    def steps(self, planes: Tensor) -> Tensor:
        """Whole numbers of steps, 0 to 255."""
        if self.training:
            with torch.no_grad():
                largest = planes.abs().amax().float() / (_MOST - self.zero)
                self.step.copy_(torch.lerp(self.step, largest, _PACE).clamp_min(1e-8))
        made: Tensor = _Steps.apply(planes, self.step, self.zero)
        return made

    def planes(self, steps: Tensor) -> Tensor:
        """Turn steps back into planes."""
        made: Tensor = _Planes.apply(steps, self.step, self.zero)
        return made

    def forward(self, planes: Tensor) -> Tensor:
        """Round planes."""
        return self.planes(self.steps(planes))


class RoundedConv(nn.Conv2d):
    """A convolution of rounded planes by rounded kernels.

    What it makes is rounded; before, a ReLU cuts off what is negative unless it is ``signed``.
    """

    def __init__(
        self, inputs: int, outputs: int, side: int, stride: int = 1, *, signed: bool = False
    ) -> None:
        super().__init__(inputs, outputs, side, stride, (side - 1) // 2)
        self.made = Rounded(signed=signed)

    def steps(self, planes: Tensor) -> Tensor:
        """Convolve planes, and return steps."""
        kernels = self.weight
        if not torch.onnx.is_in_onnx_export():  # `saving` rounds what is exported
            kernels = kernels + (rounded_kernels(kernels) - kernels).detach()
        made = F.conv2d(planes, kernels, self.bias, self.stride, self.padding)
        return self.made.steps(made if self.made.zero else F.relu(made))

    def forward(self, planes: Tensor) -> Tensor:
        """Convolve planes."""
        return self.made.planes(self.steps(planes))


def kernel_steps(kernels: Tensor) -> Tensor:
    """Step of every kernel (outputs, inputs, h, w): (outputs, 1, 1, 1).

    They have few digits, so that kernels that were rounded stay as they are to the last bit.
    """
    steps = kernels.abs().amax((1, 2, 3), keepdim=True) / _MOST_OF_KERNELS
    return steps.clamp_min(1e-12).to(torch.bfloat16).to(kernels.dtype)


def rounded_kernels(kernels: Tensor) -> Tensor:
    """Kernels (outputs, inputs, h, w), rounded to steps."""
    steps = kernel_steps(kernels)
    return (kernels / steps).round() * steps
