"""What tests of several commands share; the fixture ``place`` is each module's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import PLAN, contents, run


@pytest.fixture
def refused(place: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Check that a command line gets exit code 2, one line, and leaves every byte as it was.

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
        return err

    return check
