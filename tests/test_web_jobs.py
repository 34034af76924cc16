"""Jobs that do not go well, the queue, and what is kept and cleaned up."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from contextlib import contextmanager, suppress
from datetime import timedelta

import numpy as np
import pytest

from cofuse.errors import CofuseError
from cofuse.files import read_image
from cofuse.images import Stack
from cofuse.jobs.run import Job
from cofuse.progress import Progress
from cofuse.sensor import NoiseLaw
from cofuse.sensor.law import NoiseModel
from cofuse.web import tasks
from cofuse.web.options import Config, Options, fusing_request
from cofuse.web.reporting import Pace, Preview, expected, reporter
from cofuse.web.schemas import JobRecord, now
from cofuse.web.store import Store, folder_bytes, new_id
from cofuse.web.worker import Worker
from tests.waiting import PATIENCE, until
from tests.web_server import client_of, finished, frames, png, small_stack, start

#: Large enough to be caught at work.
SIZE = (480, 640)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with client_of(tmp_path_factory.mktemp("data"), max_waiting=2, stop_seconds=PATIENCE) as client:
        yield client


@pytest.fixture(scope="module")
def large(client):
    """A stack that takes some seconds."""
    return small_stack(client, count=6, size=SIZE, sigma=10)


def at_work(client, job):
    """Wait until a job is in the midst of its work."""

    def look():
        record = client.get(f"/api/jobs/{job}").json()
        assert record["state"] in ("waiting", "running"), record
        return record["total"] and record

    return until(look)


@contextmanager
def halted(client):
    """Let the worker stand still, so that what it does is not over too early."""
    pid = until(lambda: client.service.worker.pid)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_one_runs_and_one_waits_and_more_are_refused(client, large):
    with halted(client):
        first = start(client, large)
        until(lambda: client.get(f"/api/jobs/{first}").json()["state"] == "running")
        second, third = start(client, large), start(client, large)
        states = {j["id"]: j["state"] for j in client.get("/api/jobs").json()}
        assert states[first] == "running" and states[second] == states[third] == "waiting"
        answer = client.post("/api/jobs", json={"stack": large})
        assert answer.status_code == 429 and "waiting" in answer.json()["error"]
        for busy in (
            client.delete(f"/api/stacks/{large}"),
            client.delete(f"/api/jobs/{first}"),
            client.delete(f"/api/jobs/{second}"),
        ):
            assert busy.status_code == 409 and "cancel" in busy.json()["error"]
        for job in (second, third):
            assert client.post(f"/api/jobs/{job}/cancel").json()["state"] == "cancelled"
        client.post(f"/api/jobs/{first}/cancel")
    assert finished(client, first)["state"] == "cancelled"


def test_a_job_says_at_once_what_it_does(client):
    stack = small_stack(client)
    with halted(client):
        job = start(client, stack)
        record = until(
            lambda: (one := client.get(f"/api/jobs/{job}").json())["state"] == "running" and one
        )
        assert record["stage"] == "reading"
    assert finished(client, job)["state"] == "done"


def test_cancelling_really_stops_and_leaves_the_worker_alive(client, large):
    worker = client.service.worker
    job = start(client, large)
    at_work(client, job)
    pid = worker.pid
    with halted(client):
        said = client.post(f"/api/jobs/{job}/cancel").json()
        assert said["state"] == "running" and said["stage"] == "stopping"
    over = finished(client, job)
    assert over["state"] == "cancelled" and over["error"] is None
    assert over["progress"] < 1
    folder = client.service.store.jobs[job].folder
    # The record is written beside its place at first.
    until(lambda: [p.name for p in folder.iterdir()] == ["job.json"])
    again = client.post(f"/api/jobs/{job}/cancel").json()
    assert again["state"] == "cancelled"
    assert finished(client, start(client, small_stack(client)))["state"] == "done"
    assert worker.pid == pid


@pytest.mark.slow
def test_worker_that_does_not_listen_is_replaced(client, large, monkeypatch):
    worker = client.service.worker
    monkeypatch.setattr(worker, "stop_seconds", 0.5)
    job = start(client, large)
    at_work(client, job)
    pid = worker.pid
    os.kill(pid, signal.SIGSTOP)  # it hears nothing any more
    client.post(f"/api/jobs/{job}/cancel")
    assert finished(client, job)["state"] == "cancelled"
    assert finished(client, start(client, small_stack(client)))["state"] == "done"
    assert worker.pid != pid


def test_death_of_the_worker_fails_one_job_and_no_more(client, large):
    worker = client.service.worker
    job = start(client, large)
    at_work(client, job)
    with halted(client):
        after = start(client, small_stack(client))
        os.kill(worker.pid, signal.SIGKILL)
    failed = finished(client, job)
    assert failed["state"] == "failed" and "ended unexpectedly" in failed["error"]
    assert finished(client, after)["state"] == "done"
    assert client.get(f"/api/jobs/{job}/preview").status_code == 404


def test_worker_without_work_ends_and_starts_again(tmp_path):
    (tmp_path / "a.png").write_bytes(png(frames(1)[0]))
    worker = Worker(niceness=0, idle_seconds=0.1)
    worker.submit(worker.start).result()
    first = worker.pid
    until(lambda: first not in {child.pid for child in multiprocessing.active_children()})
    assert worker.wait_for(tasks.noise, files=[tmp_path / "a.png"])["sigma"] >= 0
    assert worker.pid != first
    worker.close()
    with pytest.raises(CofuseError, match="stopping"):
        worker.wait_for(tasks.noise, files=[])


def test_failure_is_told_by_the_names_people_know(client):
    stack, store = small_stack(client), client.service.store
    store.frame_path(stack, store.stacks[stack].frames[1]).write_bytes(b"damaged")
    job = finished(client, start(client, stack))
    assert job["state"] == "failed" and job["error"].startswith("f1.png is not a picture")
    assert str(store.config.folder) not in job["error"]


def test_queue_goes_on_when_the_files_of_a_job_vanish(client, large):
    store = client.service.store
    job = start(client, large)
    at_work(client, job)
    with halted(client):
        after = start(client, small_stack(client))
        shutil.rmtree(store.jobs[job].folder)
        client.post(f"/api/jobs/{job}/cancel")
    assert finished(client, job)["state"] in ("cancelled", "failed")
    assert finished(client, after)["state"] == "done"
    assert client.delete(f"/api/jobs/{job}").status_code == 204


def saved_frames(folder, *size):
    """Files of two frames."""
    paths = [folder / f"{k}.png" for k in range(2)]
    for path, frame in zip(paths, frames(2, *size), strict=True):
        path.write_bytes(png(frame))
    return paths


def test_preview_grows_before_the_end(tmp_path):
    paths, path = saved_frames(tmp_path, (900, 1200)), tmp_path / "preview.jpg"
    request = fusing_request(tmp_path, paths, Options(sigma=0.0, align=False))
    job = Job(request)
    preview = Preview(path, job.frames.stack, 1, every=0.0)
    seen: dict[int, np.ndarray] = {}

    def tell(facts):
        if facts.get("preview", 0) not in seen and facts.get("stage") == "fusion":
            seen[facts["preview"]] = read_image(path)

    job.run(reporter(request, preview, tell, every=0.0), preview=preview.paint)
    result = read_image(request.output).astype(int)
    assert len(seen) >= 3
    near = (abs(shown.astype(int) - result).max(axis=2) < 60 for shown in seen.values())
    bright = [pixels.mean() for pixels in near]
    assert bright == sorted(bright) and bright[0] < 0.6 and bright[-1] > 0.8, bright


def coarse_law(count):
    levels = np.array([6.0, 12.0, 12.0, 12.0, 12.0]) * np.ones((count, 3, 1))
    return NoiseLaw(
        model=NoiseModel(3.0, 0.5),
        levels=levels,
        errors=0.01 * np.ones_like(levels),
        estimated=True,
    )


def test_the_page_is_told_what_is_remarkable_about_the_noise(tmp_path, monkeypatch):
    monkeypatch.setattr("cofuse.web.tasks.estimate_noise", lambda *_, **__: coarse_law(1))
    (tmp_path / "a.png").write_bytes(png(frames(1)[0]))
    found = tasks.noise(lambda _: None, files=[tmp_path / "a.png"])
    words = ["coarse-grained", "growing with brightness"]
    assert found == {"sigma": coarse_law(1).sigma, "character": words}


def test_frames_are_painted_from_by_the_noise_that_was_found(tmp_path, monkeypatch):
    monkeypatch.setattr("cofuse.fusion.mixing.estimate_noise", lambda *_, **__: coarse_law(2))
    folder, paths = tmp_path / "job", saved_frames(tmp_path)
    folder.mkdir()
    request = fusing_request(folder, paths, Options(align=False, preset="fast"))
    made = tasks.fuse(lambda _: None, request=request, keep_frames=10**9)
    assert made["result"]["character"] == ["coarse-grained", "growing with brightness"]
    seen = []
    monkeypatch.setattr(
        "cofuse.web.tasks.paint", lambda picture, *_, noise: seen.append(noise) or picture
    )
    facts = {"id": "x", "stack": "x", "name": "x", "state": "done", "created": now(), "command": ""}
    facts |= {"folder": folder, "white": made["white"], "result": made["result"]}
    for denoise in (1.0, 0.0):
        job = JobRecord(**facts, options=Options(denoise=denoise))
        tasks.retouch(lambda _: None, job=job, strokes=[], start="result.npy", end="new.npy")
    law, none = seen
    assert none is None
    np.testing.assert_array_equal(law.levels, coarse_law(2).levels)
    assert law.sigma == made["result"]["sigma"]


def test_events_tell_of_all_jobs(client):
    job = start(client, small_stack(client))
    with client.stream("GET", "/api/events") as answer:
        for line in answer.iter_lines():
            if job in line and '"state":"done"' in line:
                break
    assert client.get(f"/api/jobs/{job}").json()["state"] == "done"


@pytest.mark.slow
def test_results_stay_and_interrupted_jobs_are_marked(tmp_path):
    with client_of(tmp_path / "data", stop_seconds=0.5) as client:
        stack = small_stack(client)
        done = finished(client, start(client, stack))
        tile = client.get(f"/api/jobs/{done['id']}/pictures/result/tiles/7/0_0").content
        large = small_stack(client, count=6, size=SIZE, sigma=10)
        running, waiting = start(client, large), start(client, large)
        at_work(client, running)
        # Stand still, so that it is not over too early.
        os.kill(client.service.worker.pid, signal.SIGSTOP)
    with client_of(tmp_path / "data") as client:
        states = {job["id"]: job["state"] for job in client.get("/api/jobs").json()}
        assert states == {done["id"]: "done", running: "interrupted", waiting: "interrupted"}
        assert client.get(f"/api/jobs/{done['id']}").json() == done
        again = client.get(f"/api/jobs/{done['id']}/pictures/result/tiles/7/0_0")
        assert again.content == tile
        assert finished(client, start(client, stack))["state"] == "done"


# --- the store -----------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    return Store(Config(folder=tmp_path / "data", keep_days=10, keep_size=100_000))


def filled(store: Store, name: str, days: float, size: int) -> tuple[str, str]:
    """A stack of a size in bytes, and a finished job of it, some days old."""
    stack = store.new_stack(name)
    job = store.new_job(stack, Options(), "")
    store.finish(job, "cancelled")
    store.jobs.change(job, ended=now() - timedelta(days=days))
    store.stacks.change(stack, used=now() - timedelta(days=days))
    (stack.folder / "frames" / "frame.png").write_bytes(b"\0" * size)
    return stack.id, job.id


def test_frames_that_were_not_used_for_long_go_and_results_stay(store):
    old, new = filled(store, "old", 11, 10), filled(store, "new", 9, 10)
    store.clean_up()
    folder = store.config.folder
    assert {path.name for path in (folder / "stacks").iterdir()} == {new[0]}
    assert {path.name for path in (folder / "jobs").iterdir()} == {old[1], new[1]}


def test_the_oldest_frames_go_while_all_is_too_large(store):
    pairs = [filled(store, f"{k}", 5 - k, 45_000) for k in range(4)]
    store.clean_up()
    assert set(store.stacks) == {pairs[2][0], pairs[3][0]}
    assert store.size == folder_bytes(store.config.folder) <= 100_000


def test_results_stay_however_old_and_large(store):
    stack, job = filled(store, "large", 400, 10)
    (store.jobs[job].folder / "result.npy").write_bytes(b"\0" * 300_000)
    store.clean_up()
    assert stack not in store.stacks and store.size > 300_000
    assert Store(store.config).jobs[job].folder.joinpath("result.npy").stat().st_size == 300_000


def test_what_lies_elsewhere_is_left_alone(store, tmp_path):
    stack, _ = filled(store, "linked", 0, 1)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "mine.jpg").write_bytes(b"mine")
    folder = store.stacks[stack].folder
    shutil.rmtree(folder / "frames")
    (folder / "frames").symlink_to(precious)
    again = Store(store.config)
    assert (precious / "mine.jpg").exists()
    again.delete_stack(stack)
    assert (precious / "mine.jpg").exists() and not folder.exists()
    # A record that names a path is no record.
    other, _ = filled(again, "odd", 0, 1)
    record = again.stacks[other].folder / "stack.json"
    facts = json.loads(record.read_text())
    frame = {"id": "x", "name": "x", "format": "png", "width": 1, "height": 1, "depth": 8}
    frame |= {"colour": True, "bytes": 1}
    for wrong in ({"suffix": "/../../x"}, {"suffix": ".png", "id": "../x"}):
        facts["frames"] = [frame | wrong]
        record.write_text(json.dumps(facts))
        assert other not in [one.id for one in Store(store.config).stacks.all()]


def test_what_is_in_use_stays(store):
    stack = store.new_stack("in use")
    job = store.new_job(stack, Options(), "")
    stack.used = job.created = now() - timedelta(days=100)
    (store.jobs[job.id].folder / "big").write_bytes(b"\0" * 200_000)
    store.clean_up()
    assert store.stacks[stack.id] is stack and store.jobs[job.id] is job


def test_remains_of_killed_servers_are_cleared(store):
    stack, job = filled(store, "good", 0, 1)
    folder = store.config.folder
    remains = (
        folder / "jobs" / f".gone-{job}" / "levels",  # being deleted
        folder / "jobs" / new_id() / "levels",  # without a record
        folder / "stacks" / new_id() / "frames",
    )
    for left in remains:
        left.mkdir(parents=True)
        (left / "result.npy").write_bytes(b"1")
    again = Store(store.config)
    assert {path.name for path in (folder / "jobs").iterdir()} == {job}
    assert {path.name for path in (folder / "stacks").iterdir()} == {stack}
    assert again.jobs[job] and again.stacks[stack]


def test_store_survives_what_it_does_not_know(store):
    filled(store, "good", 0, 1)
    folder = store.config.folder
    (folder / "jobs" / "strange").mkdir()
    (folder / "jobs" / "strange" / "job.json").write_text("{")
    (folder / "stacks" / "file").write_text("")
    (folder / "stacks" / "other").mkdir()
    again = Store(store.config)
    assert len(again.jobs.all()) == len(again.stacks.all()) == 1
    assert (folder / "jobs" / "strange").exists()


# --- the preview ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(50, 70), (1300, 2503)])
def test_preview_shows_finished_parts_bright_and_the_rest_dim(tmp_path, size):
    frame = np.full((*size, 3), 200, np.uint8)
    preview = Preview(tmp_path / "preview.jpg", Stack.from_arrays([frame, frame]), 1)
    assert preview.version == preview.written() == 1
    dim = read_image(tmp_path / "preview.jpg")
    assert max(dim.shape) <= 1200 and dim.max() < 80
    half, third = size[0] // 2 + 1, size[1] // 3 + 2
    preview.paint(slice(0, half), slice(0, third), frame[:half, :third])
    preview.paint(slice(half, size[0]), slice(third, size[1]), frame[half:, third:])
    until(lambda: preview.written() == 2)
    shown = read_image(tmp_path / "preview.jpg")[..., 0].astype(int)
    rows, columns = (np.array(shown.shape) * (half / size[0], third / size[1])).astype(int)
    assert abs(shown[: rows - 3, : columns - 3] - 200).max() < 30
    assert abs(shown[rows + 3 :, columns + 3 :] - 200).max() < 30
    assert shown[: rows - 8, columns + 8 :].max() < 100


# --- the time left -------------------------------------------------------------------------------


#: Frames, megapixels, and seconds of every stage as they were measured on two processors.
TIMES = {
    (5, 6.0): (0.35, 2.53, 0.53, 2.62, 6.09, 7.06, 4.0, 0.9),
    (40, 1.9): (0.6, 13.94, 1.05, 1.66, 4.75, 1.9, 7.3, 0.57),
}


def ran(stages, times, steps):
    """Run a job by a clock of our own: moment, share, seconds said to be left, in truth."""
    clock = [0.0]
    pace = Pace(stages, clock=lambda: clock[0])
    for stage, seconds in zip(stages, times, strict=True):
        for done in range(1, steps + 1):
            clock[0] += seconds / steps
            share, left = pace.step(Progress(stage, done, steps))
            yield clock[0], share, left, sum(times) - clock[0]


@pytest.mark.parametrize("factor", [0.3, 1.0, 8.0], ids=["quick", "as expected", "slow"])
@pytest.mark.parametrize("job", TIMES)
def test_time_left_is_measured_in_every_stage(job, factor):
    times = [factor * seconds for seconds in TIMES[job]]
    seen = list(ran(expected(*job), times, steps=40))
    whole = sum(times)
    shares = [share for _, share, _, _ in seen]
    assert shares == sorted(shares) and shares[-1] <= 1
    # The bar does not wait at its end.
    assert max(moment for moment, share, _, _ in seen if share < 0.98) > 0.94 * whole
    for moment, _, left, truth in seen:
        if moment > whole / 3:
            assert left is not None and abs(left - truth) < 0.3 * whole
    # At the end of the last stage but one only writing is left, and it is known for what it is.
    *_, last = (row for row in seen if row[0] <= whole - times[-1] + 1e-9)
    assert last[2] is not None and last[2] > 0


def test_stages_of_other_methods_stand_for_fusing():
    stages = expected(5, 6.0)
    pace = Pace(stages, clock=iter(range(100)).__next__)
    shares = [pace.step(Progress(stage, 1, 2))[0] for stage in ("align", "choice", "depth")]
    assert 0 < shares[0] < shares[1] < shares[2] < 1
    # A report of a stage that is over changes nothing.
    assert pace.step(Progress("align", 1, 2))[0] >= shares[2]


def test_a_job_says_what_it_does_to_its_end(tmp_path):
    paths, folder = saved_frames(tmp_path, (300, 400)), tmp_path / "job"
    folder.mkdir()
    request, told = fusing_request(folder, paths, Options(sigma=0.0, depth=True)), []
    tasks.fuse(told.append, request=request, keep_frames=10**9)
    stages = [facts["stage"] for facts in told if "stage" in facts]
    assert stages[-1] == "writing"
    order = ["hot pixels", "align", "frames", "fusion", "depth", "writing"]
    assert [stage for stage in order if stage in stages] == list(dict.fromkeys(stages))
    shares = [facts["progress"] for facts in told if "progress" in facts]
    assert shares == sorted(shares) and 0.5 < shares[-1] <= 1
