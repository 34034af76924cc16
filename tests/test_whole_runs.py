"""Runs in processes of their own: stopped, killed, side by side, with too little of everything."""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import shlex
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import cofuse
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.files import write_image
from cofuse.files.locks import locked
from cofuse.images import memory
from cofuse.jobs import run as job_room
from cofuse.jobs.batch import lock_path
from tests.command_line import PLAN, contents, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of Unix")

FAST = ("--preset", "fast", "--sigma", "0", "--no-align", "--hot-pixels", "off")
#: Hidden folders are there while it fuses.
FUSE = ("fuse", "stack", "-o", "out/x.tif", "--depth-map", "out/d.png", *FAST)
INTERRUPTED = "cofuse: interrupted; nothing was written half\n"


@pytest.fixture(scope="module")
def frames() -> list[np.ndarray[Any, Any]]:
    grey = cv2.cvtColor(sample_picture(), cv2.COLOR_RGB2GRAY)
    return list(simulate_stack(grey, frames=4, sigma=0.0, shape=(96, 96), seed=4).frames)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frames: Any) -> Path:
    """The working directory with a stack of four frames and an empty folder, out."""
    (tmp_path / "stack").mkdir()
    (tmp_path / "out").mkdir()
    for k, frame in enumerate(frames):
        write_image(tmp_path / f"stack/{k}.png", frame)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def stacks(place: Path, frames: Any) -> Path:
    """Three stacks in a folder."""
    for name in "abc":
        (place / "many" / name).mkdir(parents=True)
        for k in range(2):
            write_image(place / "many" / name / f"{k}.png", frames[k])
    return place / "many"


