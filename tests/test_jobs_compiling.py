"""Whether kernels are compiled is told by their indices, wherever Numba keeps them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import cofuse
from cofuse.cli import main
from cofuse.jobs import compiling
from cofuse.jobs.compiling import kernels_missing

PYTHON = f"py{sys.version_info[0]}{sys.version_info[1]}"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with the sources of the kernels, and no cache anywhere."""
    kernels = tmp_path / "package" / "kernels"
    kernels.mkdir(parents=True)
    (kernels / "loops.py").touch()
    os.utime(kernels / "loops.py", (1_000_000, 1_000_000))
    monkeypatch.setattr(cofuse, "__file__", str(kernels.parent / "__init__.py"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "own"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return kernels


def index(folder: Path, module: str, python: str = PYTHON, time: float = 2_000_000) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{module}.some_loop-17.{python}.nbi"
    path.touch()
    os.utime(path, (time, time))


def test_the_source_is_there() -> None:
    assert (Path(cofuse.__file__).parent / "kernels" / "loops.py").exists()


def test_index_beside_the_source_counts(installed: Path) -> None:
    assert kernels_missing()
    index(installed / "__pycache__", "loops")
    assert not kernels_missing()


@pytest.mark.parametrize(("python", "time"), [("py27", 2_000_000.0), (PYTHON, 500_000.0)])
def test_index_of_another_python_or_an_older_source_does_not(
    installed: Path, python: str, time: float
) -> None:
    index(installed / "__pycache__", "loops", python, time)
    assert kernels_missing()


def test_folder_that_is_named_is_the_only_one(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index(installed / "__pycache__", "loops")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "named"))
    assert kernels_missing()
    index(tmp_path / "named" / "kernels_0123", "loops")
    assert not kernels_missing()


@pytest.mark.skipif(sys.platform != "linux", reason="the folder has other names elsewhere")
def test_users_own_cache_counts(installed: Path, tmp_path: Path) -> None:
    index(tmp_path / "own" / "numba" / "kernels_0123", "loops")
    assert not kernels_missing()


def test_where_nothing_can_be_seen_nothing_is_said(installed: Path) -> None:
    (installed / "loops.py").unlink()
    assert not kernels_missing()


@pytest.mark.parametrize("missing", [True, False])
def test_it_is_said_once_and_not_to_the_quiet(
    missing: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import numpy as np

    from cofuse.files import write_image

    monkeypatch.setattr(compiling, "kernels_missing", lambda: missing)
    for name in "ab":
        frame = np.random.default_rng(ord(name)).integers(0, 255, (40, 40), np.uint8)
        write_image(tmp_path / f"{name}.png", frame)
    files = [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    options = ["--no-align", "--sigma", "0", "--overwrite", "-o", str(tmp_path / "out.png")]
    assert main(["fuse", *files, *options]) == 0
    assert capsys.readouterr().err.count("compiling the kernels, once") == missing
    assert main(["fuse", *files, *options, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
