"""What a process takes: CPU time and memory of it and all its children, and the wall time."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

__all__ = ["Failure", "Measurement", "machine_facts", "processors", "run_measured"]

#: Seconds between two looks at the memory.
_INTERVAL = 0.02
#: Packages whose versions decide times and results.
_PACKAGES = ("cofuse", "numpy", "numba", "scipy", "opencv-python-headless", "tifffile", "bm3d")

#: The repository: commands find the benchmarks from here.
ROOT = Path(__file__).resolve().parents[1]


class Failure(Exception):
    """A measured command did not end well."""


@dataclass(frozen=True)
class Measurement:
    """What a process and its children took: seconds, and bytes at the peak.

    ``cpu`` is user and system time; ``load`` the machine's load average before it started.
    """

    cpu: float
    wall: float
    peak: int
    load: float
    output: str = ""

    def then(self, other: Measurement) -> Measurement:
        """Put another one, which ran after it, together with this one."""
        return Measurement(
            self.cpu + other.cpu,
            self.wall + other.wall,
            max(self.peak, other.peak),
            max(self.load, other.load),
            self.output + other.output,
        )


def processors(count: int) -> set[int]:
    """Choose processors to run on, of those that this process may use."""
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= count <= len(allowed):
        raise SystemExit(f"{count} processors were asked for, and {len(allowed)} are there")
    return set(allowed[:count])


def _environment(threads: int) -> dict[str, str]:
    """Variables that keep libraries with threads of their own to so many.

    NumPy's matrix products stay with one thread: cofuse has its own, and two layers of threads
    wait for each other.
    """
    many, one = str(threads), "1"
    return dict(os.environ) | {"OMP_NUM_THREADS": many, "OPENBLAS_NUM_THREADS": one}


def run_measured(
    command: Sequence[str | Path],
    *,
    threads: int,
    timeout: float = 7200.0,
) -> Measurement:
    """Run a command, in the folder of this repository, on so many processors and measure it.

    CPU time is what the kernel counts for the process and all children it waited for. Memory is
    the largest sum of resident sizes over the process and its children seen in samples, or the
    process's own peak as the kernel knows it, whichever is larger; pages that processes share
    count once for each.
    """
    chosen, load = processors(threads), os.getloadavg()[0]
    arguments = [str(part) for part in command]
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        child = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=_environment(threads),
            preexec_fn=lambda: os.sched_setaffinity(0, chosen),
            start_new_session=True,
        )
        peak = 0
        try:
            while True:
                peak = max(peak, _resident(child.pid))
                # Not poll(): it would take the child's own figures and throw them away.
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
                if pid:
                    break
                if time.perf_counter() - start > timeout:
                    raise Failure(f"{arguments[0]} took more than {timeout:g} s")
                time.sleep(_INTERVAL)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        wall = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)  # it was waited for already
        output.seek(0)
        said = output.read().decode(errors="replace")
    if child.returncode:
        last = "\n".join(said.strip().splitlines()[-12:])
        raise Failure(f"{Path(arguments[0]).name} ended with {child.returncode}: {last}")
    return Measurement(usage.ru_utime + usage.ru_stime, wall, peak, load, said)


def _resident(pid: int) -> int:
    """Bytes that a process and its children have now, or the most that the process alone had."""
    total = 0
    try:
        me = psutil.Process(pid)
        for process in (me, *me.children(recursive=True)):
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue
        status = Path(f"/proc/{pid}/status").read_text("ascii", errors="replace")
        if "VmHWM:" in status:  # a process that has ended shows none
            total = max(total, 1024 * int(status.split("VmHWM:")[1].split()[0]))
    except (psutil.Error, OSError):
        pass
    return total


def machine_facts() -> dict[str, Any]:
    """Tell on what and with what was measured."""
    return {
        "processor": _processor(),
        "processors": os.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "load": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
        "commit": _commit(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _commit() -> str | None:
    """Name the commit, and say whether files differ from it."""
    try:
        named = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return named.stdout.strip()
