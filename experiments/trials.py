"""One *trial*: a method on one scene, scored and timed, kept as one JSON file; and running many.

The file is named by all its content depends on: the pictures' bytes, the situation, the method and
the source it runs through, so that a run goes on where it stopped and a change of `auto` costs no
second run of its rivals. Source is compared without comments and docstrings: rewording one costs
no hour of computing. Source that is changed during a run is a failure.
"""

from __future__ import annotations

import ast
import hashlib
import json
import multiprocessing
import os
import platform
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import cofuse
from benchmarks.measuring import processor_name
from experiments.methods import OURS, Denoised, run_method, uses_ours
from experiments.pictures import Situation, scene_files, situation, to_8_bit
from experiments.scores import scores_of

Record = dict[str, Any]

_PACKAGE = Path(cofuse.__file__).parent
#: What scores depend on whatever the method, and what our methods and the rivals run through.
_COMMON = ("arguments.py", "errors.py", "progress.py", "images", "operators", "data/samples")
_COMMON += ("evaluation/metrics", "evaluation/simulation.py")
_OURS = ("alignment", "fusion", "sensor", "model", "data/operators", "data/models")
_RIVALS = ("evaluation/baselines", "data/dictionaries")
_HERE = ("methods", "pictures", "scores")
#: Libraries that would start threads of their own inside a worker, told before they are loaded.
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM"), "1"
)


@dataclass(frozen=True)
class Trial:
    """What to compute.

    ``n`` is the side of patches or blocks, 0 for the method's own; ``crop`` the side of the middle
    that is cut out, 0 for all; ``repeat`` counts repeated timings, 0 for none, so that loading may
    be timed too; ``keep`` saves the fused picture beside the record.
    """

    dataset: str
    item: int
    method: str
    sigma: float = 0.0
    n: int = 0
    crop: int = 0
    repeat: int = 0
    keep: bool = False

    def situation(self, data: Path | None) -> Situation:
        """Make what the method is given."""
        return situation(data, self.dataset, self.item, self.sigma, self.crop)

    def key(self, data: Path | None, version: str) -> str:
        """Name the trial's file."""
        inputs = [digest(file) for file in scene_files(data, self.dataset, self.item)]
        if self.dataset == "misaligned":
            inputs.append(rooms_version(("alignment", "files", "sensor")))
        return _sha(json.dumps([asdict(self), inputs, version], sort_keys=True).encode())


def run_trials(
    trials: Iterable[Trial], *, data: Path | None, output: Path, pool: Executor
) -> dict[Trial, Record]:
    """Load every trial, or compute it where that was not done before."""
    wanted = list(dict.fromkeys(trials))
    versions = {method: _version_at_start(method) for method in {t.method for t in wanted}}
    folder = output / "trials"
    paths = {t: folder / f"{t.key(data, versions[t.method])}.json" for t in wanted}
    records = {trial: load(path, trial) for trial, path in paths.items()}
    missing = sorted((t for t, record in records.items() if record is None), key=_order)
    futures = {
        pool.submit(solve, trial, data, paths[trial], output, versions[trial.method]): trial
        for trial in missing
    }
    reused, told, errors = len(wanted) - len(missing), 0.0, set()
    for done, future in enumerate(as_completed(futures), 1):
        trial = futures[future]
        records[trial] = record = future.result()
        if "error" in record and record["error"] not in errors:
            errors.add(record["error"])
            print(f"FAILED {trial}: {record['error']}", file=sys.stderr, flush=True)
        if done == len(missing) or time.monotonic() - told > 10.0:
            told = time.monotonic()
            again = f", {reused} reused" if reused else ""
            print(f"{done} of {len(missing)} trials computed{again}", file=sys.stderr, flush=True)
    return {trial: record for trial, record in records.items() if record is not None}


def load(path: Path, trial: Trial) -> Record | None:
    """Read a record; None where it is missing, torn, failed or without its picture."""
    try:
        record: Record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    complete = not trial.keep or path.with_suffix(".png").exists()
    return record if complete and "error" not in record else None


def solve(
    trial: Trial, data: Path | None, path: Path, output: Path, version: str | None = None
) -> Record:
    """Compute a trial and write its record; a failure is recorded, not raised.

    Given the version its key was made with, it is a failure that the source has changed since.
    """
    record: Record = {"trial": asdict(trial)}
    try:
        _check_source(trial.method, version)
        given = _situation(replace(trial, method="", n=0, repeat=0, keep=False), data)
        denoised = Denoised(output / "denoised", denoising_version())
        if trial.repeat:
            _warm_up(trial.method, trial.n, trial.sigma > 0)
        wall, cpu = time.perf_counter(), time.process_time()
        picture, sigma = fused_picture(trial.method, trial.n, given, denoised)
        seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        record |= {"scores": scores_of(picture, given) | {"sigma": sigma}, "seconds": seconds}
        if trial.keep:
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path.with_suffix(".png")), picture)
            record["picture"] = str(path.with_suffix(".png"))
        _check_source(trial.method, version)
    except Exception as error:
        record["error"] = f"{type(error).__name__}: {error}"
        record["traceback"] = traceback.format_exc()
    write_json(path, record)
    return record


