"""Memory: sizes as people write them, shelves, plans, and results that are the same under any."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cofuse.errors import CofuseError
from cofuse.fusion import fuse
from cofuse.fusion.mixing import MixingRun
from cofuse.fusion.presets import Work, least_memory, plan_fusion
from cofuse.images import Stack
from cofuse.images.memory import (
    available_memory,
    default_ceiling,
    format_size,
    parse_size,
    used_memory,
)
from cofuse.images.store import Shelf, spill_folder
from cofuse.model import tiling
from cofuse.model.runtime import load_networks
from cofuse.model.weighing import ModelWeigher, noise_told
from cofuse.progress import silent
from cofuse.sensor import NoiseLaw
from tests.test_fusion import in_dtype, scene

Array = np.ndarray[Any, Any]

# --- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GB", 10**9),
        ("800M", 8 * 10**8),
        ("1.5 GiB", 3 << 29),
        (" 2gb ", 2 * 10**9),
        ("64k", 64_000),
        ("64KiB", 65_536),
        (".5t", 5 * 10**11),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GB", "-1GB", "1 G B", "1XB", "1.2.3M", "nan", "1,5GB", "0", "1e3"]
)
def test_other_words_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(CofuseError, match=r"\dGB"):
        parse_size(text)


@given(st.integers(1, 10**15))
def test_a_size_written_and_read_is_no_less_and_hardly_more(size: int) -> None:
    again = parse_size(format_size(size))
    assert size <= again <= max(size * 1.01, size + 1_000_000)


@given(st.integers(1, 2**45), st.sampled_from(["", "B"]))
def test_plain_numbers_are_bytes(size: int, unit: str) -> None:
    assert parse_size(f"{size}{unit}") == size


# --- how much there is ---------------------------------------------------------------------------


def test_this_process_has_some_memory_and_may_have_more() -> None:
    # In a process of its own: this one may have room that was used and freed before.
    code = (
        "from cofuse.images.memory import used_memory; before = used_memory()\n"
        "block = bytearray(b'x') * 100_000_000; print(before, used_memory())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before > 1_000_000 and before + 90_000_000 < after < before + 110_000_000
    assert 0 < available_memory() < 1 << 50
    assert used_memory() < default_ceiling()


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_containers_count(version: int, tmp_path: Path) -> None:
    root, line, limit, usage, stat = (
        (tmp_path, "0::/a/b", "memory.max", "memory.current", "inactive_file")
        if version == 2
        else (
            tmp_path / "memory",
            "5:cpu,memory:/a/b",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        )
    )
    for folder, most in (("a", "5000000"), ("a/b", "max" if version == 2 else str(2**62))):
        (root / folder).mkdir(parents=True)
        (root / folder / limit).write_text(most + "\n")
        (root / folder / usage).write_text("4000000\n")
        (root / folder / "memory.stat").write_text(f"anon 7\n{stat} 500000\n")
    (tmp_path / "cgroup").write_text(f"1:name=systemd:/x\n{line}\n")
    groups = tmp_path / "cgroup", tmp_path
    assert available_memory(groups) == 1_500_000
    (root / "a" / usage).write_text("9000000\n")
    assert available_memory(groups) == 0
    (root / "a" / limit).write_text("what\n")
    assert available_memory(groups) > 1 << 20


def test_temporary_files_go_to_a_disk_where_the_usual_folder_is_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("os.access", lambda *_: True)
    monkeypatch.setattr("os.path.realpath", lambda path: path)
    for mounts, folder in (
        ("disk / ext4 rw 0 0\n", None),
        ("disk / ext4 rw 0 0\nt /tmp tmpfs rw 0 0\n", "/var/tmp"),
        ("t / tmpfs rw 0 0\n", None),
        ("nonsense\n", None),
    ):
        (tmp_path / "mounts").write_text(mounts)
        assert spill_folder(tmp_path / "mounts") == folder
    monkeypatch.setenv("TMPDIR", "/tmp")  # who names a folder means it
    (tmp_path / "mounts").write_text("disk / ext4 rw 0 0\nt /tmp tmpfs rw 0 0\n")
    assert spill_folder(tmp_path / "mounts") is None


# --- shelves -------------------------------------------------------------------------------------


def spans(length: int) -> st.SearchStrategy[slice]:
    ends = st.tuples(st.integers(0, length), st.integers(0, length))
    return ends.map(lambda pair: slice(*sorted(pair))) | st.just(slice(None))


@given(st.data())
def test_a_shelf_gives_back_what_was_put_on_it(data: st.DataObject) -> None:
    tail = data.draw(st.sampled_from([(), (3,)]))
    shape = (*data.draw(st.tuples(st.integers(1, 6), st.integers(1, 6))), *tail)
    dtype = data.draw(st.sampled_from([np.uint8, np.uint16, np.float32, np.float64]))
    values = data.draw(arrays(dtype, (2, *shape), elements=st.integers(0, 200)))
    rows, columns = (data.draw(spans(length)) for length in shape[:2])
    shelf = Shelf(2, shape, dtype)
    for index in (1, 0):
        shelf.write(index, values[index])
    np.testing.assert_array_equal(shelf.read(1, rows, columns), values[1, rows, columns])
    part = values[0, rows, columns] + 1
    shelf.write(1, part, rows, columns)
    values[1, rows, columns] = part
    for index in (0, 1):
        np.testing.assert_array_equal(shelf.read(index), values[index])
        assert shelf.read(index).dtype == dtype


def test_a_shelf_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    opened = set(Path("/dev/fd").iterdir())
    shelf = Shelf(1, (9, 9), np.uint8)
    shelf.write(0, np.ones((9, 9), np.uint8))
    assert not list(tmp_path.iterdir())
    del shelf
    assert set(Path("/dev/fd").iterdir()) <= opened


def on_disk(frames: list[Array]) -> Stack:
    """Frames behind readers, so that they are kept in a file."""
    return Stack([lambda f=f: f.copy() for f in frames])  # type: ignore[misc]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_a_full_disk_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tempfile.TemporaryFile",
        lambda **_: Path("/dev/full").open("r+b", buffering=0),  # noqa: SIM115
    )
    stack = on_disk([np.zeros((40, 40), np.uint8)] * 3)
    with pytest.raises(CofuseError, match=r"No space left.*TMPDIR"):
        stack.kept()


# --- results do not depend on memory -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "dtype", "colour"),
    [
        ({"sigma": 0}, "uint8", False),
        ({"sigma": 0}, "uint16", True),
        ({"sigma": 12}, "uint8", True),
        ({"sigma": 12}, "float32", True),
        ({"sigma": 12, "denoise": 0.5}, "uint16", True),
        ({"sigma": 0.5}, "float32", False),
        ({}, "uint8", True),
    ],
)
def test_frames_kept_in_a_file_make_the_same_picture(
    options: dict[str, Any], dtype: str, colour: bool
) -> None:
    simulated = scene(options.get("sigma", 12), size=110, colour=colour)
    frames = [in_dtype(frame / 255, dtype) for frame in simulated.frames]
    arrays = fuse(frames, white=on_disk(frames).white, **options)
    files = fuse(on_disk(frames), **options)
    for name in ("image", "source_map", "confidence", "sigma"):
        assert np.array_equal(getattr(arrays, name), getattr(files, name)), name
    assert files.image.dtype == frames[0].dtype


@pytest.mark.parametrize("preset", ["fast", "paper"])
def test_the_other_presets_do_not_depend_on_it_either(preset: str) -> None:
    frames = list(scene(10, colour=True).frames)
    pictures = [fuse(given, sigma=10, preset=preset).image for given in (frames, on_disk(frames))]
    assert np.array_equal(*pictures)


# --- plans ---------------------------------------------------------------------------------------

sizes = st.integers(1, 12_000)
works = st.builds(
    lambda height, width, colour, dtype, frames, inside, preset: Work(
        (height, width, *[3] * colour), dtype, frames, preset, inside
    ),
    sizes,
    sizes,
    st.booleans(),
    st.sampled_from(["uint8", "uint16", "float32"]),
    st.integers(1, 500),
    st.booleans(),
    st.sampled_from(["auto", "fast", "paper"]),
)


@given(works, st.integers(10**8, 10**11))
def test_a_plan_stays_below_its_ceiling_or_is_refused(work: Work, ceiling: int) -> None:
    least = least_memory(work)
    if ceiling < least:
        with pytest.raises(CofuseError, match=r"need .* at least") as caught:
            plan_fusion(work, max_memory=ceiling)
        assert format_size(least) in str(caught.value)
    else:
        assert least <= plan_fusion(work, max_memory=ceiling).peak <= ceiling
        assert plan_fusion(work, max_memory=least).peak == least


@given(works)
def test_with_much_memory_tiles_are_as_large_as_is_good(work: Work) -> None:
    plan = plan_fusion(work, max_memory=1 << 60)
    assert plan.side == tiling.tile_sides(work.frames)[0] and plan.peak >= least_memory(work)


@given(works, st.integers(0, 300))
def test_frames_left_out_need_no_more(work: Work, out: int) -> None:
    """What is refused is refused before the frames are aligned, not after."""
    less = replace(work, frames=max(1, work.frames - out))
    assert least_memory(less) <= least_memory(work)


def test_the_figures_that_were_promised() -> None:
    camera = (4000, 6000, 3)
    for frames in (10, 100):
        assert plan_fusion(Work(camera, "uint8", frames)).peak < 1_500_000_000
    assert plan_fusion(Work(camera, "uint8", 112), max_memory=10**9).peak <= 10**9
    assert plan_fusion(Work((8165, 12247, 3), "uint8", 5)).peak < 4_000_000_000


def test_a_ceiling_below_what_is_needed_says_what_is() -> None:
    frames = [np.zeros((50, 60), np.uint8)] * 3
    with pytest.raises(CofuseError, match=r"3 frames of 60x50 pixels need \d+ MB .* only 1 MB"):
        fuse(frames, sigma=0, max_memory=1_000_000)


#: Fuses frames; prints the memory of the process before, and its most.
MEASURED = """
import re, sys
from pathlib import Path
import numpy as np
from cofuse import Stack, fuse

