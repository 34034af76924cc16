"""Requests and answers of the API; records add the fields that stay on the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, computed_field

from cofuse.web.options import Options, Strict
from cofuse.web.retouching import Stroke

State = Literal["waiting", "running", "done", "failed", "cancelled", "interrupted"]

#: Facts whose names depend on the picture.
AnyJSON = dict[str, Any]

Name = Annotated[str, Field(max_length=200)]


def now() -> datetime:
    """The present, as it is written into records."""
    return datetime.now(UTC)


class ErrorLine(BaseModel):
    """What went wrong, in one line."""

    error: str


class Pending(BaseModel):
    """Being computed; ask again."""

    pending: bool = True


class Info(BaseModel):
    """What this server can do.

    ``presets`` and ``devices`` have a name and words each, devices whether they are available.
    ``limits`` are the most that is taken: bytes and frames of a stack, pixels of a frame, and a
    queue of waiting jobs.
    """

    version: str
    presets: list[dict[str, str]]
    devices: list[AnyJSON]
    formats: list[str]
    limits: dict[str, int]
    demo: bool


class Frame(BaseModel):
    """One file of a stack; `depth` in bits, `pages` the frames in it."""

    id: str
    name: str
    format: str
    width: int
    height: int
    depth: int
    colour: bool
    bytes: int
    pages: int = 1

    @property
    def kind(self) -> str:
        """Size, colour and depth in words; frames of one stack must agree in it."""
        return f"{self.width}x{self.height} {'RGB' if self.colour else 'grey'} {self.depth} bits"


class Record(BaseModel):
    """What a record has besides what is saved: its folder, and a count of its changes."""

    folder: Path = Field(default=Path(), exclude=True)
    version: int = Field(default=0, exclude=True)

    def show(self, **values: Any) -> None:
        """Give it new values without writing them; event streams see that it has changed."""
        for name, value in values.items():
            setattr(self, name, value)
        self.version += 1


class FrameRecord(Frame):
    """A frame and the ending of its file."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
    suffix: Annotated[str, Field(pattern=r"^(\.[a-z0-9]{1,5})?$")]


class Stack(BaseModel):
    """Frames in their order."""

    id: str
    name: str
    created: datetime
    frames: Sequence[Frame] = []
    sample: bool = False

    # mypy knows no decorator above a property; pydantic documents that it is to be ignored.
    @computed_field  # type: ignore[prop-decorator]
    @property
    def problem(self) -> str | None:
        """Why the frames cannot be fused as they are; None if they can."""
        kinds = Counter(frame.kind for frame in self.frames)
        if len(kinds) < 2:
            return None
        usual = kinds.most_common(1)[0][0]
        odd = next(frame for frame in self.frames if frame.kind != usual)
        sizes = {(frame.width, frame.height) for frame in self.frames}
        what = "sizes differ" if len(sizes) > 1 else "depths or colours differ"
        return f"{what}: {odd.name} is {odd.kind}, most frames are {usual}"


class StackRecord(Record, Stack):
    """A stack, and what was found out about it."""

    frames: list[FrameRecord] = []
    used: datetime = Field(default_factory=now)
    #: Its level and what is remarkable about it, once they are estimated.
    noise: AnyJSON | None = None

    @property
    def names(self) -> list[str]:
        """What people call the frames."""
        return [frame.name for frame in self.frames]

    @property
    def pages(self) -> int:
        """Frames in all files."""
        return sum(frame.pages for frame in self.frames)


class NewStack(Strict):
    """A stack to be made."""

    name: Name | None = None


class StackChange(Strict):
    """Another name, another order."""

    name: Name | None = None
    order: Annotated[list[str], Field(max_length=10_000)] | None = None


class Uploaded(BaseModel):
    """What became of uploaded files; the refused have a name and an error, why they are."""

    added: list[Frame]
    refused: list[dict[str, str]]
    stack: Stack


class NewJob(Strict):
    """A job to be started."""

    stack: Annotated[str, Field(max_length=100)]
    options: Options = Field(default_factory=Options)


class Result(BaseModel):
    """What a job made."""

    width: int
    height: int
    depth: int
    colour: bool
    frames: int
    sigma: float
    #: The same in the frames' own values; jobs of earlier versions do not say it.
    sigma_counts: float | None = None
    sigma_estimated: bool
    #: What is remarkable about the noise, in words.
    character: list[str] = []
    seconds: float
    stages: dict[str, float]
    hot_pixels: int
    moved: float
    device: str
    names: list[str]
    has_depth: bool
    notes: list[str] = []


class Job(BaseModel):
    """A job and where it stands."""

    id: str
    stack: str
    name: str
    state: State
    created: datetime
    started: datetime | None = None
    ended: datetime | None = None
    options: Options
    command: str
    stage: str = ""
    done: int = 0
    total: int = 0
    seconds_left: float | None = None
    progress: float = 0.0
    preview: int = 0
    error: str | None = None
    result: Result | None = None
    retouched: int = 0


class JobRecord(Record, Job):
    """A job, the frames it takes, and what its pictures are shown by."""

    frames: list[FrameRecord] = []
    white: float = 255.0
    metrics: AnyJSON | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state not in ("waiting", "running")


class Strokes(Strict):
    """All strokes of a result, in their order.

    The first ``applied`` are painted, all if it does not say; the others are kept for later.
    ``version`` counts the changes of the list: one that a change does not follow on is refused.
    """

    strokes: Annotated[list[Stroke], Field(max_length=10_000)]
    applied: Annotated[int, Field(ge=0)] | None = None
    version: Annotated[int, Field(ge=0)] | None = None

    @property
    def painted(self) -> list[Stroke]:
        """The strokes that are in the picture, or are to be."""
        return self.strokes[: self.applied]
