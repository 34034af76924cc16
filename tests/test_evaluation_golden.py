"""Every metric of sources equals the reference implementation: see tests/golden/README.md."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cofuse.evaluation import metrics

SHIPPED = Path(__file__).parent / "golden"
COLLECTIONS = os.environ.get("COFUSE_DATA")

#: Reference name → our function, and the relative error allowed.
REFERENCES = {
    "QMI_hossny": (metrics.q_mi, 1e-9),
    "Q_NCIE": (metrics.q_ncie, 1e-9),
    "Q_ABF_xydeas_yuliu": (metrics.q_abf, 1e-9),
    "Q_Y_yang": (metrics.q_y, 1e-3),
    "Q_CB_chenblum": (metrics.q_cb, 1e-9),
}

#: Where the reference value itself is no value of its definition.
BROKEN_REFERENCES = {
    ("lytro07_avgf", "Q_Y_yang"): (
        "the reference is 2.228, above the largest possible value 1: it divides rounding noise by "
        "rounding noise in flat windows; q_y gives 0.851"
    ),
}


def read_picture(folder: Path, name: str) -> np.ndarray[Any, Any]:
    """A golden picture; the unrounded averages are made from their sources."""
    if name.endswith("_avgf"):
        scene = name.removesuffix("_avgf")
        return (read_picture(folder, f"{scene}_A") + read_picture(folder, f"{scene}_B") * 1.0) / 2
    with Image.open(folder / f"{name}.png") as picture:
        return np.array(picture)


def check_case(folder: Path, case: dict[str, Any], reference: str) -> None:
    metric, tolerance = REFERENCES[reference]
    a, b, fused = (read_picture(folder, case[key]) for key in "ABF")
    expected = case["metrics"]["yl"][reference]
    assert metric([a, b], fused) == pytest.approx(expected, rel=tolerance, abs=0)


@pytest.mark.parametrize("reference", REFERENCES)
def test_the_shipped_synthetic_case(reference: str) -> None:
    case = json.loads((SHIPPED / "synth_metrics.json").read_text())
    check_case(SHIPPED, case, reference)


def golden_cases() -> list[Any]:
    if COLLECTIONS is None:
        return []
    golden = json.loads((Path(COLLECTIONS) / "golden" / "golden_metrics.json").read_text())
    return [
        pytest.param(
            case,
            reference,
            id=f"{case['F']}-{metric.__name__}",
            marks=[
                pytest.mark.xfail(reason=why, strict=True)
                for key, why in BROKEN_REFERENCES.items()
                if key == (case["F"], reference)
            ],
        )
        for case in golden["cases"]
        for reference, (metric, _) in REFERENCES.items()
        if reference in case["metrics"]["yl"]
    ]


@pytest.mark.data
@pytest.mark.skipif(COLLECTIONS is None, reason="COFUSE_DATA does not name the collections")
@pytest.mark.parametrize(("case", "reference"), golden_cases())
def test_the_lytro_cases(case: dict[str, Any], reference: str) -> None:
    assert COLLECTIONS is not None
    check_case(Path(COLLECTIONS) / "golden", case, reference)


@pytest.mark.data
@pytest.mark.skipif(COLLECTIONS is None, reason="COFUSE_DATA does not name the collections")
@pytest.mark.parametrize("scene", ["01", "07", "17"])
def test_to_grey_equals_the_reference_grey(scene: str) -> None:
    assert COLLECTIONS is not None
    for source in "AB":
        with Image.open(Path(COLLECTIONS) / "lytro" / f"lytro-{scene}-{source}.jpg") as picture:
            grey = metrics.to_grey(np.array(picture))
        golden = read_picture(Path(COLLECTIONS) / "golden", f"lytro{scene}_{source}")
        np.testing.assert_array_equal(grey, golden)
