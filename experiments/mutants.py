"""How good the tests are: lines of a module are changed at random, and its tests should notice.

    pip install "cosmic-ray>=8.3,<9"
    python -m experiments.mutants fusion/choice.py tests/test_fusion_choice.py --count 20

A place of the module and one of the changes that cosmic-ray knows for it are drawn at random: a
number one higher or lower, another operator or comparison, a loop that never runs, a condition
turned round. The tests then run on a copy of the working tree with that change. A mutant *survives*
if they pass; what was changed is printed, for it may change nothing that matters.
"""

from __future__ import annotations

import argparse
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Places that are left out: a vertical bar stands in type annotations, which nobody runs.
_LEFT_OUT = ("BitOr", "Variable")


def places_of(code: str) -> dict[tuple[Any, ...], list[tuple[str, int]]]:
    """Map every place that can be changed to its operators of cosmic-ray, with their occurrence."""
    from cosmic_ray import ast, plugins

    nodes = list(ast.ast_nodes(ast.get_ast(code)))
    places = defaultdict(list)
    for name in plugins.operator_names():
        if any(word in name for word in _LEFT_OUT):
            continue
        operator = plugins.get_operator(name)()
        found = (where for node in nodes for where in operator.mutation_positions(node))
        for occurrence, where in enumerate(found):
            places[where].append((name, occurrence))
    return dict(places)


def mutant(code: str, name: str, occurrence: int) -> str | None:
    """Apply one change; None if cosmic-ray finds no place for it."""
    from cosmic_ray import mutating, plugins

    changed: str | None = mutating.mutate_code(code, plugins.get_operator(name)(), occurrence)
    return changed


def survives(tree: Path, tests: list[str], timeout: float) -> bool:
    """Run tests on a working tree."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> None:
    """Print every survivor and their number."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("module", help="below src/cofuse")
    parser.add_argument("tests", nargs="+", help="what pytest is given")
    parser.add_argument("--count", type=int, default=20, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one run of tests")
    options = parser.parse_args()
    code = (ROOT / "src" / "cofuse" / options.module).read_text("utf-8")
    places = places_of(code)
    rng = random.Random(options.seed)
    drawn = rng.sample(sorted(places), min(options.count, len(places)))
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for part in ("src", "tests", "docs", "experiments", "benchmarks"):
            shutil.copytree(ROOT / part, tree / part)
        shutil.copy(ROOT / "pyproject.toml", tree)
        file = tree / "src" / "cofuse" / options.module
        if not survives(tree, options.tests, options.timeout):
            sys.exit("the tests fail without any change")
        left = 0
        for where in drawn:
            name, occurrence = rng.choice(places[where])
            changed = mutant(code, name, occurrence)
            if changed is None:
                continue
            file.write_text(changed, "utf-8")
            if survives(tree, options.tests, options.timeout):
                left += 1
                lines = difflib.unified_diff(
                    code.split("\n"), changed.split("\n"), n=0, lineterm=""
                )
                print(*list(lines)[2:], sep="\n", flush=True)
    print(f"{options.module}: {left} of {len(drawn)} mutants survive ({len(places)} places)")


if __name__ == "__main__":
    main()
