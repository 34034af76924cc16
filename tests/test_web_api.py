"""The API as a program uses it: upload, start, follow, look, download, delete."""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
import threading
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cofuse.files import Metadata, read_image, read_metadata, write_image
from cofuse.images import Stack
from cofuse.web.options import Options, command_line
from cofuse.web.pyramid import to_srgb
from cofuse.web.reporting import Preview
from tests.command_line import run
from tests.web_server import (
    client_of,
    finished,
    frames,
    jpeg,
    png,
    small_stack,
    start,
    until,
    upload,
    without_time,
)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with client_of(tmp_path_factory.mktemp("data"), demo=False) as client:
        yield client


@pytest.fixture(scope="module")
def done(client):
    """A finished job with depth."""
    stack = small_stack(client)
    return finished(client, start(client, stack, depth=True, sigma=0))


def event_data(text: str) -> list[dict]:
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]


def test_info_tells_what_is_there(client):
    info = client.get("/api/info").json()
    assert [p["name"] for p in info["presets"]] == ["auto", "fast", "paper"]
    assert info["formats"] == ["tiff", "png", "jpeg"] and info["demo"] is False
    devices = {device["name"]: device["available"] for device in info["devices"]}
    assert devices["auto"] and devices["cpu"] and devices.keys() == {"auto", "cpu", "cuda", "mps"}
    assert info["limits"].keys() == {"bytes", "frames", "pixels", "queue"}
    schema = client.get("/api/openapi.json").json()
    assert "/api/jobs/{job}/events" in schema["paths"] and "/api/stacks" in schema["paths"]
    assert client.get("/api/docs").status_code == 404


def test_frames_come_in_natural_order_and_bad_ones_are_named(client):
    good = frames(2)
    cut = jpeg(good[0])[:600]
    files = {"f10.png": png(good[0]), "notes.jpg": b"no picture", "f2.png": png(good[1])}
    said = upload(client, files | {"cut.jpg": cut, "empty.png": b""})
    assert [f["name"] for f in said["stack"]["frames"]] == ["f2.png", "f10.png"]
    assert [r["name"] for r in said["refused"]] == ["notes.jpg", "cut.jpg", "empty.png"]
    for refused in said["refused"]:
        assert refused["name"] in refused["error"] and "/" not in refused["error"]
        assert "\n" not in refused["error"]
    frame = said["added"][0]
    assert (frame["width"], frame["height"], frame["depth"]) == (96, 72, 8) and frame["colour"]
    assert "suffix" not in frame and frame["bytes"] == len(files["f10.png"])
    stack = said["stack"]["id"]
    thumbnail = client.get(f"/api/stacks/{stack}/frames/{frame['id']}/thumbnail")
    assert Image.open(io.BytesIO(thumbnail.content)).size == (96, 72)
    folder = client.service.store.stacks[stack].folder / "frames"
    assert len(list(folder.iterdir())) == 4  # two frames, two thumbnails, nothing of the bad ones


def test_stack_can_be_put_in_order_renamed_and_taken_apart(client):
    stack = small_stack(client)
    ids = [f["id"] for f in client.get(f"/api/stacks/{stack}").json()["frames"]]
    changed = client.patch(f"/api/stacks/{stack}", json={"order": ids[::-1], "name": "New"}).json()
    assert [f["id"] for f in changed["frames"]] == ids[::-1] and changed["name"] == "New"
    wrong = client.patch(f"/api/stacks/{stack}", json={"order": ids[:1]})
    assert wrong.status_code == 422 and "every frame" in wrong.json()["error"]
    left = client.delete(f"/api/stacks/{stack}/frames/{ids[0]}").json()
    assert [f["id"] for f in left["frames"]] == [ids[2], ids[1]]
    assert client.delete(f"/api/stacks/{stack}").status_code == 204
    assert client.get(f"/api/stacks/{stack}").status_code == 404


