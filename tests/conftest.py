"""What all tests share: extras that may be missing, the summary, and fixtures of the commands.

A test that wants a package outside the extra ``dev`` or ``bench`` carries the marker ``extra`` with
the package's name, ``@pytest.mark.extra("torch")``. It is skipped where the package is missing, and
``make test-extras`` runs those tests alone, in an environment that has them all.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.command_line import PLAN, contents, run

# How long an example takes says more about the machine than about the law it is an example of.
hypothesis.settings.register_profile(
    "cofuse", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("cofuse")

_began = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budget", type=float, help="seconds the tests may take; told at the end")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to begin without what COFUSE_REQUIRE names: there, a skip would go unnoticed."""
    missing = [name for name in os.environ.get("COFUSE_REQUIRE", "").split() if not is_here(name)]
    if missing:
        raise pytest.UsageError(f"COFUSE_REQUIRE names {', '.join(missing)}, which is not here")


@cache
def is_here(name: str) -> bool:
    """Tell whether there is a program or a package of this name."""
    if shutil.which(name):
        return True
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("extra"):
            if not is_here(mark.args[0]):
                item.add_marker(pytest.mark.skip(f"{mark.args[0]} is not installed"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: Any, config: pytest.Config
) -> Generator[None, None, None]:
    """Say last, and in short, how much was skipped and why, and what all took."""
    yield
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
    )
    told = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common())
    terminalreporter.write_line(f"skipped: {reasons.total()}{told and ' (' + told + ')'}")
    if any("browser" in reason for reason in reasons):
        terminalreporter.write_line("THE PAGE WAS NOT TESTED IN A BROWSER", yellow=True, bold=True)
    if budget := config.getoption("budget"):
        spent = time.monotonic() - _began
        words = (
            f"took {spent:.0f} s; the budget is {budget:.0f} s on two processors without other work"
        )
        terminalreporter.write_line(words, yellow=spent > budget)


@pytest.fixture
def refused(place: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Check that a command line gets exit code 2, one line, and leaves every byte as it was.

    Returns the line without its beginning.

    What is seen only ``late``, in the midst of the work, is told after the plan.
    """

    def check(*arguments: object, words: tuple[str, ...] = (), late: bool = False) -> str:
        before = contents(place)
        capsys.readouterr()
        assert run(*arguments) == 2
        out, err = capsys.readouterr()
        if late:
            plan = re.match(PLAN, err)
            assert plan, err
            err = err[plan.end() :]
        assert out == "" and err.startswith("cofuse: error: ") and err.endswith("\n"), (out, err)
        assert err.count("\n") == 1 and len(err) > len("cofuse: error: ") + 10, err
        assert contents(place) == before
        for word in words:
            assert word in err, err
        return err.removeprefix("cofuse: error: ").strip()

    return check
