"""Messages name what there is: arguments in the library, options on the command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cofuse
from cofuse.cli.application import COMMANDS, app, in_options
from cofuse.files import read_image, write_image
from tests.command_line import run

PACKAGE = Path(cofuse.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
ARGUMENT = re.compile(r"(?<!`)`(\w+)(?:=[^`]+)?`(?!`)")
#: Modules that speak of a command's options, but have not its name.
SPEAKS_OF = {
    "cli/__init__.py": (),
    "cli/application.py": (),
    "web/options.py": ("fuse",),
}


def options_of(*command: str) -> set[str]:
    """All that a command may be given by name."""
    if not command:
        return {"--debug", "--help", "--version"}
    found = app[command[0]] if len(command) == 1 else app[command[0]][command[1]]
    if found.default_command is None:
        return set().union(*(options_of(*command, name) for name in found if name[0] != "-"))
    arguments = found.assemble_argument_collection()
    return {name for argument in arguments if argument.parse for name in argument.names}


def texts(path: Path) -> Iterator[str]:
    """All strings of a module, those with gaps in one piece."""
    tree = ast.parse(path.read_text("utf-8"))
    inner = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in node.values}
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            yield "".join(map(str, parts))
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner
        ):
            yield node.value


def modules(*rooms: str) -> list[str]:
    """Modules of the package in these folders."""
    paths = (str(path.relative_to(PACKAGE)) for path in sorted(PACKAGE.rglob("*.py")))
    return [path for path in paths if path.split("/")[0] in rooms]


OUTSIDE = sorted(
    {str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py")} - {*modules("cli", "web")}
)


@pytest.mark.parametrize("module", OUTSIDE)
def test_library_speaks_of_arguments_not_of_options(module):
    named = [OPTION.findall(text) for text in texts(PACKAGE / module)]
    assert not any(named), [found for found in named if found]


@pytest.mark.parametrize("module", modules("cli", "web"))
def test_every_option_that_is_named_exists(module):
    room, name = module.split("/")[:2]
    default = ("serve",) if room == "web" else (Path(name).stem,)
    known = options_of(*SPEAKS_OF.get(module, default)) | options_of()
    for text in texts(PACKAGE / module):
        if ">>>" in text or text in ("--output", "--json"):
            continue  # an example, run as one; where the option is made
        for match in OPTION.finditer(text):
            elsewhere = re.match(r" of cofuse (\w+)", text[match.end() :])
            there = options_of(elsewhere[1]) if elsewhere else known
            assert match[0] in there, (match[0], text)


def arguments_there_are() -> set[str]:
    """Names of all parameters and fields in the package."""
    names = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
    return names


def messages(path: Path) -> Iterator[str]:
    """Strings of a module that are no docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    explained = {ast.get_docstring(node, clean=False) for node in nodes}
    yield from (text for text in texts(path) if text not in explained)


def test_every_argument_that_a_message_names_exists():
    known = arguments_there_are()
    named = {
        name
        for path in PACKAGE.rglob("*.py")
        for text in messages(path)
        for name in ARGUMENT.findall(text)
    }
    assert {"overwrite", "max_memory", "depth", "sigma"} <= named <= known


def test_arguments_become_the_options_of_the_command_at_hand():
    said = "`overwrite=True`, `depth=16`, `setting`, `align=False`, `device='cpu'`"
    assert in_options(said, ["fuse", "a.png"]) == (
        "--overwrite, --bit-depth 16, --set, --no-align, --device cpu"
    )
    # What a command does not have is not named as if it had.
    assert in_options(said, ["compare"]) == said.replace("`overwrite=True`", "--overwrite")
    assert in_options("`overwrite=True`", ["operators", "show"]) == "--overwrite"
    for tokens in ([], ["--help"], ["nonsense"], ["operators"], ["operators", "nonsense"]):
        assert in_options(said, tokens) == said


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_is_told_of_an_option_it_has_not(command):
    if command == "operators":
        return
    words = sorted(arguments_there_are())
    said = in_options(
        " ".join(f"`{word}` `{word}=True` `{word}=False`" for word in words), [command]
    )
    assert set(OPTION.findall(said)) <= options_of(command)


def test_following_the_advice_works(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in "ab":
        write_image(f"{name}.tif", rng.integers(0, 65535, (24, 24), np.uint16))
    plain = ("--no-align", "--preset", "fast", "--quiet")
    arguments = ("fuse", "a.tif", "b.tif", "-o", "out.jpg", *plain)
    assert run(*arguments) == 2
    advice = capsys.readouterr().err
    assert "give up the finer steps with --bit-depth 8" in advice
    assert run(*arguments, "--bit-depth", "8") == 0
    assert read_image("out.jpg").dtype == np.uint8
    capsys.readouterr()
    assert run(*arguments, "--bit-depth", "8") == 2
    assert "out.jpg exists; pass --overwrite to replace it" in capsys.readouterr().err
    assert run(*arguments, "--bit-depth", "8", "--overwrite") == 0
    assert run("fuse", "a.tif", "b.tif", "-o", "c.tif", "--max-memory", "1MB") == 2
    assert "allow more with --max-memory" in capsys.readouterr().err
