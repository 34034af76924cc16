"""Many stacks by the same options: each done whole or not at all, and only once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cofuse import __version__
from cofuse.arguments import check_number
from cofuse.errors import CofuseError
from cofuse.files import check_destination, check_folder, plain, read_stack, write_json
from cofuse.files.locks import locked
from cofuse.files.transaction import clear_leftovers, is_of_this_machine, who
from cofuse.jobs.frames import frames_in_words
from cofuse.jobs.grouping import Group
from cofuse.jobs.options import Maps, Request, check_options, read_saved
from cofuse.jobs.outputs import check_distinct, preview_path
from cofuse.jobs.run import Job
from cofuse.progress import ProgressCallback, silent

#: The summary of all stacks, a file beside the results.
SUMMARY = "batch.json"

State = Literal["to do", "done", "done before", "skipped", "in work", "failed"]
#: States of stacks that are not done.
LEFT = ("in work", "failed")


@dataclass(frozen=True)
class Result:
    """What became of a stack."""

    name: str
    state: State
    #: Number of frames, or of files if they were not read.
    frames: int
    #: Why it was skipped or failed, or which process is at work on it.
    reason: str | None = None
    #: Facts of its report, if there is one.
    width: int | None = None
    height: int | None = None
    sigma: float | None = None
    sigma_counts: float | None = None
    seconds: float | None = None
    output: str | None = None
    #: Warnings during the work; the traceback of an error that is a bug.
    warnings: tuple[str, ...] = ()
    traceback: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.state + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class Batch:
    """Jobs that differ only in their frames and in the names of their results."""

    #: The folder of the results: of every stack NAME.tif, or another suffix, and NAME.json, the
    #: report with digests of frames and options, by which a later run knows what is done.
    folder: Path
    #: The options of every job; its inputs, output and maps are not used.
    like: Request
    suffix: str = ".tif"
    #: Fewest frames of a stack.
    least: int = 2
    #: Whether to write NAME-depth.png and NAME-source.png as well.
    depth_maps: bool = False
    source_maps: bool = False

    def check(self, groups: Sequence[Group]) -> None:
        """Refuse, before any work, what would be wrong for all stacks."""
        check_number("least", self.least, 1, whole=True)
        check_options(self.like)
        # Maps of one stack may be named as the picture of another: a-depth.png.
        paths = [path for group in groups for path in self._outputs(group)]
        check_distinct(paths, [file for group in groups for file in group.files])
        check_folder(self.folder)
        summary = self.folder / SUMMARY
        if summary.exists() and "stacks" not in _read_json(summary):
            check_destination(summary, overwrite=self.like.writing.overwrite)

    def look(self, group: Group) -> Result:
        """Say how a stack stands before any work; refuses what would be in its way."""
        if group.trouble is not None:
            raise CofuseError(group.trouble)
        frames = len(group.files)
        if frames < self.least and any(f.suffix.lower() in (".tif", ".tiff") for f in group.files):
            frames = len(read_stack(group.files))  # one file may have many pages
        if frames < self.least:
            reason = f"{frames_in_words(frames)}, fewer than {self.least}"
            return Result(group.name, "skipped", frames, reason)
        record, digests = _read_json(self._report(group)), self._digests(group)
        before, outputs = record.get("batch"), self._outputs(group)
        if before == digests and outputs[0].exists():
            return _result(group, "done before", record)
        overwrite = self.like.writing.overwrite or before == digests
        if isinstance(before, dict) and not overwrite:
            changed = [what for what in digests if before.get(what) != digests[what]]
            raise CofuseError(
                f"done before with other {' and '.join(changed)}; pass `overwrite=True` to do it "
                "again"
            )
        if self.folder.is_dir():
            for path in (*outputs, self._report(group)):
                check_destination(path, overwrite=overwrite)
        return Result(group.name, "to do", frames)

    def plan(self, group: Group) -> Result:
        """Say what would become of a stack."""
        try:
            return self.look(group)
        except (CofuseError, OSError) as error:
            return Result(group.name, "failed", len(group.files), _line(error))

    def run(self, group: Group, progress: ProgressCallback = silent) -> Result:
        """Do one stack, unless it is done; an error is part of the result, not raised."""
        trace = None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            try:
                clear_leftovers(self.folder)
                result = self.look(group)
                if result.state == "to do":
                    result = self._fuse(group, progress)
            except Exception as error:  # the other stacks are done all the same
                reason = _line(error)
                if not isinstance(error, CofuseError):
                    reason, trace = f"{type(error).__name__}: {reason}", traceback.format_exc()
                result = Result(group.name, "failed", len(group.files), reason)
        said = tuple(_line(each.message) for each in caught)
        return replace(result, warnings=said, traceback=trace)

    def facts(self, results: Sequence[Result]) -> dict[str, Any]:
        """Describe all stacks for the summary, as JSON."""
        counts = Counter(result.state for result in results)
        facts = {"output": self.folder, "counts": counts, "stacks": results}
        return plain({"cofuse": __version__} | facts)

    def write_summary(self, groups: Sequence[Group], results: Sequence[Result]) -> list[Result]:
        """Write the summary beside the results; returns the results as they are by then.

        Another run may have done stacks that this one has not, and written its summary already.
        Each run writes again until nothing has changed meanwhile, so that the last summary is true.
        """
        written: list[Result] = []
        while (now := [*map(self._now, groups, results)]) != written:
            write_json(self.folder / SUMMARY, self.facts(now), overwrite=True)
            written = now
        return written

    def _now(self, group: Group, result: Result) -> Result:
        """Look again at a stack that was not done: another run may have done it."""
        now = self.plan(group) if result.state in LEFT else result
        return replace(now, warnings=result.warnings) if now.state == "done before" else result

    def _fuse(self, group: Group, progress: ProgressCallback) -> Result:
        """Do the work, unless another run is at it."""
        with locked(lock := lock_path(self.folder, group.name)) as holder:
            if holder is not None:
                reason = f"{who(holder)} is at work on it"
                if not is_of_this_machine(holder):  # and may be dead
                    reason += f"; if it no longer is, delete {lock}"
                return Result(group.name, "in work", len(group.files), reason)
            if (now := self.look(group)).state != "to do":  # another run was faster
                return now
            digests = self._digests(group)  # of the frames as they are before they are read
            # Results of just this may be replaced: their picture was deleted.
            again = _read_json(self._report(group)).get("batch") == digests
            writing = replace(self.like.writing, overwrite=self.like.writing.overwrite or again)
            job = Job(replace(self._request(group), writing=writing), facts={"batch": digests})
            return _result(group, "done", job.run(progress).report)

    def _request(self, group: Group) -> Request:
        """Ask for one stack's results."""
        name = group.name
        maps = Maps(
            depth_map=self.folder / f"{name}-depth.png" if self.depth_maps else None,
            source_map=self.folder / f"{name}-source.png" if self.source_maps else None,
            report=self._report(group),
        )
        output = self.folder / f"{name}{self.suffix}"
        return replace(self.like, inputs=group.inputs, output=output, maps=maps)

    def _report(self, group: Group) -> Path:
        return self.folder / f"{group.name}.json"

    def _outputs(self, group: Group) -> list[Path]:
        """List the files of a stack besides its report, the picture first."""
        request = self._request(group)
        paths = [request.output]
        for path in (request.maps.depth_map, request.maps.source_map):
            if path is not None:
                paths += [path, preview_path(path)]
        return paths

    def _digests(self, group: Group) -> dict[str, str]:
        """Digests of frames and options, by which a later run knows what it finds done."""
        try:
            frames = [(file.name, file.stat()) for file in group.files]
        except OSError as error:
            raise CofuseError(f"{error.filename} cannot be opened: {error.strerror}") from error
        request = replace(self, folder=Path())._request(group)
        options = dataclasses.asdict(request)
        # These do not change a picture that was made: a damaged frame that is refused makes none.
        del options["inputs"], options["writing"]["overwrite"], options["fusing"]["max_memory"]
        del options["reading"]["on_damage"]
        options["maps"]["report"] = None  # every stack has one
        # The content of the file counts, not its name.
        if (law := options["fusing"].pop("noise")) is not None:
            options["fusing"]["noise"] = read_saved(law, str, "a noise law")
        return {
            "frames": _digest([(name, stat.st_size, stat.st_mtime_ns) for name, stat in frames]),
            "options": _digest(options),
        }


def lock_path(folder: Path, name: str) -> Path:
    """Name the lock of a stack; a digest, as the stack's name may be as long as names can be."""
    return folder / f".cofuse-lock-{_digest(name)[:16]}"


def _result(group: Group, state: State, record: dict[str, Any]) -> Result:
    """Read a result off a report."""
    try:
        frames, seconds = record["frames"], record["seconds"]["total"]
        facts = {name: record[name] for name in ("sigma", "sigma_counts", "output")}
        facts |= {name: frames[name] for name in ("width", "height")}
        return Result(group.name, state, frames["count"], seconds=seconds, **facts)
    except (KeyError, TypeError) as error:
        raise CofuseError(
            f"the report {group.name}.json is damaged; delete it to do the stack again"
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    """Read a report; an empty one if there is none, or it cannot be read."""
    found = None
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text("utf-8"))
    return found if isinstance(found, dict) else {}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()


def _line(message: object) -> str:
    return " ".join(str(message).split())
