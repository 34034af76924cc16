"""Networks as files that ONNX Runtime reads, and torch again; needs torch and onnx."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import Tensor

from cofuse.images.pixels import MIXED_BANDS
from cofuse.model.network import CONTEXT, FEATURES, FILTERED, TOLD, Networks

__all__ = ["read_networks", "write_networks"]


def write_networks(networks: Networks, folder: Path) -> None:
    """Write the networks as NAME.onnx into a folder."""
    side = 64

    def planes(count: int, smaller: int = 1) -> Tensor:
        return torch.zeros(1, count, side // smaller, side // smaller)

    features = [planes(n, 4 << i) for i, n in enumerate(FEATURES)]
    told = torch.zeros(1, TOLD)
    samples: dict[str, tuple[Tensor, ...]] = {
        "filter": (planes(1),),
        "look": (planes(FILTERED, 4), planes(2 * FILTERED, 4), told),
        "share": tuple(torch.cat([feature, feature], 1) for feature in features),
        "weigh": (*features, *features),
        "border": (planes(2), planes(2), planes(CONTEXT, 4)),
        "restore": (planes(3), planes(2 * MIXED_BANDS, 2)),
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
