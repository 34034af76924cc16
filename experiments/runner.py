"""Runs cases in worker processes, one core each, and gathers an experiment's rows in one JSON file.

What has been computed is not computed again: an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from experiments.cases import Case, case_key, code_version, load, solve, write_json

__all__ = ["Outcome", "cores", "machine", "run_cases", "save_rows"]

Row = dict[str, Any]

#: Libraries that would start threads of their own inside a worker, told before they are loaded.
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENCV_FOR_THREADS_NUM": "1",
}


@dataclass
class Outcome:
    """The rows of an experiment in the order of its cases; how many were computed and failed."""

    rows: list[Row] = field(default_factory=list)
    computed: int = 0
    failed: int = 0


def run_cases(
    name: str, cases: Sequence[Case], *, data: Path | None, results: Path, workers: int
) -> Outcome:
    """Load every case, or compute it where that was not done before."""
    versions = {method: _version_at_start(method) for method in {case.method for case in cases}}
    folder = results / "cases"
    paths = {case: folder / f"{case_key(case, data, versions[case.method])}.json" for case in cases}
    records = {case: load(path, case) for case, path in paths.items()}
    missing = [case for case, record in records.items() if record is None]
    progress = _Progress(name, len(missing), len(records) - len(missing))
    outcome = Outcome(computed=len(missing))
    if missing:
        with _pool(min(workers, len(missing))) as pool:
            futures = {
                pool.submit(solve, case, data, paths[case], versions[case.method]): case
                for case in missing
            }
            for future in as_completed(futures):
                case = futures[future]
                records[case] = future.result()
                progress.done(case, records[case])
    progress.finish()
    outcome.rows = [record for case in cases if (record := records[case])]
    outcome.failed = sum("error" in row for row in outcome.rows)
    return outcome


def save_rows(path: Path, outcome: Outcome, **more: Any) -> None:
    """Write an experiment's rows, for drawing to read."""
    rows = [{k: v for k, v in row.items() if k != "traceback"} for row in outcome.rows]
    write_json(path, {"machine": machine(), **more, "rows": rows})


def cores() -> list[int]:
    """List the processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def machine() -> str:
    """Describe the machine in words."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    python = f"Python {platform.python_version()}"
    return f"{model}, {len(cores())} cores, {platform.system()}, {python}"


@cache
def _version_at_start(method: str) -> str | None:
    """One run is of one source: the one that was there when it began."""
    return code_version(method)


@contextmanager
def _pool(workers: int) -> Any:
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


class _Progress:
    """Tells on stderr how many cases are done."""

    def __init__(self, name: str, missing: int, reused: int) -> None:
        self.name, self.total, self.reused = name, missing, reused
        self.finished, self.told = 0, 0.0
        if not missing:
            self._say(f"all {reused} cases are there")

    def done(self, case: Case, row: Row) -> None:
        """Count a finished case."""
        self.finished += 1
        if "error" in row:
            self._say(f"FAILED {case}: {row['error']}\n")
        now = time.monotonic()
        last = self.finished == self.total
        if now - self.told > (0.2 if sys.stderr.isatty() else 15.0) or last:
            self.told = now
            again = f", {self.reused} reused" if self.reused else ""
            self._say(f"{self.finished} of {self.total} cases computed{again}")

    def finish(self) -> None:
        """End the line."""
        if sys.stderr.isatty():
            print(file=sys.stderr, flush=True)

    def _say(self, text: str) -> None:
        start, end = ("\r\033[K", "") if sys.stderr.isatty() else ("", "\n")
        print(f"{start}{self.name}: {text}", end=end, file=sys.stderr, flush=True)
