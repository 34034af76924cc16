"""One *trial*: a method in one situation, scored, kept as one JSON file; and running many.

As with the experiments' cases, the file is named by all its content depends on: the pictures, the
situation, the method and the source it runs through, so that a run goes on where it stopped and
a change of `auto` costs no second run of its rivals. Source changed during a run is a failure.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import traceback
import warnings
from collections.abc import Iterable
from concurrent.futures import Executor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cofuse import CofuseError
from experiments.cases import (
    COMMON_ROOMS,
    OUR_ROOMS,
    RIVAL_ROOMS,
    digest,
    rooms_version,
    write_json,
)
from experiments.pictures import to_8_bit
from experiments.quality_methods import Denoised, run_method, uses_ours, uses_rivals
from experiments.quality_plan import VARIANTS
from experiments.quality_scenes import Situation, situation, situation_files
from experiments.quality_scores import scores_of

__all__ = [
    "COST_METHODS",
    "Record",
    "Trial",
    "aligning_version",
    "code_version",
    "denoising_version",
    "fused_picture",
    "package_version",
    "run_trials",
    "solve",
]

Record = dict[str, Any]

#: What is timed by the method ``cost``.
COST_METHODS = ("auto", "auto?", "bm3d+fast")

_HERE = ("cases", "pictures", "quality_methods", "quality_scenes", "quality_scores")


@dataclass(frozen=True)
class Trial:
    """What to compute. ``repeat`` is how often the method ``cost`` times each of its methods."""

    dataset: str
    item: int
    method: str
    sigma: float = 0.0
    noise: str = "white"
    change: str = ""
    crop: int = 0
    repeat: int = 0

    def situation(self, data: Path | None) -> Situation:
        """Make what the method is given."""
        return situation(
            data,
            self.dataset,
            self.item,
            noise=self.noise,
            sigma=self.sigma,
            change=self.change,
            crop=self.crop,
        )


def run_trials(
    trials: Iterable[Trial], *, data: Path | None, output: Path, pool: Executor
) -> dict[Trial, Record]:
    """Load every trial, or compute it where that was not done before."""
    wanted = list(dict.fromkeys(trials))
    versions = {method: _version_at_start(method) for method in {t.method for t in wanted}}
    paths = {t: output / "trials" / f"{_key(t, data, versions[t.method])}.json" for t in wanted}
    records = {trial: _load(path) for trial, path in paths.items()}
    missing = [trial for trial, record in records.items() if record is None]
    missing.sort(key=_order)
    futures = {
        pool.submit(solve, trial, data, paths[trial], output, versions[trial.method]): trial
        for trial in missing
    }
    for done, future in enumerate(as_completed(futures), 1):
        trial = futures[future]
        records[trial] = future.result()
        _tell(done, len(missing), len(wanted) - len(missing), trial, records[trial])
    return {trial: record for trial, record in records.items() if record is not None}


def solve(
    trial: Trial, data: Path | None, path: Path, output: Path, version: str | None = None
) -> Record:
    """Compute a trial and write its record; a failure is recorded, not raised."""
    record: Record = {"trial": asdict(trial)}
    try:
        _check_source(trial.method, version)
        denoised = Denoised(output / "denoised", denoising_version())
        if trial.method == "cost":
            record |= _time_methods(trial, data)
        else:
            given, started = _situation(trial, data), time.process_time()
            picture, sigma = fused_picture(trial.method, given, denoised)
            seconds = time.process_time() - started
            told = {"sigma": sigma, "true_sigma": given.sigma}
            record |= {"scores": scores_of(picture, given) | told, "seconds": seconds}
        _check_source(trial.method, version)
    except Exception as error:
        record["error"] = f"{type(error).__name__}: {error}"
        record["traceback"] = traceback.format_exc()
    write_json(path, record)
    return record


def fused_picture(method: str, given: Situation, denoised: Denoised) -> tuple[Any, float]:
    """Run a method; return its picture in 8 bits and the σ it went by."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="one frame only")
        fusion = run_method(method, given, denoised)
    return to_8_bit(given.stack.to_levels(np.asarray(fusion.image))), float(fusion.sigma)


