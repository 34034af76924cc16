"""What a process takes, on what machine, and tables of that in Markdown with places in a document.

Every benchmark writes its results as JSON, and makes its tables from that. A place in a document is
``<!-- bench:NAME -->`` … ``<!-- /bench -->``; what stands between is replaced.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

#: Seconds between two looks at the memory.
_INTERVAL = 0.02
#: Packages whose versions decide times and results.
_PACKAGES = ("cofuse", "numpy", "onnxruntime", "opencv-python-headless", "tifffile", "bm3d")
#: The repository: commands find the benchmarks from here.
ROOT = Path(__file__).resolve().parents[1]

#: Markdown by the name of its place.
Tables = dict[str, str]


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
        cpu, wall = self.cpu + other.cpu, self.wall + other.wall
        peak, load = max(self.peak, other.peak), max(self.load, other.load)
        return Measurement(cpu, wall, peak, load, self.output + other.output)


def processors(count: int | None = None) -> set[int]:
    """Choose processors to run on, of those that this process may use; all by default."""
    allowed = sorted(os.sched_getaffinity(0))
    count = len(allowed) if count is None else count
    if not 1 <= count <= len(allowed):
        raise SystemExit(f"{count} processors were asked for, and {len(allowed)} are there")
    return set(allowed[:count])


def run_measured(
    command: Sequence[str | Path], *, threads: int, timeout: float = 7200.0
) -> Measurement:
    """Run a command, in the folder of this repository, on so many processors and measure it.

    CPU time is what the kernel counts for the process and all children it waited for. Memory is
    the largest sum of resident sizes over the process and its children seen in samples, or the
    process's own peak as the kernel knows it, whichever is larger; pages that processes share
    count once for each.
    """
    chosen, load = processors(threads), os.getloadavg()[0]
    arguments = [str(part) for part in command]
    # NumPy's matrix products stay with one thread: cofuse has its own, and two layers of threads
    # wait for each other.
    limits = {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        child = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=dict(os.environ) | limits,
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
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    named = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    installed = {found.name.lower(): found.version for found in metadata.distributions()}
    return {
        "processor": processor_name(),
        "processors": os.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "load": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: installed[name] for name in _PACKAGES if name in installed},
        "commit": named.stdout.strip(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def processor_name() -> str:
    """Name the processor as its maker does, where the system tells."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text("utf-8") if info.exists() else "")
    return found[1] if found else platform.processor() or platform.machine()


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table; the first column holds words, the others figures."""
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---|" + "---:|" * (len(head) - 1), *lines[1:]])


def ratio(ours: float, theirs: float) -> str:
    """Write ours / theirs: below 1 we took less, above 1 more."""
    if theirs <= 0:
        return "–"
    value = ours / theirs
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def fill_places(text: str, tables: Mapping[str, str]) -> str:
    """Put tables in their places; one without a place is an error, a place without one stays."""
    for name, table in tables.items():
        place = re.compile(rf"(<!-- bench:{re.escape(name)} -->\n).*?(<!-- /bench -->)", re.DOTALL)
        if len(place.findall(text)) != 1:
            raise ValueError(f"expected one place <!-- bench:{name} --> … <!-- /bench -->")
        text = place.sub(lambda m, table=table: f"{m[1]}\n{table}\n\n{m[2]}", text)
    return text


def add_output_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Add what all benchmarks have: where results go, and making tables of earlier ones."""
    add = parser.add_argument
    add("--output", type=Path, default=Path(f"results/{name}.json"))
    add("--from", dest="earlier", type=Path, help="measure nothing, take these results")
    add("--update-docs", type=Path, help="put the tables in this document")


def write_results(options: argparse.Namespace, results: dict[str, Any]) -> None:
    """Write results, all or those so far, where the options say."""
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def deliver(
    options: argparse.Namespace,
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    tabulate: Callable[[dict[str, Any]], Tables],
) -> dict[str, Any]:
    """Measure or read results, write them, print their tables, and place these."""
    if options.earlier:
        results: dict[str, Any] = json.loads(options.earlier.read_text("utf-8"))
    else:
        results = measure(options)
        write_results(options, results)
    tables = tabulate(results)
    page = "\n\n".join(tables.values()) + "\n"
    print(page, end="", flush=True)
    if not options.earlier:
        options.output.with_suffix(".md").write_text(page, "utf-8")
    if options.update_docs:
        document: Path = options.update_docs
        document.write_text(fill_places(document.read_text("utf-8"), tables), "utf-8")
    return results
