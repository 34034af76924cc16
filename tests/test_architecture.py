"""The house rules, held against the source: which room may know which, and what stays out."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
import threading
import typing
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import cofuse
from cofuse.evaluation.simulation import sample_picture
from cofuse.files import write_image
from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "cofuse"
MODULES = sorted(PACKAGE.rglob("*.py"))
TRAINING = sorted((ROOT / "training").rglob("*.py"))

DOCUMENT = ROOT / "docs" / "architecture.md"
#: A row of its table of rooms: name, what lives there, imports, libraries.
_ROW = re.compile(r"^\| `(\w+)` \| [^|]+ \| ([\w, ]*)\| ([\w, ]*)\|$", re.MULTILINE)


def words(text: str) -> set[str]:
    """Words between commas."""
    return {word.strip() for word in text.split(",") if word.strip()}


#: Every room, the rooms it may know besides itself, and the libraries it may use besides NumPy,
#: as the documentation says. The package itself, for its `__version__`, counts as "cofuse".
ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    room: (words(rooms), words(libraries))
    for room, rooms, libraries in _ROW.findall(DOCUMENT.read_text("utf-8"))
}
#: The package's face, and its door.
ALLOWED["__init__"] = set(ALLOWED) - {"cli", "errors", "arguments", "model", "web"}, set()
ALLOWED["__main__"] = {"cli"}, set()

#: The extra that training and devices need: the files all of whose work is done with it, and
#: that where it is asked for by name.
TORCH_FILES = {PACKAGE / "model" / name for name in ("network.py", "rounding.py", "saving.py")}
TORCH_ASKED_FOR = PACKAGE / "model" / "runtime.py"


def room_of(path: Path) -> str:
    """Name the folder of the package, or the file in it, that a module belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(path: Path) -> Iterator[str]:
    """Yield the dotted names a module imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import; write it out"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def edges(path: Path) -> tuple[set[str], set[str]]:
    """Return the other rooms and the libraries a module imports."""
    rooms, libraries = set(), set()
    known = {room_of(module) for module in MODULES}
    for name in imported_names(path):
        package, _, rest = name.partition(".")
        if package == "cofuse":
            first = rest.partition(".")[0]
            rooms.add(first if first in known else "cofuse")
        elif package not in sys.stdlib_module_names:
            libraries.add(package)
    return rooms - {room_of(path), "arguments", "errors"}, libraries - {"numpy"}


def in_fresh_python(code: str) -> str:
    """Run code in a process of its own and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_room_stands_in_the_table():
    assert {room_of(path) for path in MODULES} == set(ALLOWED)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_knows_only_what_its_room_may(path):
    allowed_rooms, allowed_libraries = ALLOWED[room_of(path)]
    rooms, libraries = edges(path)
    assert rooms <= allowed_rooms, f"unexpected rooms: {sorted(rooms - allowed_rooms)}"
    assert libraries <= allowed_libraries, (
        f"unexpected libraries: {sorted(libraries - allowed_libraries)}"
    )


@pytest.mark.parametrize("room", sorted(set(ALLOWED) - {"cli"}))
def test_table_allows_nothing_that_is_not_used(room):
    found = [edges(path) for path in MODULES if room_of(path) == room]
    for kind, allowed in enumerate(ALLOWED[room]):
        used = set().union(*(edge[kind] for edge in found))
        assert allowed <= used, f"{room} no longer uses {sorted(allowed - used)}"


def test_imports_go_down_the_map():
    drawing = DOCUMENT.read_text("utf-8").split("```")[1]
    lines = [words(",".join(line[:44].split())) & set(ALLOWED) for line in drawing.splitlines()]
    level = {room: number for number, rooms in enumerate(lines) for room in rooms}
    assert set(level) == set(ALLOWED) - {"__init__", "__main__"}
    for room, (imports, _) in ALLOWED.items():
        for other in imports - {"cofuse"}:
            assert level.get(room, -1) < level[other], f"{room} imports {other}"


#: Rooms that call functions they were given: conditions to check, readers of frames, progress.
CALLING_BACK = {"arguments", "images", "progress"}


