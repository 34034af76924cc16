"""Networks as files that ONNX Runtime reads, and torch again; needs torch and onnx.

Rounded kernels are stored as the bytes they are, each with the step of its channel.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cofuse.images.pixels import MIXED_BANDS
from cofuse.model.network import CONTEXT, FEATURES, FILTERS, TOLD, Networks
from cofuse.model.rounding import RoundedConv, kernel_steps

#: Added to the name of a kernel: that of its steps.
_STEP = ".step"


def write_networks(networks: Networks, folder: Path) -> None:
    """Write the networks as NAME.onnx into a folder."""
    import onnx

    side = 64

    def planes(count: int, smaller: int = 1) -> Tensor:
        return torch.zeros(1, count, side // smaller, side // smaller)

    features = [planes(n, 4 << i) for i, n in enumerate(FEATURES)]
    filtered, light = planes(FILTERS, 4), planes(1, 4)
    samples: dict[str, tuple[Tensor, ...]] = {
        "filter": (planes(1),),
        "compare": (filtered, filtered, light, torch.zeros(1, 1)),
        "relate": (filtered, light, *(3 * [filtered]), features[0], light, torch.zeros(1, TOLD)),
        "look": (features[0],),
        "share": tuple(torch.cat([feature, feature], 1) for feature in features),
        "weigh": (*features, *features),
        "border": (planes(2), planes(2), planes(MIXED_BANDS, 4), planes(CONTEXT, 4)),
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
        file = str(folder / f"{name}.onnx")
        with warnings.catch_warnings():
            # This way of exporting is said to be old; the new one wants another package and
            # writes the same.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                network.eval().cpu(),
                inputs,
                file,
                input_names=names,
                dynamic_axes=axes,
                opset_version=17,
                autograd_inlining=False,  # rounding is written as what the runtime knows
                dynamo=False,
            )
        model = onnx.load(file)
        kernels = {
            f"{name}.weight" for name, part in network.named_modules() if type(part) is RoundedConv
        }
        _round(model.graph, kernels)
        stored = {own.name for own in model.graph.initializer}
        steps = {key: own for key, own in network.state_dict().items() if key not in stored}
        onnx.helper.set_model_props(model, {key: repr(float(own)) for key, own in steps.items()})
        onnx.checker.check_model(model)
        onnx.save(model, file)


def _round(graph: Any, kernels: set[str]) -> None:
    """Store kernels as bytes, and biases as whole numbers of what the products count in."""
    from onnx import TensorProto, helper, numpy_helper

    values = {own.name: own for own in graph.initializer}
    made_by = {name: node for node in graph.node for name in node.output}

    def value(name: str) -> Tensor:
        while name not in values:  # of values that are alike one alone is stored
            name = made_by[name].input[0]
        return torch.tensor(numpy_helper.to_array(values[name]))

    nodes = []
    for node in graph.node:
        if node.op_type == "Conv" and node.input[1] in kernels:
            given, kernel, bias = node.input
            steps = kernel_steps(value(kernel))
            products = steps.flatten() * value(made_by[given].input[1])
            for place, name, step, kind in (
                (1, kernel, steps, torch.int8),
                (2, bias, products, torch.int32),
            ):
                whole = (value(name) / step).round().to(kind).numpy()
                values[name].CopyFrom(numpy_helper.from_array(whole, name))
                graph.initializer.append(
                    numpy_helper.from_array(step.flatten().numpy(), name + _STEP)
                )
                node.input[place] = f"{name}.as_float"
                nodes.append(
                    helper.make_node(
                        "DequantizeLinear", [name, name + _STEP], [node.input[place]], axis=0
                    )
                )
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    # What networks give each other are bytes.
    taken = {node.input[0] for node in nodes if node.op_type == "DequantizeLinear"}
    made = {node.output[0] for node in nodes if node.op_type == "QuantizeLinear"}
    for own in (*graph.input, *graph.output):
        if own.name in taken | made:
            own.type.tensor_type.elem_type = TensorProto.UINT8


def read_networks(folder: Path) -> Networks:
    """Read what `write_networks` wrote."""
    import onnx

    networks = Networks()
    for name, network in networks.named_children():
        model = onnx.load(str(folder / f"{name}.onnx"))
        known = {own.key: torch.tensor(float(own.value)) for own in model.metadata_props}
        for tensor in model.graph.initializer:
            known[tensor.name] = torch.tensor(onnx.numpy_helper.to_array(tensor))
        for key in [key for key in known if key + _STEP in known]:
            step = known[key + _STEP]
            known[key] = known[key] * step.view(-1, *[1] * (known[key].ndim - 1))
        network.load_state_dict({key: known[key] for key in network.state_dict()})
    networks.eval()
    return networks