def test_added_frames_leave_the_order_that_somebody_has_made(client):
    pictures = [png(frame) for frame in frames(6)]
    first = upload(client, {f"f{k}.png": pictures[k] for k in (1, 5, 3)})["stack"]

    def names(stack: dict) -> list[str]:
        return [frame["name"] for frame in stack["frames"]]

    assert names(first) == ["f1.png", "f3.png", "f5.png"]
    more = upload(client, {"f2.png": pictures[2]}, first["id"])["stack"]
    assert names(more) == ["f1.png", "f2.png", "f3.png", "f5.png"]
    turned = [frame["id"] for frame in more["frames"][::-1]]
    client.patch(f"/api/stacks/{first['id']}", json={"order": turned})
    last = upload(client, {"f4.png": pictures[4], "f0.png": pictures[0]}, first["id"])["stack"]
    assert names(last) == ["f5.png", "f3.png", "f2.png", "f1.png", "f0.png", "f4.png"]


def test_the_same_file_is_taken_once_and_that_is_said(client):
    one, other = (png(frame) for frame in frames(2))
    stack = upload(client, {"a.png": one})["stack"]["id"]
    said = upload(client, {"a.png": one, "b.png": other}, stack)
    assert [frame["name"] for frame in said["added"]] == ["b.png"]
    assert said["refused"] == [{"name": "a.png", "error": "a.png is in the stack already"}]
    # Another picture of the same name is another frame.
    assert len(upload(client, {"a.png": other}, stack)["stack"]["frames"]) == 3
    folder = client.service.store.stacks[stack].folder / "frames"
    assert len(list(folder.iterdir())) == 6


def test_frames_that_differ_are_a_problem_told_at_once(client):
    small, large = frames(1)[0], frames(1, (72, 100))[0]
    said = upload(client, {"a.png": png(small), "b.png": png(small), "c.png": png(large)})
    assert "sizes differ: c.png is 100x72" in said["stack"]["problem"]
    refused = client.post("/api/jobs", json={"stack": said["stack"]["id"]})
    assert refused.status_code == 422 and "sizes differ" in refused.json()["error"]
    deep = (small * np.uint16(256)).astype(np.uint16)
    said = upload(client, {"a.png": png(small), "b.png": png(deep)})
    assert "depths or colours differ" in said["stack"]["problem"]


