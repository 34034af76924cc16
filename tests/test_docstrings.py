"""Examples in docstrings of public names run as they stand."""

from __future__ import annotations

import doctest
import importlib

import pytest

import cofuse

#: Modules whose public names have examples.
MODULES = (
    "cofuse.evaluation.simulation",
    "cofuse.fusion.fusing",
    "cofuse.sensor.estimation",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_run(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 2 and not found.failed


def test_no_module_with_examples_is_forgotten():
    homes = {getattr(getattr(cofuse, name), "__module__", "cofuse") for name in cofuse.__all__}
    having = {
        home
        for home in homes
        if any(
            test.examples for test in doctest.DocTestFinder().find(importlib.import_module(home))
        )
    }
    assert having == set(MODULES)
