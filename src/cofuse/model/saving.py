"""Networks as files that ONNX Runtime reads, and torch again; needs torch and onnx."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import Tensor

from cofuse.model.network import FEATURES, FOLDED, TOLD, Networks

__all__ = ["read_networks", "write_networks"]


def write_networks(networks: Networks, folder: Path) -> None:
    """Write the networks as NAME.onnx into a folder."""
    side = 64
    halves = [torch.zeros(1, n, side >> (i + 1), side >> (i + 1)) for i, n in enumerate(FEATURES)]
    picture, half = torch.zeros(1, 3, side, side), torch.zeros(1, 1, side // 2, side // 2)
    samples: dict[str, tuple[Tensor, ...]] = {
        "look": (picture[:, :1], picture, torch.zeros(1, TOLD)),
        "share": tuple(torch.cat([half, half], 1) for half in halves),
        "weigh": (half.expand(-1, FOLDED, -1, -1), *halves, *halves),
    }
    for name, network in networks.named_children():
        inputs = samples[name]
        names = [f"input{i}" for i in range(len(inputs))]
        # Every input has names of its own for its sizes, for they need not agree.
        axes = {
            name: {2: f"{name}_rows", 3: f"{name}_columns"}
            for name, planes in zip(names, inputs, strict=True)
            if planes.ndim == 4
        }
        with warnings.catch_warnings():
            # This way of exporting is said to be old; the new one wants another package and
            # writes the same.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                network.eval().cpu(),
                inputs,
                str(folder / f"{name}.onnx"),
                input_names=names,
                dynamic_axes=axes,
                opset_version=17,
                dynamo=False,
            )


def read_networks(folder: Path) -> Networks:
    """Read what `write_networks` wrote."""
    import onnx

    networks = Networks()
    for name, network in networks.named_children():
        graph = onnx.load(str(folder / f"{name}.onnx")).graph
        known = {
            tensor.name: torch.tensor(onnx.numpy_helper.to_array(tensor))
            for tensor in graph.initializer
        }
        network.load_state_dict({key: known[key] for key in network.state_dict()})
    networks.eval()
    return networks