def test_job_is_followed_to_its_end(client):
    job = start(client, small_stack(client))
    answer = client.get(f"/api/jobs/{job}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = event_data(answer.text)
    assert told[-1]["state"] == "done" and told[-1]["progress"] == 1.0
    shares = [one["progress"] for one in told]
    assert shares == sorted(shares) and told[-1]["preview"] >= 1
    assert all(one["stage"] for one in told if one["state"] == "running")
    assert told[-1]["result"]["names"] == ["f0.png", "f1.png", "f2.png"]
    assert "white" not in told[-1] and "frames" not in told[-1]
    preview = client.get(f"/api/jobs/{job}/preview?v=1")
    assert Image.open(io.BytesIO(preview.content)).size == (96, 72)
    assert client.get("/api/jobs").json()[0]["id"] == job


def test_pictures_in_tiles(client, done):
    job = done["id"]
    pictures = client.get(f"/api/jobs/{job}/pictures").json()
    names = [p["name"] for p in pictures]
    expected = ["result", "average", "frame-0", "frame-1", "frame-2"]
    assert names == [*expected, "source", "confidence", "depth"]
    assert pictures[2]["title"] == "f0.png"
    for picture in pictures:
        tile = f"/api/jobs/{job}/pictures/{picture['name']}/tiles/{picture['levels'] - 1}/0_0"
        answer = client.get(tile)
        assert answer.headers["content-type"] == f"image/{picture['format']}"
        assert Image.open(io.BytesIO(answer.content)).size == (96, 72)
        # A browser keeps on its disk what it may: not for long, and only what stays as it is.
        kept = "no-store" if picture["name"] == "result" else "private, max-age=600"
        assert answer.headers["cache-control"] == kept
    base = f"/api/jobs/{job}/pictures"
    named = client.get(f"{base}/result/tiles/7/0_0?v=0")
    assert named.headers["cache-control"] == "private, max-age=600"
    for wrong in ("7/1_0", "9/0_0"):
        assert client.get(f"{base}/result/tiles/{wrong}").status_code == 404
    for wrong in ("x", "frame-3", "frame-٣", "frame--1", "frame-01", "..%2fresult"):
        assert client.get(f"{base}/{wrong}/tiles/0/0_0").status_code == 404


def test_facts_about_pixels_and_the_whole(client, done):
    job = done["id"]
    pixel = client.get(f"/api/jobs/{job}/pixel?x=10&y=20").json()
    image = client.service.viewer.array(client.service.store.jobs[job], "result")
    assert pixel["value"] == image[20, 10].tolist()
    assert pixel["frame_name"] == f"f{pixel['frame']}.png"
    assert pixel["activity"] is None, "auto chooses by its model"
    assert pixel["colour"] == pixel["value"] and not pixel["painted"]
    assert client.get(f"/api/jobs/{job}/pixel?x=96&y=0").status_code == 422
    counts = client.get(f"/api/jobs/{job}/histogram").json()
    assert sum(counts["channels"]["g"]) == 96 * 72
    relief = client.get(f"/api/jobs/{job}/relief").json()
    assert len(relief["heights"]) == relief["columns"] * relief["rows"]


@pytest.mark.parametrize(("preset", "decided"), [("fast", True), ("paper", False)])
def test_a_pixel_tells_of_activity_only_if_that_chose_the_frame(client, preset, decided):
    job = finished(client, start(client, small_stack(client), preset=preset, sigma=0))["id"]
    pixel = client.get(f"/api/jobs/{job}/pixel?x=10&y=20").json()
    assert (pixel["activity"] is not None) is decided
    if decided:
        assert pixel["activity"].index(max(pixel["activity"])) == pixel["frame"]


def test_a_painted_pixel_names_the_frame_that_was_painted(client):
    job = finished(client, start(client, small_stack(client), preset="fast", sigma=0))["id"]
    strokes = [
        {"frame": 1, "radius": 12, "points": [[20, 30], [60, 30]]},
        {"frame": 2, "radius": 6, "points": [[40, 30]]},
    ]
    assert client.put(f"/api/jobs/{job}/strokes", json={"strokes": strokes}).status_code == 200
    for place, frame in (((25, 30), 1), ((41, 29), 2), ((40, 38), 1)):
        pixel = client.get(f"/api/jobs/{job}/pixel?x={place[0]}&y={place[1]}").json()
        assert pixel["painted"] and pixel["frame"] == frame, place
        assert pixel["frame_name"] == f"f{frame}.png"
        assert pixel["activity"] is pixel["confidence"] is None
    for x, y in ((80, 30), (40, 45)):
        assert not client.get(f"/api/jobs/{job}/pixel?x={x}&y={y}").json()["painted"]


def test_noise_and_metrics_come_when_they_are_known(client, done):
    def known(path):
        answer = client.get(path)
        assert answer.status_code in (200, 202), answer.text
        return answer.json() if answer.status_code == 200 else None

    stack = small_stack(client, sigma=10)
    noise = until(lambda: known(f"/api/stacks/{stack}/noise"))
    assert 5 < noise["sigma"] < 15 and isinstance(noise["character"], list)
    assert known(f"/api/stacks/{stack}/noise") == noise
    scores = until(lambda: known(f"/api/jobs/{done['id']}/metrics"))
    assert 0 < scores["values"]["q_abf"] <= 1 and scores["part"] == [0, 0, 96, 72]
    empty = client.post("/api/stacks", json={}).json()["id"]
    assert client.get(f"/api/stacks/{empty}/noise").status_code == 409


def test_retouching_is_kept_and_can_be_undone(client, done):
    job = done["id"]
    viewer, record = client.service.viewer, client.service.store.jobs[job]
    before = np.array(viewer.current(record))
    stroke = {"frame": 2, "radius": 8, "softness": 0.2, "points": [[40, 30], [50, 30]]}
    after = client.put(f"/api/jobs/{job}/strokes", json={"strokes": [stroke]})
    assert after.json()["retouched"] == 1
    frame = viewer.array(record, "frame-2")
    assert np.array_equal(viewer.current(record)[30, 40:50], frame[30, 40:50])
    assert not np.array_equal(viewer.current(record), before)
    two = [stroke, stroke | {"frame": 0, "points": [[70.0, 50.0]]}]
    assert client.put(f"/api/jobs/{job}/strokes", json={"strokes": two}).json()["retouched"] == 2
    assert len(client.get(f"/api/jobs/{job}/strokes").json()["strokes"]) == 2
    for wrong in ({"frame": 3}, {"more": 1}):
        answer = client.put(f"/api/jobs/{job}/strokes", json={"strokes": [stroke | wrong]})
        assert answer.status_code == 422, wrong
    shown = client.get(f"/api/jobs/{job}/download?format=png").content
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(shown))), viewer.current(record))
    assert client.put(f"/api/jobs/{job}/strokes", json={"strokes": []}).json()["retouched"] == 3
    assert np.array_equal(viewer.current(record), before)