def listening() -> None:
    """Hear signals that whoever runs the tests may ignore, as nohup and shells do for jobs."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def started(*arguments: object, python: tuple[str, ...] = (), **more: Any) -> Any:
    """Start the command in a process of its own."""
    more.setdefault("preexec_fn", listening)
    return subprocess.Popen(
        [sys.executable, *python, "-m", "cofuse", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def ended(process: Any) -> tuple[int, str]:
    """Wait for the end: the exit code, and what was said but for the plan."""
    _, err = process.communicate(timeout=300)
    return process.returncode, re.sub(PLAN, "", err)


def wait_for(process: Any, event: Callable[[], Any]) -> None:
    """Wait for something that a process brings about."""
    end = time.monotonic() + 300
    while not event():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.001)


def hidden(folder: Path) -> list[str]:
    """Hidden files and folders; what vanishes meanwhile is let pass."""
    found = [name for _, folders, files in os.walk(folder) for name in (*folders, *files)]
    return [name for name in found if name.startswith(".")]


def limited(size: int) -> Callable[[], None]:
    """Limit the addresses of a child, as ulimit -v does."""
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size))


# --- stopped -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_stopped_run_leaves_nothing(place, number):
    before = contents(place)
    process = started(*FUSE)
    wait_for(process, lambda: hidden(place / "out"))
    process.send_signal(number)
    assert ended(process) == (128 + number, INTERRUPTED)
    assert contents(place) == before


def test_stopped_many_times_cleans_up_all_the_same(place):
    before = contents(place)
    process = started(*FUSE)
    wait_for(process, lambda: hidden(place / "out"))
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.002)
    assert ended(process) == (130, INTERRUPTED)
    assert contents(place) == before


@pytest.mark.parametrize("module", ["cyclopts.core", "numpy", "cofuse.jobs.run"])
def test_stopped_while_libraries_are_loaded(place, module):
    before = contents(place)
    process = started(*FUSE, python=("-X", "importtime"))
    said = ""
    while not said.endswith(f" {module}\n"):
        said = process.stderr.readline()
        assert said, "the module was never loaded"
    process.send_signal(signal.SIGINT)
    code, rest = ended(process)
    lines = [line for line in rest.splitlines() if not line.startswith("import time:")]
    assert (code, lines) == (130, [INTERRUPTED.rstrip()])
    assert contents(place) == before


@pytest.mark.parametrize("place_of_it", ["exec", "del"])
def test_stopped_where_python_makes_something_else_of_it(place_of_it):
    """In text that is executed, which ends Python by the signal; where no exception gets out."""
    script = """if 1:
        import os, signal, sys, time
        import cofuse.cli.application
        from cofuse.cli import main

        class Del:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)

        def stop(tokens):
            if sys.argv[1] == "exec":
                exec("signal.raise_signal(signal.SIGINT)", globals())
            Del()
            time.sleep(60)

        cofuse.cli.application.load_commands = stop
        sys.exit(main())
    """
    command = [sys.executable, "-c", script, place_of_it]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, preexec_fn=listening
    )
    assert (done.returncode, done.stderr) == (130, INTERRUPTED)


def test_what_the_shell_has_switched_off_stays_so(place):
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731
    process = started(*FUSE, preexec_fn=ignore)
    wait_for(process, lambda: hidden(place / "out"))
    process.send_signal(signal.SIGINT)
    assert ended(process) == (0, "")


def test_killed_run_can_be_done_again_and_leaves_nothing_then(place, frames):
    process = started(*FUSE)
    wait_for(process, lambda: hidden(place / "out"))
    process.kill()
    assert ended(process)[0] == -signal.SIGKILL
    assert hidden(place / "out") and not [*(place / "out").glob("[!.]*")]
    assert ended(started(*FUSE)) == (0, "")
    assert not hidden(place)
    names = {path.name for path in (place / "out").rglob("*")}
    assert names == {"x.tif", "d.png", "d-colours.png"}


def test_stopped_batch_goes_on(stacks, place):
    process = started("batch", "many", "-o", "out", *FAST)
    wait_for(process, lambda: hidden(place / "out"))
    process.terminate()
    code, err = ended(process)
    assert code == 143 and err.endswith(INTERRUPTED) and not hidden(place)
    assert ended(started("batch", "many", "-o", "out", *FAST))[0] == 0
    facts = json.loads((place / "out/batch.json").read_text())
    assert set(facts["counts"]) <= {"done", "done before"} and sum(facts["counts"].values()) == 3


def test_stopped_when_all_is_done_is_done(place):
    """Signals that come while Python shuts down change nothing."""
    process = started("fuse", "stack", "-o", "out/x.png", *FAST)
    assert process.stdout.readline().endswith(": out/x.png\n")
    while process.poll() is None:
        process.terminate()
        time.sleep(0.002)
    code, err = ended(process)
    assert (place / "out/x.png").exists()
    assert (code, err) in ((0, ""), (143, INTERRUPTED))


@pytest.mark.slow
def test_killed_at_any_time_runs_can_be_done_again(place):
    random = np.random.default_rng(1)
    took = time.monotonic()
    assert ended(started(*FUSE, "--source-map", "out/s.png")) == (0, "")
    took = time.monotonic() - took
    for _ in range(10):
        for path in sorted((place / "out").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        process = started(*FUSE, "--source-map", "out/s.png")
        time.sleep(float(random.uniform(0, took)))
        process.kill()
        ended(process)
        begun = {path.name for path in (place / "out").glob("[!.]*")}
        code, err = ended(started(*FUSE, "--source-map", "out/s.png"))
        # Refused only where the run had come to its end.
        assert code == 0 or (code == 2 and begun and "exists" in err)
        assert not hidden(place) and len({*(place / "out").rglob("*")}) == 5


# --- side by side --------------------------------------------------------------------------------


def test_two_batches_share_the_stacks(stacks, place):
    both = [started("batch", "many", "-o", "out", *FAST) for _ in range(2)]
    codes = [ended(process) for process in both]
    for code, err in codes:
        # One may end while the other is still at work, and says so.
        assert code == 0 or (code == 1 and "in work: process" in err), err
        assert "failed" not in err
    assert 0 in [code for code, _ in codes]
    facts = json.loads((place / "out/batch.json").read_text())
    assert {stack["state"] for stack in facts["stacks"]} <= {"done", "done before"}
    names = {f"{name}.{suffix}" for name in "abc" for suffix in ("tif", "json")}
    assert {path.name for path in (place / "out").iterdir()} == {*names, "batch.json"}


def test_stack_that_another_run_is_at_is_left_to_it(stacks, place, capsys):
    lock = lock_path(place / "out", "b")
    with locked(lock):
        assert run("batch", "many", "-o", "out", *FAST) == 1
        out, err = capsys.readouterr()
        assert err.count(f"b: in work: process {os.getpid()} is at work on it") == 1
        facts = json.loads((place / "out/batch.json").read_text())
        assert facts["counts"] == {"done": 2, "in work": 1} and "2 done, 1 in work" in out
        assert lock.exists()
    assert run("batch", "many", "-o", "out", *FAST) == 0
    assert not hidden(place)


# --- too little ----------------------------------------------------------------------------------


def test_limit_on_addresses_is_told_before_the_work(stacks, place):
    before = contents(place)
    for size, words in ((200, "expected 1000 MB or more"), (1100, "of memory at least, but only")):
        code, err = ended(started("fuse", "stack", "-o", "x.png", preexec_fn=limited(size * 10**6)))
        assert code == 2 and words in err and err.startswith("cofuse: error: "), err
        assert err.count("\n") == 1 and contents(place) == before
    code, err = ended(started("batch", "many", "-o", "out", preexec_fn=limited(1_100_000_000)))
    assert code == 1 and err.count("of memory at least, but only") == 3, err


def test_no_memory_left_is_told_in_one_line(stacks, place):
    before = contents(place)
    # Coefficients of as many patches for as many filters as may be asked for take 16 GB.
    most = "--patches", 10**6, "--rows", 4096
    process = started("learn", "stack", "-o", "l.npz", *most, preexec_fn=limited(1_300_000_000))
    code, err = ended(process)
    assert code == 2 and err.startswith("cofuse: error: out of memory; "), err
    assert err.count("\n") == 1 and contents(place) == before


def no_memory(*_: Any, **__: Any) -> Any:
    np.empty((10**9, 10**9), np.uint8)


def test_no_memory_left_in_a_job_names_the_stage(stacks, place, monkeypatch, capsys):
    monkeypatch.setattr(job_room, "fuse", no_memory)
    before = contents(place)
    assert run("fuse", "stack", "-o", "x.png", "--quiet") == 2
    err = capsys.readouterr().err
    assert re.fullmatch(r"cofuse: error: out of memory at the stage align; close .*\n", err), err
    assert contents(place) == before
    assert run("batch", "many", "-o", "out", "--quiet") == 1
    assert capsys.readouterr().err.count("failed: out of memory at the stage") == 3


def huge_png(width: int, height: int) -> bytes:
    """A small file that declares many pixels, all black."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    packer = zlib.compressobj(1)
    rows = b"".join(packer.compress(bytes(1 + 2 * width)) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 16, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the peak")
def test_ceiling_is_looked_at_before_the_first_frame_is_decoded(place):
    huge = huge_png(12_000, 8_000)  # 192 MB
    for name in ("a.png", "b.png"):
        Path(name).write_bytes(huge)
    script = """if 1:
        from pathlib import Path
        from cofuse.cli import main
        command = ["fuse", "a.png", "b.png", "-o", "x.tif", "--max-memory", "300MB"]
        assert main(command) == 2
        print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
    """
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert "need" in done.stderr and "but only 300 MB may be used" in done.stderr
    assert done.stderr.count("\n") == 1 and int(done.stdout) < 150_000


def test_more_than_the_machine_has_is_refused_before_the_work(place, monkeypatch, capsys):
    monkeypatch.setattr(memory, "available_memory", lambda: 10_000_000)
    monkeypatch.setattr(memory, "used_memory", lambda: 60_000_000)
    assert run("fuse", "stack", "-o", "x.tif") == 2
    err = capsys.readouterr().err
    assert re.search(r"need \d+ MB of memory at least, but only 70 MB can be had; close", err), err
    # Who names a ceiling may have the system swap.
    assert run("fuse", "stack", "-o", "x.tif", "--max-memory", "1GB", *FAST) == 0


@pytest.mark.parametrize("closed", ["2>&-", "0<&- >&- 2>&-"])
def test_closed_streams_do_not_matter(place, closed):
    line = shlex.join([sys.executable, "-m", "cofuse", "fuse", "stack", "-o", "out/x.png", *FAST])
    assert subprocess.run(["sh", "-c", f"exec {line} {closed}"], timeout=300).returncode == 0
    assert [path.name for path in (place / "out").iterdir()] == ["x.png"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_output_that_cannot_be_printed_is_told_in_one_line(place):
    for python, command in (
        ((), ("fuse", "stack", "-o", "x.png", "--json", *FAST)),
        (("-u",), ("operators", "list")),
    ):
        line = shlex.join([sys.executable, *python, "-m", "cofuse", *command])
        done = subprocess.run(
            ["sh", "-c", f"exec {line} > /dev/full"], capture_output=True, text=True, timeout=300
        )
        expected = "cofuse: error: output cannot be written (No space left on device); send it "
        assert (done.returncode, done.stderr) == (2, expected + "elsewhere\n")
    assert (place / "x.png").exists()


@pytest.mark.parametrize(
    "command",
    [("simulate", "-o", "new/sim"), ("compare", "stack", "-o", "new", "--methods", "average")],
    ids=["simulate", "compare"],
)
def test_full_disk_leaves_nothing_of_a_folder_of_results(place, monkeypatch, capsys, command):
    before, flush, calls = contents(place), os.fsync, []

    def third_fails(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", third_fails)
    assert run(*command, "--quiet") == 2
    err = capsys.readouterr().err
    assert "(No space left on device); nothing was left behind" in err and ".cofuse" not in err
    assert contents(place) == before
    assert run(*command, "--quiet") == 0


# --- what cannot be read, or changes -------------------------------------------------------------


def bound_by_permissions() -> None:
    """Take from root, in a child, what lets it read all."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            assert ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="capabilities of Linux")
@pytest.mark.parametrize("more", [(), ("--recursive", "--gap", "10")], ids=str)
def test_folder_that_cannot_be_read_is_named_and_the_rest_is_done(stacks, place, more):
    (stacks / "lost+found").mkdir(mode=0)
    process = started("batch", "many", "-o", "out", *more, *FAST, preexec_fn=bound_by_permissions)
    code, err = ended(process)
    (stacks / "lost+found").chmod(0o700)
    assert code == 1 and "Traceback" not in err
    assert "lost+found: failed: many/lost+found cannot be opened: Permission denied" in err
    facts = json.loads((place / "out/batch.json").read_text())
    assert facts["counts"] == {"done": 3, "failed": 1}


def test_links_in_a_circle_are_named_and_the_rest_is_done(stacks, place, capsys):
    (stacks / "a/x.png").symlink_to("y.png")
    (stacks / "a/y.png").symlink_to("x.png")
    assert run("batch", "many", "-o", "out", *FAST) == 1
    err = capsys.readouterr().err
    assert "a: failed: many/a/x.png cannot be opened: Too many levels of symbolic links" in err
    assert json.loads(Path("out/batch.json").read_text())["counts"] == {"failed": 1, "done": 2}
    assert run("fuse", "stack", "-o", "many/a/x.png", *FAST) == 2


def test_frame_exchanged_while_it_runs_is_noticed(place, frames):
    before = set(contents(place))
    options = {"preset": "fast", "sigma": 0, "align": False}
    with pytest.raises(cofuse.CofuseError) as refusal:
        cofuse.fuse_files(
            "stack",
            "out/x.png",
            progress=lambda _: write_image("stack/1.png", frames[0], overwrite=True),
            **options,
        )
    assert str(refusal.value) == "stack/1.png changed while it was read; run again when it is whole"
    assert set(contents(place)) == before