def _time_methods(trial: Trial, data: Path | None) -> Record:
    """Time methods by turns, in CPU seconds; the median over the repeats counts."""
    given, fresh = _situation(trial, data), Denoised(None)
    small = situation(data, trial.dataset, trial.item, sigma=trial.sigma, crop=64)
    for method in COST_METHODS:
        run_method(method, small, fresh)  # so that no compiling or loading is timed
    seconds: dict[str, list[float]] = {method: [] for method in COST_METHODS}
    for turn in range(trial.repeat):
        for method in COST_METHODS[:: -1 if turn % 2 else 1]:
            started = time.process_time()
            run_method(method, given, fresh)
            seconds[method].append(time.process_time() - started)
    return {"scores": {m: float(np.median(s)) for m, s in seconds.items()}, "every": seconds}


_last: dict[Trial, Situation] = {}


def _situation(trial: Trial, data: Path | None) -> Situation:
    """Make a situation once for the methods that follow each other in it."""
    like = replace(trial, method="", repeat=0)
    if like not in _last:
        _last.clear()
        _last[like] = trial.situation(data)
    return _last[like]


def _key(trial: Trial, data: Path | None, version: str | None) -> str:
    inputs = [digest(file) for file in situation_files(data, trial.dataset, trial.item)]
    if trial.dataset == "misaligned":
        inputs.append(aligning_version())
    variant = VARIANTS.get(trial.method.removeprefix("variant "))
    given = json.dumps([asdict(trial), repr(variant), inputs, version], sort_keys=True)
    return hashlib.sha256(given.encode()).hexdigest()[:24]


def _load(path: Path) -> Record | None:
    """Read a record; None where it is missing, torn or failed."""
    try:
        record: Record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return None if "error" in record else record


def code_version(method: str) -> str:
    """Hash the source, and the learned data, that a method and its scores run through."""
    return rooms_version(_rooms(method), _HERE)


def package_version(method: str) -> str:
    """Hash what a method's picture depends on, but for the frames."""
    return rooms_version(_rooms(method))


def _rooms(method: str) -> tuple[str, ...]:
    """Name the rooms of the package that a method may run through."""
    ours = (*OUR_ROOMS, "model", "data/models") if uses_ours(method) else ()
    return COMMON_ROOMS + ours + (RIVAL_ROOMS if uses_rivals(method) else ())


@cache
def aligning_version() -> str:
    """Hash what aligned frames depend on, but for their files."""
    return rooms_version(("alignment", "files", "sensor"))


@cache
def _version_at_start(method: str) -> str | None:
    """One run is of one source: the one that was there when it began."""
    return code_version(method)


@cache
def denoising_version() -> str:
    """Hash the source a denoised frame depends on."""
    return rooms_version(("evaluation/baselines/denoising.py",))


def _check_source(method: str, version: str | None) -> None:
    if version is not None and code_version(method) != version:
        raise CofuseError("the source was changed during the run; run it again")


def _order(trial: Trial) -> tuple[Any, ...]:
    """Put slow trials first, or the last of them would keep a core waiting for the other.

    Those of one method go together, since neighbours run at the same time: they would denoise the
    same frames if they were of one scene. The fast ones go scene by scene, made once for all.
    """
    scene = (trial.dataset, trial.item, trial.noise, trial.sigma, trial.change)
    if trial.method.startswith(("bm3d", "cost", "paper", "sr-ksvd")):
        return (0, trial.method, trial.change, *scene)
    return (1, "", "", *scene)


_told = 0.0
_errors: set[str] = set()


def _tell(done: int, total: int, reused: int, trial: Trial, record: Record) -> None:
    """Say on stderr what is done, at most every ten seconds, and every new error."""
    global _told
    if record.get("error", "") not in {"", *_errors}:
        _errors.add(record["error"])
        print(f"FAILED {trial}: {record['error']}", file=sys.stderr, flush=True)
    if done == total or time.monotonic() - _told > 10.0:
        _told = time.monotonic()
        again = f", {reused} reused" if reused else ""
        print(f"{done} of {total} trials computed{again}", file=sys.stderr, flush=True)