def test_strokes_are_kept_before_they_are_applied(client):
    job = finished(client, start(client, small_stack(client), sigma=0))["id"]
    address = f"/api/jobs/{job}/strokes"
    first, second = ({"frame": k, "radius": 8, "points": [[40, 30 + 9 * k]]} for k in (1, 2))

    def put(*strokes, **words):
        return client.put(address, json={"strokes": strokes, **words})

    assert client.get(address).json() == {"strokes": [], "applied": 0, "version": 0}
    assert put(first, applied=0, version=0).json()["retouched"] == 0
    assert put(first, second, applied=1, version=1).json()["retouched"] == 1
    kept = client.get(address).json()
    assert (kept["applied"], kept["version"], len(kept["strokes"])) == (1, 2, 2)
    # Another page does not know of the second stroke: it must not take it away.
    late = put(first, version=1)
    assert late.status_code == 409 and "changed elsewhere" in late.json()["error"]
    assert client.get(address).json() == kept
    assert put(first, second, version=2).json()["retouched"] == 2
    assert client.get(address).json()["applied"] == 2


def test_strokes_that_the_brush_cannot_paint_are_refused_in_one_line(client, done):
    good = {"frame": 0, "radius": 4, "softness": 0.5, "points": [[1, 1]]}
    address, kind = f"/api/jobs/{done['id']}/strokes", {"content-type": "application/json"}
    for strokes, words in (
        ([good | {"radius": 501}], "radius: Input should be less than or equal to 500"),
        ([good | {"points": [[0, float("nan")]]}], "points"),
        ([good | {"points": [[0, 0]] * 100_001}], "points"),
        ([good] * 10_001, "strokes"),
    ):
        answer = client.put(address, content=json.dumps({"strokes": strokes}), headers=kind)
        assert answer.status_code == 422 and words in answer.json()["error"], answer.text
        assert len(answer.json()["error"]) < 200
    plain = client.put(address, content=json.dumps({"strokes": [good]}))
    assert plain.status_code == 422 and "Content-Type" in plain.json()["error"]


def pixels_of(file: bytes) -> bytes:
    return Image.open(io.BytesIO(file)).tobytes()


def test_what_is_downloaded_stays_while_it_is_retouched(client):
    job = finished(client, start(client, small_stack(client), sigma=0))["id"]
    record = client.service.store.jobs[job]
    client.get(f"/api/jobs/{job}/download?format=png")
    (path,) = record.folder.glob("download-*.png")
    before, stroke = path.read_bytes(), {"frame": 2, "radius": 9, "points": [[40, 30]]}
    assert client.put(f"/api/jobs/{job}/strokes", json={"strokes": [stroke]}).status_code == 200
    assert path.read_bytes() == before  # somebody may be in the midst of it
    after = client.get(f"/api/jobs/{job}/download?format=png").content
    assert pixels_of(after) != pixels_of(before)
    client.put(f"/api/jobs/{job}/strokes", json={"strokes": []})
    assert not path.exists()
    again = client.get(f"/api/jobs/{job}/download?format=png").content
    assert pixels_of(again) == pixels_of(before)


