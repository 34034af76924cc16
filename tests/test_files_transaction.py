"""Results that appear together: also when a run is killed, at whatever moment."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cofuse.errors import CofuseError
from cofuse.files.locks import locked
from cofuse.files.transaction import (
    Transaction,
    clear_leftovers,
    hidden_name,
    is_abandoned,
    who,
)
from tests.command_line import contents

#: Kills children at the first, second, … call that changes the disk, until one lives to the end.
KILLED = """
    import os, shutil, signal, sys, warnings
    from pathlib import Path
    from cofuse.files.transaction import Transaction, clear_leftovers

    overwrite = sys.argv[1] == "overwrite"
    warnings.simplefilter("ignore")
    start, place = Path("start"), Path("place")

    def results():
        return {str(p.relative_to(place)): p.read_text() for p in place.rglob("*") if p.is_file()}

    def work():
        with Transaction(overwrite=overwrite) as transaction:
            for name in ("a/one", "a/new/two", "b/three"):
                transaction.place(place / name).write_text("new")

    def die_at(last):
        calls = 0
        def counted(function):
            def call(*arguments, **more):
                nonlocal calls
                calls += 1
                if calls == last:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **more)
            return call
        for name in ("link", "rename", "replace", "unlink", "mkdir", "rmdir", "fsync"):
            setattr(os, name, counted(getattr(os, name)))

    for last in range(1, 1000):
        shutil.copytree(start, place)
        old = results()
        child = os.fork()
        if child == 0:
            die_at(last)
            work()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        between = {name: text for name, text in results().items() if "/.cofuse-" not in name}
        for folder in sys.argv[2:]:
            clear_leftovers(place / folder)
        after = results()
        done = {"a/one": "new", "a/new/two": "new", "b/three": "new", "b/mine": "mine"}
        assert after in (old, done), (last, after)
        # What had begun to appear is there in the end: nobody takes it away again.
        assert between == old or after == done, (last, between, after)
        if after == old:
            work()
            assert results() == done, (last, results())
        assert not [p for p in place.rglob(".*")], last
        shutil.rmtree(place)
        if status == 0:
            print(last)
            break
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children")
@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")], ids="-".join)
@pytest.mark.parametrize("how", ["fresh", "overwrite"])
def test_killed_at_any_moment_leaves_all_or_nothing(tmp_path, how, order):
    for name in ("a", "b"):
        (tmp_path / "start" / name).mkdir(parents=True)
    (tmp_path / "start/b/mine").write_text("mine")
    if how == "overwrite":
        (tmp_path / "start/a/one").write_text("old")
    script = [sys.executable, "-c", textwrap.dedent(KILLED), how, *order]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20  # so many moments were tried


def test_failure_leaves_nothing_and_names_the_file_meant(tmp_path):
    (tmp_path / "a").write_text("old")
    before = contents(tmp_path)
    with pytest.raises(CofuseError) as error, Transaction(overwrite=True) as transaction:
        transaction.place(tmp_path / "a").write_text("new")
        place = transaction.place(tmp_path / "x/b")
        place.write_text("new")
        raise CofuseError(f"{place} is bad")
    assert str(error.value) == f"{tmp_path / 'x/b'} is bad"
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["a", "z"])
def test_name_taken_meanwhile_takes_all_back(tmp_path, monkeypatch, name):
    link = os.link

    def late(source: Path, target: Path) -> None:
        if Path(target).name == name:
            Path(target).write_text("of another run")
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(CofuseError, match=f"{name} exists"), Transaction(overwrite=False) as both:
        for each in "az":
            both.place(tmp_path / each).write_text("new")
    assert contents(tmp_path) == {name: b"of another run"}


def test_what_cannot_be_moved_is_named_beside_what_was(tmp_path, monkeypatch):
    replace = os.replace

    def late(source: Path, target: Path) -> None:
        if Path(target).name == "z":
            Path(target).mkdir()
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    with (
        pytest.raises(CofuseError, match=r"z could not be written \(Is a directory\), only .*/a;"),
        Transaction(overwrite=True) as both,
    ):
        for each in "az":
            both.place(tmp_path / each).write_text("new")
    assert contents(tmp_path) == {"a": b"new", "z": None}


def test_file_put_there_since_is_kept(tmp_path):
    """What a dead run had not moved yet yields to what the user put there."""
    script = """
        import os, signal
        from pathlib import Path
        from cofuse.files.transaction import Transaction
        os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        with Transaction(overwrite=False) as both:
            for name in "ab":
                both.place(Path(name)).write_text("new")
    """
    script = textwrap.dedent(script)
    killed = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, timeout=120)
    assert killed.returncode == -9
    (tmp_path / "a").write_text("mine")
    with pytest.warns(UserWarning, match="put there: b"):
        clear_leftovers(tmp_path)
    assert contents(tmp_path) == {"a": b"mine", "b": b"new"}


