"""The page's scripts without a browser: their syntax, and functions that need no page."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import cofuse

SCRIPTS = Path(cofuse.__file__).parent / "web" / "static" / "js"
TESTS = Path(__file__).parent / "page_scripts"

node = shutil.which("node")
pytestmark = pytest.mark.skipif(node is None, reason="node is not installed")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts and their tests, in a folder that tells node that they are modules."""
    folder = tmp_path_factory.mktemp("scripts")
    shutil.copytree(SCRIPTS, folder / "js")
    shutil.copytree(TESTS, folder / "tests")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    return folder


def check(place: Path, *words: str) -> None:
    ended = subprocess.run([str(node), *words], cwd=place, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.js")), ids=lambda path: path.name)
def test_syntax(place: Path, script: Path) -> None:
    check(place, "--check", f"js/{script.name}")


@pytest.mark.parametrize("test", sorted(TESTS.glob("*.test.mjs")), ids=lambda path: path.name)
def test_functions(place: Path, test: Path) -> None:
    check(place, "--test", f"tests/{test.name}")