def test_job_deleted_while_it_is_retouched_is_missed(client, monkeypatch):
    job = finished(client, start(client, small_stack(client), sigma=0))["id"]
    service = client.service
    folder = service.store.jobs[job].folder
    ask = service.questions.wait_for

    def deleting(*arguments, **options):
        answer = ask(*arguments, **options)
        service.store.delete_job(job)
        return answer

    monkeypatch.setattr(service.questions, "wait_for", deleting)
    stroke = {"frame": 2, "radius": 9, "points": [[40, 30]]}
    answer = client.put(f"/api/jobs/{job}/strokes", json={"strokes": [stroke]})
    assert answer.status_code == 404 and "no such job" in answer.json()["error"]
    assert not folder.exists()


def in_srgb(linear: np.ndarray) -> np.ndarray:
    """Values of sRGB for linear ones, both from 0 to 255."""
    v = linear / 255
    return 255 * np.where(v <= 0.0031308, 12.92 * v, 1.055 * v ** (1 / 2.4) - 0.055)


def test_what_is_shown_is_in_srgb_and_downloads_keep_their_profile(client, tmp_path):
    profiles = resources.files("cofuse").joinpath("data", "profiles")
    linear = Metadata(icc=profiles.joinpath("linear-srgb.icc").read_bytes())
    colours = np.array([[30, 60, 120], [200, 90, 40]], np.uint8)
    picture = np.repeat(colours, 160, axis=0)[None].repeat(200, axis=0)
    files = {}
    for name in ("a.tif", "b.tif"):
        write_image(tmp_path / name, picture, metadata=linear)
        files[name] = (tmp_path / name).read_bytes()
    stack = upload(client, files)["stack"]
    options = {"preset": "fast", "sigma": 0, "align": False, "depth": True}
    done = finished(client, start(client, stack["id"], **options))
    assert done["state"] == "done", done
    pictures = [f"/api/jobs/{done['id']}/pictures/{name}/tiles" for name in ("result", "frame-0")]
    seen = [f"/api/stacks/{stack['id']}/frames/{stack['frames'][0]['id']}/thumbnail"]
    seen += [f"{tiles}/{level}/0_0" for tiles in pictures for level in (8, 7)]
    for address in seen:
        shown = np.asarray(Image.open(io.BytesIO(client.get(address).content))).astype(float)
        middle, side = shown.shape[0] // 2, shown.shape[1] // 8
        assert shown[middle, side] == pytest.approx(in_srgb(colours[0]), abs=4), address
    relief = client.get(f"/api/jobs/{done['id']}/relief").json()
    shown = np.frombuffer(base64.b64decode(relief["colours"]), np.uint8).reshape(-1, 3)
    assert shown[:2] == pytest.approx(in_srgb(colours[:1]).repeat(2, axis=0), abs=2)
    Preview(tmp_path / "p.jpg", Stack.from_arrays([picture] * 2), 0, profile=linear.icc)
    assert read_image(tmp_path / "p.jpg")[100, 40] == pytest.approx(
        in_srgb(0.35 * colours[0]), abs=6
    )
    (tmp_path / "result.tif").write_bytes(client.get(f"/api/jobs/{done['id']}/download").content)
    assert np.array_equal(read_image(tmp_path / "result.tif"), picture)
    assert read_metadata(tmp_path / "result.tif").icc == linear.icc


@pytest.mark.parametrize("profile", [None, b"", b"nonsense" * 40, bytes(200)])
def test_profiles_that_cannot_be_used_change_nothing(profile):
    for pixels in (np.full((3, 4, 3), 77, np.uint8), np.full((3, 4), 77, np.uint8)):
        assert np.array_equal(to_srgb(profile)(pixels), pixels)


