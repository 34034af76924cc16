"""What the reference frame said of itself, kept with a job: its frames may be gone by then."""

from __future__ import annotations

import base64
import dataclasses
import json
from pathlib import Path

from cofuse.files import Metadata, write_json

__all__ = ["load_metadata", "save_metadata"]


def save_metadata(path: Path, metadata: Metadata) -> None:
    """Write metadata as JSON."""
    facts = dataclasses.asdict(metadata)
    for name, value in facts.items():
        if isinstance(value, bytes):
            facts[name] = {"bytes": base64.b64encode(value).decode()}
    write_json(path, facts, overwrite=True)


def load_metadata(path: Path) -> Metadata:
    """Read what the reference frame said of itself, as the job found it."""
    facts = json.loads(path.read_text("utf-8"))
    for name, value in facts.items():
        if isinstance(value, dict):
            facts[name] = base64.b64decode(value["bytes"])
        elif isinstance(value, list):
            facts[name] = tuple(value)
    return Metadata(**facts)
