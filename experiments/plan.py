"""How much of the experiments is run: all, the quick form, or either on simulated pictures."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.pictures import LYTRO_PAIRS, LYTRO_TRIPLES, WHU_PAIRS
from experiments.runner import cores

__all__ = ["Plan", "add_arguments", "plan_from"]

Items = tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """What is computed on which scenes; the defaults are the full run."""

    data: Path | None
    results: Path
    workers: int = 1
    form: str = "full run"
    pairs: tuple[str, Items] = ("lytro", LYTRO_PAIRS)
    sizes: Items = (5, 6, 7, 8, 9)
    size_sigmas: Items = (0, 15)
    sigmas: Items = (0, 5, 10, 15, 20)
    timed: Items = (1, 5, 9, 13, 17)
    repeats: int = 1
    shown: int = 19
    triples: tuple[str, Items] = ("lytro_triple", LYTRO_TRIPLES)
    truth_pairs: tuple[str, Items] = ("mfi_whu", WHU_PAIRS)
    truth_pair_sigmas: Items = (0, 15, 25)
    stacks: tuple[str, Items] = ("stack", (3, 11, 19, 27, 35, 43, 51, 59))
    stack_frames: Items = (2, 3, 5, 10)
    stack_sigmas: Items = (0, 5, 15, 25)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("COFUSE_DATA") or None,
        help="folder of the picture collections (default: COFUSE_DATA)",
    )
    parser.add_argument("--quick", action="store_true", help="4 pairs, 3 points an axis")
    parser.add_argument(
        "--simulated", action="store_true", help="make small pairs of the package's own pictures"
    )
    parser.add_argument(
        "--results",
        type=Path,
        help="where everything is written (default: results, results/quick or results/simulated)",
    )
    parser.add_argument("--workers", type=int, help="worker processes (default: one a core)")


def plan_from(arguments: argparse.Namespace) -> Plan:
    """Make the plan the command line asks for."""
    data, results = arguments.data, arguments.results
    if not arguments.simulated and (data is None or not Path(data).is_dir()):
        raise SystemExit(
            "name the folder of the picture collections with --data or COFUSE_DATA, or run on the "
            "package's own pictures with --simulated"
        )
    if arguments.workers is not None and arguments.workers < 1:
        raise SystemExit(f"--workers is {arguments.workers}; expected 1 or more")
    if results is None:
        form = "simulated" if arguments.simulated else "quick" if arguments.quick else ""
        results = Path("results") / form
    workers = arguments.workers or len(cores())
    plan = Plan(None if arguments.simulated else Path(data), results, workers)
    plan = _quick(plan) if arguments.quick else plan
    return _simulated(plan) if arguments.simulated else plan


def _quick(plan: Plan) -> Plan:
    return replace(
        plan,
        form="quick run",
        pairs=("lytro", (1, 6, 11, 16)),
        sizes=(6, 7, 8),
        sigmas=(0, 5, 15),
        timed=(1, 11),
        repeats=1,
        triples=("lytro_triple", (1,)),
        truth_pairs=("mfi_whu", (1, 31, 61, 91)),
        truth_pair_sigmas=(0, 15),
        stacks=("stack", (3, 35)),
        stack_frames=(2, 3, 5),
        stack_sigmas=(0, 5, 25),
    )


def _simulated(plan: Plan) -> Plan:
    """Put small scenes made of the package's pictures in the place of every collection."""
    return replace(
        plan,
        form=f"{plan.form} on simulated pictures",
        pairs=("sample-2", (1, 2)),
        timed=(1,),
        shown=2,
        triples=("sample-3", (3,)),
        truth_pairs=("sample-2", (3, 4)),
        stacks=("sample", (5, 6)),
        stack_frames=(2, 5),
    )
