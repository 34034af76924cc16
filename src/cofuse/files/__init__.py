"""Pictures and reports on disk: read, checked, written whole or not at all."""

from cofuse.files.reading import IN_MEMORY_BYTES, picture_files, read_image, read_stack
from cofuse.files.reports import check_report, fusion_report, write_json
from cofuse.files.writing import check_output, write_image, written_whole

__all__ = [
    "IN_MEMORY_BYTES",
    "check_output",
    "check_report",
    "fusion_report",
    "picture_files",
    "read_image",
    "read_stack",
    "write_image",
    "write_json",
    "written_whole",
]