def test_a_result_deleted_while_it_is_looked_at_is_missed_and_leaves_nothing(client):
    """Several readers ask for all there is while the result goes; none meets an error of ours."""
    stack = small_stack(client, size=(300, 400))
    jobs = client.service.store.config.folder / "jobs"
    for _ in range(6):
        job = finished(client, start(client, stack, preset="fast", sigma=0, depth=True))["id"]
        there = set(jobs.iterdir())
        names = ["result", "average", "frame-0", "frame-1", "source", "confidence", "depth"]
        asked = [f"pictures/{name}/tiles/{level}/0_0" for name in names for level in (9, 5)]
        asked += ["download?format=png", "download", "relief", "histogram", "pixel?x=1&y=1"]
        begun, answers = threading.Barrier(7), list[tuple[int, str]]()

        def look(begun: Any, answers: Any, paths: list[str]) -> None:
            begun.wait()
            for path in paths:
                answer = client.get(path)
                answers.append((answer.status_code, answer.text[:100]))

        paths = [f"/api/jobs/{job}/{path}" for path in asked]
        turns = [paths[3 * turn :] + paths[: 3 * turn] for turn in range(6)]
        readers = [threading.Thread(target=look, args=(begun, answers, turn)) for turn in turns]
        for reader in readers:
            reader.start()
        begun.wait()
        assert client.delete(f"/api/jobs/{job}").status_code == 204
        for reader in readers:
            reader.join()
        assert {code for code, _ in answers} <= {200, 404}, set(answers)
        assert len(answers) == 6 * len(asked)
        assert set(jobs.iterdir()) == there - {jobs / job}
        # No picture of it is held open.
        held = Path("/proc/self/maps")
        assert not held.exists() or job not in held.read_text()


@pytest.mark.parametrize(
    "name", ['a"b\r\nX-Evil: 1', "日本語 фото", "..", "; filename=x.exe", "a\u202eb"]
)
def test_no_name_breaks_out_of_a_header(client, done, name):
    record = client.service.store.jobs[done["id"]]
    kept, record.name = record.name, name
    answer = client.get(f"/api/jobs/{done['id']}/download")
    record.name = kept
    given = answer.headers["content-disposition"]
    plain, quoted = r'filename="[A-Za-z0-9._-]+\.tif"', r"filename\*=utf-8''[A-Za-z0-9._%-]+\.tif"
    assert re.fullmatch(f"attachment; (?:{plain}|{quoted})", given), given
    assert "x-evil" not in answer.headers


def test_download_is_what_the_command_line_writes(client, tmp_path, capsys):
    files = {f"shot {k}.jpg": jpeg(frame) for k, frame in enumerate(frames(3, sigma=12))}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    stack = upload(client, files)["stack"]["id"]
    job = finished(client, start(client, stack, denoise=0.7, hot_pixels="off"))
    assert job["state"] == "done", job["error"]
    words = shlex.split(job["command"])
    assert words[:2] == ["cofuse", "fuse"]
    arguments = [str(tmp_path / w) if w.endswith((".jpg", ".tif")) else w for w in words[1:]]
    assert run(*arguments) == 0
    capsys.readouterr()
    answer = client.get(f"/api/jobs/{job['id']}/download")
    assert answer.headers["content-disposition"] == 'attachment; filename="Test-fused.tif"'
    assert without_time(answer.content) == without_time((tmp_path / "result.tif").read_bytes())
    for kind, suffix, depth in (("png", ".png", "16"), ("jpeg", ".jpg", "8"), ("png", ".png", "8")):
        arguments[arguments.index("-o") + 1] = tmp_path / f"result{depth}{suffix}"
        assert run(*arguments, "--bit-depth", depth) == 0
        data = client.get(f"/api/jobs/{job['id']}/download?format={kind}&depth={depth}").content
        ours, theirs = tmp_path / f"ours{suffix}", tmp_path / f"result{depth}{suffix}"
        ours.write_bytes(data)
        assert np.array_equal(read_image(ours), read_image(theirs))
        assert read_metadata(ours).icc == read_metadata(theirs).icc is not None
        assert b"Maker of cameras" in data
    capsys.readouterr()
    refused = client.get(f"/api/jobs/{job['id']}/download?format=jpeg&depth=16")
    assert refused.status_code == 422


def test_report_names_the_frames_and_no_folder_of_ours(client, done):
    job = done["id"]
    report = client.get(f"/api/jobs/{job}/report")
    folder = str(client.service.config.folder)
    assert report.json()["frames"]["names"] == ["f0.png", "f1.png", "f2.png"]
    page = client.get(f"/api/jobs/{job}/report?format=html")
    assert "<table>" in page.text and "f1.png" in page.text
    for text in (report.text, page.text):
        assert folder not in text and "<script" not in text