def test_no_room_calls_back_into_one_above_it(tmp_path):
    """Imports show what a room knows; what it is handed and calls shows only when it runs."""
    picture = sample_picture("coffee")[60:220, 80:300]
    frames = cofuse.simulate_stack(picture, frames=3, sigma=8, seed=1).frames
    for number, frame in enumerate(frames):
        cofuse.write_image(tmp_path / f"{number}.png", np.roll(frame, 2 * number, axis=0))
    found: set[tuple[str, str]] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_back is not None and frame.f_code.co_name != "<module>":
            paths = [Path(code.co_filename) for code in (frame.f_back.f_code, frame.f_code)]
            if all(PACKAGE in path.parents for path in paths):
                found.add((room_of(paths[0]), room_of(paths[1])))

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        outcome = cofuse.fuse_files(
            tmp_path, tmp_path / "fused.tif", depth_map=tmp_path / "depth.png"
        )
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert not outcome.alignment.already_aligned and outcome.fusion.sigma > 0
    assert {("jobs", "fusion"), ("fusion", "model"), ("model", "images")} <= found
    wrong = {
        (caller, called)
        for caller, called in found
        if caller not in CALLING_BACK
        and called not in {caller, "errors", "arguments", *ALLOWED[caller][0]}
    }
    assert not wrong


def test_table_keeps_the_great_rules():
    outer = {"evaluation", "learning", "files", "jobs", "web", "cli"}
    reach, new = set(), {"fusion"}
    while new:
        reach |= new
        new = set().union(*(ALLOWED[room][0] for room in new)) - reach
    assert not reach & outer, "fusion must not depend, even indirectly, on the outer rooms"
    importers = {room for room, (rooms, _) in ALLOWED.items() if "cli" in rooms}
    assert importers == {"__main__"}
    users = {room for room, (_, libraries) in ALLOWED.items() if "torch" in libraries}
    assert users == {"model"}


def test_torch_is_loaded_for_devices_only():
    for path in MODULES:
        if edges(path)[1] & {"torch", "onnx"}:
            assert path in {*TORCH_FILES, TORCH_ASKED_FOR}, path
        if path not in TORCH_FILES:
            at_the_top = [
                ast.unparse(node)
                for node in ast.parse(path.read_text("utf-8")).body
                if isinstance(node, ast.Import | ast.ImportFrom)
            ]
            words = re.compile(r"\btorch\b|\bonnx\b|model\.(network|rounding|saving)")
            assert not [line for line in at_the_top if words.search(line)], path


#: Libraries that take long to load, or that not everybody has.
HEAVY = ("numba", "cv2", "scipy", "PIL", "tifffile", "imagecodecs", "torch", "rich", "cyclopts")
HEAVY += ("rawpy", "pillow_heif", "psutil", "onnx", "onnxruntime")