def status(name):
    return 1024 * int(re.search(rf"{name}:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

sigma = int(sys.argv[1])
rng = np.random.default_rng(0)
base = rng.integers(0, 256, (600, 640, 3), np.uint8)
small = [rng.integers(0, 256, (40, 40, 3), np.uint8) for _ in range(2)]
fuse(small, sigma=sigma)  # libraries are loaded
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # what was the most is so no more
fuse(Stack([lambda k=k: np.roll(base, k, axis=0) for k in range(4)]), sigma=sigma)
print(before, status("VmHWM"))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the most of a process")
@pytest.mark.parametrize("sigma", [0, 10])
def test_a_small_fusion_keeps_to_its_plan(sigma: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(sigma)], capture_output=True, text=True, check=True
    )
    before, peak = map(int, done.stdout.split())
    work = Work((600, 640, 3), "uint8", 4, restores=sigma > 0)
    # The noise was told: finding it, for which much is set aside, was not needed.
    assert before + 50_000_000 < peak < plan_fusion(work).peak


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the frames hardly differ")
def test_memory_grows_with_the_number_of_frames_by_tiles_alone() -> None:
    base = np.random.default_rng(0).random((7200, 64, 3), np.float32)
    networks, side = load_networks("auto"), tiling.LEAST_SIDE
    peaks, planned = [], []
    for count in (4, 4, 12):  # the first time modules are loaded
        stack = Stack([lambda k=k: np.roll(base, k, axis=0) for k in range(count)]).kept()  # type: ignore[misc]
        law = NoiseLaw.white(0, frames=count, colour=True)
        weigher = ModelWeigher(networks, noise_told(law), side, tiling.part_side(side))
        tracemalloc.start()
        try:
            MixingRun(
                stack=stack,
                progress=silent,
                weigher=lambda _, weigher=weigher: weigher,
                taken=range(count),
                model="auto",
            ).fuse(law, 1)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        planned.append(tiling.working_bytes((7200, 64), count, side))
    assert 0 < peaks[2] - peaks[1] < planned[2] - planned[1] < 8 * base.nbytes


def test_threads_may_share_a_shelf() -> None:
    """Readers of one file move its only position: without care each gets the others' pixels."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 255, (4, 200, 300), np.uint8)
    shelf = Shelf(4, (200, 300), np.uint8)
    for number, picture in enumerate(pictures):
        shelf.write(number, picture)

    def read_all(number: int) -> bool:
        part = slice(10, 190), slice(7, 290)
        return all(
            np.array_equal(shelf.read(number, *part), pictures[number][part]) for _ in range(40)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read_all, range(4)))
