"""The joint model's file: what is written, and what is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cofuse import joint
from cofuse.errors import CofuseError
from cofuse.joint import JointModel, load_model, model_bytes, read_model
from tests.test_joint_kernels import random_model


def test_model_survives_its_file(tmp_path: Path) -> None:
    model = random_model(7)
    path = tmp_path / "model.npz"
    path.write_bytes(model_bytes(model))
    again = load_model(path)
    assert again.card == {"seed": 7}
    assert again.stages == 2
    assert again.parameters == model.parameters == sum(a.size for a in model.arrays.values())
    assert again.arrays.keys() == model.arrays.keys()
    for name, values in model.arrays.items():
        assert again.arrays[name].dtype == np.float32
        np.testing.assert_array_equal(again.arrays[name], values)
        assert not again.arrays[name].flags.writeable, "shipped models are shared"


def test_shipped_models_are_found_by_name_and_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data" / "models"
    folder.mkdir(parents=True)
    (folder / "little.npz").write_bytes(model_bytes(random_model(0)))
    monkeypatch.setattr(joint.resources, "files", lambda _: tmp_path)
    for cached in (joint._shipped_models, joint._shipped_model):
        cached.cache_clear()
    try:
        assert load_model("little") is load_model("little")
        with pytest.raises(CofuseError, match="no model or file named other; shipped are little"):
            load_model("other")
    finally:
        for cached in (joint._shipped_models, joint._shipped_model):
            cached.cache_clear()


def changed(**changes: Any) -> dict[str, Any]:
    arrays: dict[str, Any] = dict(random_model(0).arrays)
    for name, values in changes.items():
        arrays[name.replace("__", ".")] = values
    return {name: values for name, values in arrays.items() if values is not None}


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, "lacks"),
        (changed(weigher__analysis=None), "lacks weigher.analysis"),
        (changed(stages__1__fine__width=None), "lacks stages.1.fine.width"),
        (changed(stages__3__coarse__width=np.ones((4, 5))), "stages"),
        (changed(more=np.ones(3)), "no part of it uses: more"),
        (changed(weigher__analysis=np.ones((16, 2, 7, 7))), "shape \\(16, 2, 7, 7\\)"),
        (changed(stages__0__fidelity=np.ones(4, int)), "expected floats"),
        (changed(stages__0__fidelity=np.full(4, np.inf)), "NaN or infinite"),
        (changed(agreement__hidden_bias=np.float32(1)), "agreement.hidden"),
        (changed(stages__0__fine__filters=np.ones((10, 1, 7, 5))), "stages.0.fine.filters"),
        (
            changed(stages__0__coarse__filters=np.ones((5, 1, 6, 6))),
            "expected floats of shape .*7, 7",
        ),
    ],
)
def test_arrays_that_are_no_model_are_refused(arrays: dict[str, Any], words: str) -> None:
    with pytest.raises(CofuseError, match=words):
        JointModel.from_arrays(arrays)


def archive(header: Any, **arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(
        buffer, header=np.array(header if isinstance(header, str) else json.dumps(header)), **arrays
    )
    return buffer.getvalue()


TAG = {"format": "cofuse-joint", "version": 1, "card": {}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no file of a joint model"),
        (b"PK\x03\x04 and then nothing", "is no file of a joint model"),
        (model_bytes(random_model(0))[:5000], "is no file of a joint model"),
        (archive("{"), "is no file of a joint model"),
        (archive({"format": "cofuse-joint"}), "is no file of a joint model"),
        (archive(TAG | {"card": 3}), "is no file of a joint model"),
        (archive(TAG | {"version": 2}), "version 2; expected cofuse-joint version 1"),
        (archive(TAG), "model.npz: the model lacks"),
        (archive(TAG, x=np.array([None], object)), "is no file of a joint model"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(content)
    with pytest.raises(CofuseError, match=words):
        read_model(path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CofuseError, match=r"no model or file named .*nothing"):
        load_model(tmp_path / "nothing.npz")
    with pytest.raises(CofuseError, match="cannot be opened"):
        read_model(tmp_path)