@pytest.mark.parametrize("module", ["fusion", "model.runtime", "images", "learning"])
def test_modules_load_nothing_heavy(module):
    loaded = in_fresh_python(
        f"import sys, cofuse.{module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    assert loaded.strip() == "[]"


def test_fusing_does_without_torch():
    loaded = in_fresh_python(
        "import sys\n"
        "sys.modules['torch'] = sys.modules['onnx'] = None\n"
        "import numpy as np, cofuse\n"
        "frames = np.random.default_rng(0).integers(0, 255, (2, 16, 16), np.uint8)\n"
        "print(cofuse.fuse(frames, sigma=10).image.shape)"
    )
    assert loaded.strip() == "(16, 16)"


def test_import_is_cheap_and_names_resolve_lazily():
    loaded = in_fresh_python(
        f"import sys, cofuse; print([m for m in {HEAVY!r} if m in sys.modules], 'numpy' in "
        "sys.modules)"
    )
    assert loaded.split() == ["[]", "False"]


#: A command line that fuses two small clean pictures and no more.
CLEAN = "fuse a.tif b.tif -o c.tif --sigma 0 --no-align --hot-pixels off --quiet"


@pytest.mark.parametrize(
    ("code", "most"),
    [
        ("import cofuse", 40),
        ("import cofuse.cli; cofuse.cli.main(['--help'])", 560),
        (f"import cofuse.cli; cofuse.cli.main({CLEAN.split()!r})", 440),
    ],
    ids=["import", "help", "fuse"],
)
def test_little_is_loaded(code: str, most: int, tmp_path: Path) -> None:
    """Modules of any package, at most: those there are now (28, 501 and 398 with Python 3.11), and
    a tenth more or a dozen for other versions of it and of libraries."""
    for name in ("a.tif", "b.tif"):
        write_image(tmp_path / name, np.zeros((64, 64), np.uint8))
    loaded = in_fresh_python(
        "import contextlib, io, json, os, sys\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "before = set(sys.modules)\n"
        f"with contextlib.redirect_stdout(io.StringIO()): {code}\n"
        "print(json.dumps([*set(sys.modules) - before]))"
    )
    modules = json.loads(loaded)
    assert len(modules) <= most
    needless = {"PIL", "asyncio", "difflib", "email", "http", "onnx", "rawpy", "torch", "xml"}
    assert not needless & {module.partition(".")[0] for module in modules}


def test_help_needs_no_imaging_library():
    loaded = in_fresh_python(
        "import sys, contextlib, io, cofuse.cli\n"
        "with contextlib.redirect_stdout(io.StringIO()): cofuse.cli.main(['--help'])\n"
        "with contextlib.redirect_stdout(io.StringIO()): cofuse.cli.main(['learn', '--help'])\n"
        "print([m for m in ('numba', 'cv2', 'scipy', 'PIL', 'tifffile', 'torch') if m in "
        "sys.modules])"
    )
    assert loaded.strip() == "[]"


def test_public_names_resolve():
    assert sorted(set(cofuse.__all__)) == sorted(cofuse.__all__)
    for name in cofuse.__all__:
        value = getattr(cofuse, name)
        assert name == "__version__" or name in dir(cofuse)
        assert name == "PRESETS" or getattr(value, "__doc__", None), f"{name} has no docstring"
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = cofuse.no_such_name
    namespace: dict[str, object] = {}
    exec("from cofuse import *", namespace)
    assert set(cofuse.__all__) <= set(namespace)


@pytest.mark.parametrize("path", [*MODULES, *TRAINING], ids=lambda p: str(p.relative_to(ROOT)))
def test_module_keeps_house_style(path):
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module says what it is"
    assert len(text.splitlines()) <= 400, "a file of more than 400 lines is two files"
    names = {path.stem, *path.relative_to(ROOT).parts[:-1]}
    assert not names & {"utils", "util", "types", "base", "config", "helpers", "common", "misc"}
    if path.parent.name != "cli" and path.name != "command.py":
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        printing = [f for f in calls if isinstance(f, ast.Name) and f.id == "print"]
        assert not printing, "only the command line prints"


def names_bound(tree: ast.Module) -> set[str]:
    """Names that a module defines, assigns or takes from other rooms at its top."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            targets = (inner for target in node.targets for inner in ast.walk(target))
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cofuse."):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def test_exported_names_exist():
    for path in MODULES:
        tree = ast.parse(path.read_text("utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                listed = ast.literal_eval(node.value)
                assert len(set(listed)) == len(listed), f"{path}: a name twice in __all__"
                module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
                if path.name != "__init__.py":
                    missing = set(listed) - names_bound(tree)
                    assert not missing, f"{module}: {missing}"


def test_no_tracked_text_names_somebodys_folders():
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, timeout=PATIENCE
    )
    if listing.returncode:
        pytest.skip("git cannot list the files here")
    places = "|".join(("home", "root", "Users", "work"))
    private = re.compile(rf"(?<![\w./~-])/(?:{places})/\w+".encode())
    found = []
    for name in filter(None, listing.stdout.decode().split("\0")):
        path = ROOT / name
        content = path.read_bytes() if path.is_file() else b""
        if b"\0" not in content:  # text
            found += [f"{name}: {hit.decode()}" for hit in private.findall(content)]
    assert not found, found


def named_types(hint: object) -> Iterator[type]:
    """Classes of the package in a type hint, also within unions and containers."""
    if isinstance(hint, type) and hint.__module__.startswith("cofuse."):
        yield hint
    for part in typing.get_args(hint):
        yield from named_types(part)


def test_what_public_functions_take_and_return_is_public():
    public = {getattr(cofuse, name) for name in cofuse.__all__ if name != "PRESETS"}
    functions = [value for value in public if inspect.isfunction(value)]
    assert len(functions) > 10
    for function in functions:
        hints = typing.get_type_hints(function, None, {"Outcome": cofuse.Outcome})
        for kind in {kind for hint in hints.values() for kind in named_types(hint)}:
            assert kind in public, f"{function.__name__} speaks of {kind.__name__}"