def test_links_are_written_through(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far/file").write_text("old")
    (tmp_path / "link").symlink_to("far/file")
    with Transaction(overwrite=True) as transaction:
        transaction.place(tmp_path / "link").write_text("new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "far/file").read_text() == "new"


def dead_name() -> str:
    """A hidden name of a process that has ended."""
    script = "from cofuse.files.transaction import hidden_name; print(hidden_name())"
    return subprocess.check_output([sys.executable, "-c", script], text=True, timeout=120).strip()


def test_only_what_a_dead_process_of_this_machine_left_is_removed(tmp_path):
    dead, living = dead_name(), hidden_name()
    _, machine, pid, began, token = living[1:].split("-")
    names = {
        dead: True,
        f"{dead}.tmp": True,
        living: False,
        f"{living}.tmp": False,
        # The same number, but a process that began at another time.
        f".cofuse-{machine}-{pid}-{int(began) + 1}-{token}": True,
        f".cofuse-{'0' * 8}-{dead.split('-', 2)[2]}": False,
        f"{dead}.png": False,
        ".cofuse-0123456789abcdef.tmp": False,
        dead[1:]: False,
    }
    for name in names:
        (tmp_path / name).write_text("x")
    assert {name: is_abandoned(name) for name in names} == names
    clear_leftovers(tmp_path)
    assert set(contents(tmp_path)) == {name for name, goes in names.items() if not goes}


def test_lock_has_one_holder_and_ends_with_its_process(tmp_path):
    lock = tmp_path / "lock"
    with locked(lock) as holder:
        assert holder is None
        with locked(lock) as other:
            assert other is not None and who(other) == f"process {os.getpid()}"
        assert lock.exists()
    assert not list(tmp_path.iterdir())
    lock.mkdir()
    (lock / dead_name()).touch()
    with locked(lock) as holder:
        assert holder is None
    (lock / f".cofuse-{'0' * 8}-1-1-{'0' * 16}").mkdir(parents=True)
    with locked(lock) as holder:
        assert holder is not None and who(holder) == "another machine"


def test_lock_taken_from_the_dead_by_another_is_left_to_it(tmp_path, monkeypatch):
    """Between finding the holder dead and taking the lock, another run may have taken it.

    Moved aside even for a moment, its lock could be given up or taken meanwhile.
    """
    lock, dead, living = tmp_path / "lock", dead_name(), hidden_name()
    lock.mkdir()
    (lock / dead).touch()

    def found_dead_too_late(name):
        if name == living:
            return False
        (lock / dead).unlink()
        (lock / living).touch()
        return True

    moved, rename = [], Path.rename
    monkeypatch.setattr("cofuse.files.locks.is_abandoned", found_dead_too_late)
    monkeypatch.setattr(Path, "rename", lambda old, new: moved.append(old) or rename(old, new))
    with locked(lock) as holder:
        assert holder == living
    assert moved and lock not in moved
    assert [entry.name for entry in lock.iterdir()] == [living]


@pytest.mark.parametrize("call", ["iterdir", "unlink", "rmdir"])
def test_lock_of_the_dead_that_may_not_be_taken_is_an_error(call, tmp_path, monkeypatch):
    """Of another user, say: to try again and again would be to wait for ever."""
    lock = tmp_path / "lock"
    lock.mkdir()
    (lock / dead_name()).touch()

    def refused(path, **_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, call, refused)
    with pytest.raises(PermissionError), locked(lock):
        raise AssertionError("nobody has this lock")
    monkeypatch.undo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["lock"]


def test_lock_is_given_to_one_of_many_at_a_time(tmp_path):
    """Each counts up a number under the lock; none of the counts is lost."""
    script = """
        import sys, time
        from pathlib import Path
        from cofuse.files.locks import locked
        rest = 20
        while rest:
            with locked(Path("lock")) as holder:
                if holder is None:
                    count = int(Path("count").read_text())
                    time.sleep(0.001)
                    Path("count").write_text(str(count + 1))
                    rest -= 1
    """
    (tmp_path / "count").write_text("0")
    (tmp_path / "lock").mkdir()
    (tmp_path / "lock" / dead_name()).touch()
    command = [sys.executable, "-c", textwrap.dedent(script)]
    children = [subprocess.Popen(command, cwd=tmp_path) for _ in range(4)]
    try:
        assert [child.wait(timeout=300) for child in children] == [0] * 4
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert (tmp_path / "count").read_text() == "80"
    assert set(contents(tmp_path)) == {"count"}
