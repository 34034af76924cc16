"""Pictures and reports on disk: read, checked, written whole or not at all."""

from cofuse.files.metadata import Metadata
from cofuse.files.reading import read_alpha, read_image, read_metadata, read_stack
from cofuse.files.sources import picture_files
from cofuse.files.writing import (
    check_destination,
    check_folder,
    check_format,
    plain,
    write_image,
    write_json,
    written_whole,
)

__all__ = [
    "Metadata",
    "check_destination",
    "check_folder",
    "check_format",
    "picture_files",
    "plain",
    "read_alpha",
    "read_image",
    "read_metadata",
    "read_stack",
    "write_image",
    "write_json",
    "written_whole",
]
