"""``cofuse operators``: list and picture analysis operators."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from cyclopts import App

from cofuse.cli.application import Output, Overwrite
from cofuse.files import write_image
from cofuse.files.previews import filter_grid
from cofuse.operators import SHIPPED_OPERATORS, AnalysisOperator, coherence, load_operator

operators = App(name="operators", help="List and show analysis operators.")


@operators.command(name="list")
def list_() -> None:
    """List the operators that come with cofuse."""
    for name in SHIPPED_OPERATORS:
        print(_summary(load_operator(name)))
    print("made on demand for any patch side N: dct-N, overcomplete-dct-N, differences-N")


@operators.command
def show(name: str, *, output: Output | None = None, overwrite: Overwrite = False) -> None:
    """Check an operator and show it: its facts, and its filters as a picture.

    Parameters
    ----------
    name
        A shipped or built-in operator's name, or an operator file.
    output
        The picture to write: NAME.png by default.
    """
    operator = load_operator(name)
    # The name stands in the file: it must not lead out of this folder.
    path = output or Path(f"{operator.name}.png".replace("/", "-").replace("\\", "-"))
    write_image(path, filter_grid(operator.filters), overwrite=overwrite)
    print(_summary(operator))
    print(json.dumps(dict(operator.provenance), indent=2))
    print(f"filters: {path}")


def _summary(operator: AnalysisOperator) -> str:
    """One line of facts."""
    h, m = operator.rows.shape
    kind = "separable" if operator.is_separable else "full"
    rank = int(np.linalg.matrix_rank(operator.rows))
    return (
        f"{operator.name}: {kind}, {h} filters of {operator.patch_size}x{operator.patch_size}, "
        f"rank {rank} of {m - 1}, coherence {coherence(operator.rows):.3f}"
    )
