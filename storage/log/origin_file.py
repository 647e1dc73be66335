"""The `origin` file: the facts about a log that are given when it is new, and never change.

It is written first, and renamed to its name once it is complete; later starts read it and ignore their
settings. Here its content is bytes; the group keeps its first membership in it. A file that does not verify
is corruption.
"""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

from lockstep.storage.log.file_system import FileSystem, read_whole, write_all
from lockstep.storage.types import CorruptLog

ORIGIN_NAME = "origin"
_MAGIC = b"LSTKORIG"


def read_origin(fs: FileSystem, directory: Path) -> bytes | None:
    """Returns the file's content, None where there is none. Raises CorruptLog."""
    data = read_whole(fs, directory / ORIGIN_NAME)
    if data is None:
        return None
    body = data[len(_MAGIC) + 4 :]
    if not data.startswith(_MAGIC) or data[len(_MAGIC) : len(_MAGIC) + 4] != crc32c(body).to_bytes(4, "big"):
        raise CorruptLog(f"{directory / ORIGIN_NAME}: does not verify")
    return body


def write_origin(fs: FileSystem, directory: Path, body: bytes) -> None:
    """Write it durably. Raises OSError."""
    temporary = directory / (ORIGIN_NAME + ".tmp")
    fd = fs.open(temporary, create=True)
    try:
        write_all(fs, fd, [_MAGIC + crc32c(body).to_bytes(4, "big") + body], 0)
        fs.fdatasync(fd)
    finally:
        fs.close(fd)
    fs.rename(temporary, directory / ORIGIN_NAME)
    fs.fsync_dir(directory)