def test_command_tells_what_the_job_would_do(client):
    stack = small_stack(client)
    options = {"sigma": 7.5, "align": False, "depth": True, "z_step": -2, "preset": "fast"}
    query = {"stack": stack, "options": json.dumps(options)}
    command = client.get("/api/command", params=query).json()["command"]
    assert command.startswith("cofuse fuse f0.png f1.png f2.png -o result.tif ")
    for words in ("--sigma 7.5", "--no-align", "--depth-map depth.png", "--z-step=-2"):
        assert words in command
    wrong = client.get("/api/command", params={"stack": stack, "options": '{"sigam": 1}'})
    assert wrong.status_code == 422 and "sigam" in wrong.json()["error"]
    odd = ["it's; rm -rf.jpg", "-x.jpg", "@y.jpg", "$(z).jpg"]
    words = shlex.split(command_line(odd, Options()))
    assert words[2:6] == [odd[0], "./-x.jpg", "./@y.jpg", odd[3]]


@pytest.mark.parametrize(
    "options",
    [
        {"sigma": -1},
        {"sigma": "much"},
        {"denoise": 2},
        {"preset": "best"},
        {"device": "cuda:7"},
        {"device": "cuda", "preset": "fast"},
        {"max_memory": "lots"},
        {"max_memory": "900TB"},
        {"z_step": 0},
        {"preset": "paper", "denoise": 0.5},
        {"output": "elsewhere.tif"},
    ],
)
def test_bad_options_are_refused_in_one_line(client, options):
    stack = small_stack(client, count=1) if "z_step" not in options else small_stack(client)
    answer = client.post("/api/jobs", json={"stack": stack, "options": options})
    assert answer.status_code == 422, answer.text
    assert answer.json().keys() == {"error"} and "\n" not in answer.json()["error"]


def test_what_is_not_there_is_missed(client, done):
    assert client.get("/api/jobs/nothing").status_code == 404
    assert client.post("/api/jobs", json={"stack": "nothing"}).status_code == 404
    job = start(client, small_stack(client))
    for path in ("pictures", "pixel?x=0&y=0", "download", "report", "strokes", "metrics"):
        assert client.get(f"/api/jobs/nothing/{path}").status_code == 404
        assert client.get(f"/api/jobs/{job}/{path}").status_code in (200, 202, 409), path
    finished(client, job)
    assert client.delete(f"/api/jobs/{job}").status_code == 204
    assert client.get(f"/api/jobs/{job}").status_code == 404


def test_sample_stack_is_made_once(client):
    first = client.post("/api/stacks/sample").json()
    assert first["sample"] and len(first["frames"]) == 5
    assert client.post("/api/stacks/sample").json()["id"] == first["id"]


@pytest.mark.slow
def test_large_frames_are_made_again_when_looked_at(tmp_path: Path):
    moved = [np.roll(frame, k, axis=1) for k, frame in enumerate(frames(3, (96, 160)))]
    files = {f"f{k}.png": png(frame) for k, frame in enumerate(moved)}
    kept = {}
    for limit in (10**9, 100):
        with client_of(tmp_path / str(limit), keep_frames=limit) as client:
            job = finished(client, start(client, upload(client, files)["stack"]["id"], sigma=0))
            assert job["state"] == "done" and job["result"]["moved"] > 0.5, job
            folder = client.service.store.jobs[job["id"]].folder / "frames"
            assert folder.exists() == (limit > 100)
            levels = client.get(f"/api/jobs/{job['id']}/pictures").json()[0]["levels"]
            kept[limit] = [
                client.get(f"/api/jobs/{job['id']}/pictures/frame-{k}/tiles/{levels - 1}/0_0")
                for k in (0, 2)
            ]
            # Those that were looked at first make room for others.
            assert len(list(folder.iterdir())) == (3 if limit > 100 else 1)
    for one, other in zip(*kept.values(), strict=True):
        assert one.status_code == 200 and one.content == other.content