def fused_picture(method: str, n: int, given: Situation, denoised: Denoised) -> tuple[Any, float]:
    """Run a method; return its picture in 8 bits and the σ it went by."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="one frame only")
        fusion = run_method(method, n, given, denoised)
    return to_8_bit(given.stack.to_levels(np.asarray(fusion.image))), float(fusion.sigma)


@cache
def _warm_up(method: str, n: int, noise: bool) -> None:
    """Run a method once on a small picture, so that no loading is timed."""
    small = situation(None, "sample-2", 1, 15.0 if noise else 0.0, crop=48)
    run_method(method, n, small, Denoised(None))


_last: dict[Trial, Situation] = {}


def _situation(trial: Trial, data: Path | None) -> Situation:
    """Make a situation once for the methods that follow each other in it."""
    if trial not in _last:
        _last.clear()
        _last[trial] = trial.situation(data)
    return _last[trial]


def _order(trial: Trial) -> tuple[Any, ...]:
    """Put slow trials first, or the last of them would keep a core waiting for the other.

    Those of one method go together, since neighbours run at the same time: they would denoise the
    same frames if they were of one scene. The fast ones go scene by scene, made once for all. What
    is timed keeps its order.
    """
    scene = (trial.dataset, trial.item, trial.sigma)
    if trial.repeat:
        return (0,)
    if trial.method.startswith(("bm3d", "paper", "sr-ksvd")):
        return (1, trial.method, *scene)
    return (2, "", *scene)


# --- versions of the source ---


def code_version(method: str) -> str:
    """Hash the source, and the learned data, that a method and its scores run through."""
    return rooms_version(_rooms(method), _HERE)


def package_version(method: str) -> str:
    """Hash what a method's picture depends on, but for the frames."""
    return rooms_version(_rooms(method))


@cache
def _version_at_start(method: str) -> str:
    """One run is of one source: the one that was there when it began."""
    return code_version(method)


@cache
def denoising_version() -> str:
    """Hash the source a denoised frame depends on."""
    return rooms_version(("evaluation/baselines/denoising.py",))


def rooms_version(rooms: Sequence[str], experiments: Sequence[str] = ()) -> str:
    """Hash the source and data of rooms of the package and of modules of the experiments."""
    found = [path for room in rooms for path in _files_of(_PACKAGE / room)]
    found += [Path(__file__).with_name(f"{name}.py") for name in experiments]
    return _hash_files(tuple((path, path.stat().st_mtime_ns) for path in found))


def _rooms(method: str) -> tuple[str, ...]:
    """Name the rooms of the package that a method may run through."""
    return _COMMON + _OURS * uses_ours(method) + _RIVALS * (method not in OURS)


def _check_source(method: str, version: str | None) -> None:
    if version is not None and code_version(method) != version:
        raise RuntimeError("the source was changed during the run; run it again")


def _files_of(room: Path) -> list[Path]:
    """List the source and data files of a room, in a fixed order."""
    files = [room] if room.suffix == ".py" else sorted(room.rglob("*"))
    found = [path for path in files if path.is_file() and "__pycache__" not in path.parts]
    if not found:
        raise FileNotFoundError(f"there is nothing in {room}")
    return found


@cache
def _hash_files(stamped: tuple[tuple[Path, int], ...]) -> str:
    """Hash files; their times of change are there for the cache only."""
    parts = [_source(path) if path.suffix == ".py" else path.read_bytes() for path, _ in stamped]
    return _sha(b"\0".join(parts))


def _source(path: Path) -> bytes:
    """Return a module's code without comments, docstrings and layout."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                body[0] = ast.Pass()
    return ast.dump(tree).encode()


@cache
def digest(path: Path) -> str:
    return _sha(path.read_bytes())


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]


# --- files and processes ---


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file that is there whole or not at all."""
    write_whole(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a text file that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(text, "utf-8")
    partial.replace(path)


def cores() -> list[int]:
    """List the processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def machine() -> str:
    """Describe the machine in words."""
    python = f"Python {platform.python_version()}"
    return f"{processor_name()}, {len(cores())} cores, {platform.system()}, {python}"


def run_all(
    work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], workers: int, name: str
) -> list[Any]:
    """Call a function with every tuple of arguments in worker processes; tell how far it is."""
    with worker_pool(min(workers, len(tasks))) as pool:
        futures = [pool.submit(work, *task) for task in tasks]
        for done, future in enumerate(as_completed(futures), 1):
            future.result()
            print(f"{done} of {len(tasks)} {name}", file=sys.stderr, flush=True)
    return [future.result() for future in futures]


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Start workers, each with a core of its own; at an interrupt stop them at once."""
    context = multiprocessing.get_context("spawn")
    turns = context.Queue()
    available = cores()
    for turn in range(workers):
        turns.put(available[turn % len(available)])
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(_ONE_THREAD)  # spawned processes start with this environment
    pool = ProcessPoolExecutor(workers, context, _start_worker, (turns,))
    try:
        yield pool
    except BaseException:
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _start_worker(turns: Any) -> None:
    """Pin this worker to a core, and end with the parent even if that is killed."""
    core = turns.get()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
