"""Checkpoint files: state derived from the frames up to an index, in chunks, whole or ignored.

A checkpoint is written under a temporary name, flushed, then renamed, and the directory is flushed; so a
file under its final name was whole once. Every chunk has a checksum seeded with the one before and a trailer
ends the file, so neither a missing nor a foreign chunk goes unnoticed. The two newest are kept: segments
are freed only below the older one, so that a corrupt newest checkpoint costs a longer replay, not the log.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from crc32c import crc32c

from lockstep.storage.log.file_system import FileSystem, read_whole, unless_lost, write_all
from lockstep.storage.log.format import FORMAT, segment_of
from lockstep.storage.types import Checkpoint, CorruptLog, NewerFormat

CHUNK_BYTES = 1 << 20
PREFIX = "checkpoint-"
REPEATED_PREFIX = "checkpoint-again-"
"""The prefix of a second checkpoint at the same index: on an idle log both kept ones may be of its end."""
INCOMING = "incoming-"
"""The beginning of an installed checkpoint's name; it counts once the log begins at its position."""
_CHECKPOINT_NAME = re.compile("checkpoint-(?:again-)?[0-9]{20}")
_INCOMING_NAME = re.compile("incoming-([0-9]{16})-[0-9]{20}")
TEMPORARY = "checkpoint.tmp"
INCOMING_TEMPORARY = "incoming.tmp"
"""A separate temporary name: during an installation the log that it replaces may write a checkpoint, too."""

CHECKPOINT_MAGIC = b"LSTKCKPT"
_END = b"LSTKCEND"
_HEADER = struct.Struct(">8sIHHIQQQIqQI")
"""magic, crc, format, flags, group id, index, term, next LSN, chain, time ms, position after, sections."""
_CHUNK = struct.Struct(">IHI")
"""crc (seeded with the one before, over what follows it), name bytes, data bytes; then name and data."""
_TRAILER = struct.Struct(">8sII")
"""magic, chunk count, crc seeded with the last chunk's over the count."""
_CRC_FROM = 12


class PlacedCheckpoint:
    """A checkpoint and the local position that follows its frame."""

    __slots__ = ("checkpoint", "name", "position")

    def __init__(self, name: str, checkpoint: Checkpoint, position: int) -> None:
        self.name = name
        self.checkpoint = checkpoint
        self.position = position


def checkpoint_name(index: int) -> str:
    return f"{PREFIX}{index:020d}"


def name_beside(former: str, index: int) -> str:
    """The name for a checkpoint at an index, while the former one keeps its own."""
    plain = checkpoint_name(index)
    return plain if former != plain else f"{REPEATED_PREFIX}{index:020d}"


def incoming_name(first_sequence: int, index: int) -> str:
    """The name until the switch, and until it gets its final one."""
    return f"{INCOMING}{first_sequence:016d}-{index:020d}"


def index_of_name(name: str) -> int:
    return int(name[-20:])


def is_checkpoint(name: str) -> bool:
    """Returns whether a file's name is a checkpoint's: an operator's copy of one has another name."""
    return _CHECKPOINT_NAME.fullmatch(name) is not None


def is_installed(name: str, oldest_sequence: int) -> bool:
    """Returns whether the switch to this incoming checkpoint has been made."""
    found = _INCOMING_NAME.fullmatch(name)
    return found is not None and int(found[1]) <= oldest_sequence


def is_unfinished(name: str, oldest_sequence: int) -> bool:
    """Returns whether this is an incoming checkpoint whose switch has not been made."""
    return _INCOMING_NAME.fullmatch(name) is not None and not is_installed(name, oldest_sequence)


def encode_checkpoint(group_id: int, checkpoint: Checkpoint, position: int) -> Iterator[bytes]:
    """The file's bytes, chunk by chunk."""
    body = _HEADER.pack(
        CHECKPOINT_MAGIC,
        0,
        FORMAT,
        0,
        group_id,
        checkpoint.index,
        checkpoint.term,
        checkpoint.next_lsn,
        checkpoint.chain,
        checkpoint.time_ms,
        position,
        len(checkpoint.sections),
    )[_CRC_FROM:]
    crc = crc32c(body)
    yield CHECKPOINT_MAGIC + crc.to_bytes(4, "big") + body
    chunks = 0
    for name, data in checkpoint.sections.items():
        encoded = name.encode()
        view = memoryview(data)
        for start in range(0, max(1, len(view)), CHUNK_BYTES):
            part = view[start : start + CHUNK_BYTES]
            rest = _CHUNK.pack(0, len(encoded), len(part))[4:] + encoded
            crc = crc32c(part, crc32c(rest, crc))
            yield crc.to_bytes(4, "big") + rest
            yield bytes(part)
            chunks += 1
    yield _TRAILER.pack(_END, chunks, crc32c(chunks.to_bytes(4, "big"), crc))


def decode_checkpoint(data: bytes, name: str, group_id: int) -> PlacedCheckpoint | None:
    """The checkpoint, or None where the bytes are not whole. NewerFormat; CorruptLog for another group's."""
    if len(data) < _HEADER.size + _TRAILER.size:
        return None
    magic, crc, fmt, _, owner, index, term, next_lsn, chain, time_ms, position, section_count = (
        _HEADER.unpack_from(data)
    )
    if magic != CHECKPOINT_MAGIC or crc != crc32c(data[_CRC_FROM : _HEADER.size]):
        return None
    if fmt > FORMAT:
        raise NewerFormat(f"{name}: format {fmt}, this version knows up to {FORMAT}")
    if owner != group_id:
        raise CorruptLog(f"{name}: belongs to log group {owner}, not {group_id}")
    parts = _decode_chunks(memoryview(data), crc)
    if parts is None or len(parts) != section_count:
        return None
    sections = {section: b"".join(chunks) for section, chunks in parts.items()}
    return PlacedCheckpoint(name, Checkpoint(index, term, next_lsn, chain, time_ms, sections), position)


def _decode_chunks(data: memoryview, crc: int) -> dict[str, list[bytes]] | None:
    parts: dict[str, list[bytes]] = {}
    at, end, chunks = _HEADER.size, len(data) - _TRAILER.size, 0
    while at < end:
        if at + _CHUNK.size > end:
            return None
        expected, name_bytes, data_bytes = _CHUNK.unpack_from(data, at)
        start = at + _CHUNK.size + name_bytes
        if start + data_bytes > end:
            return None
        crc = crc32c(data[at + 4 : start + data_bytes], crc)
        if crc != expected:
            return None
        name = bytes(data[start - name_bytes : start]).decode()
        parts.setdefault(name, []).append(bytes(data[start : start + data_bytes]))
        at = start + data_bytes
        chunks += 1
    magic, count, last = _TRAILER.unpack_from(data, end)
    if magic != _END or count != chunks or last != crc32c(chunks.to_bytes(4, "big"), crc):
        return None
    return parts


def write_checkpoint(
    fs: FileSystem, directory: Path, group_id: int, checkpoint: Checkpoint, position: int, name: str = ""
) -> str:
    """Writes, flushes, renames, flushes the directory; returns the name. An OSError leaves the old ones."""
    temporary = directory / (INCOMING_TEMPORARY if name.startswith(INCOMING) else TEMPORARY)
    fd = fs.open(temporary, create=True)
    try:
        at = 0
        for part in encode_checkpoint(group_id, checkpoint, position):
            write_all(fs, fd, [part], at)
            at += len(part)
        fs.fdatasync(fd)
    except OSError:
        with contextlib.suppress(OSError):
            fs.unlink(temporary)  # on a full disk its bytes are needed elsewhere
        raise
    finally:
        fs.close(fd)
    name = name or checkpoint_name(checkpoint.index)
    fs.rename(temporary, directory / name)
    fs.fsync_dir(directory)
    return name


def load_checkpoints(
    fs: FileSystem, directory: Path, names: list[str], group_id: int, oldest_sequence: int = 0
) -> tuple[list[PlacedCheckpoint], list[str]]:
    """The two newest whole checkpoints, oldest first, and the names of broken ones newer than those. Those
    of a log that was replaced, placed below its oldest sequence, do not count. OSError where none is
    whole and one cannot be read: another time it may be."""
    finished = [name for name in names if is_checkpoint(name) or is_installed(name, oldest_sequence)]
    candidates = sorted(finished, key=lambda name: (index_of_name(name), name))
    whole: list[PlacedCheckpoint] = []
    broken: list[str] = []
    unread: list[OSError] = []
    while candidates and len(whole) < 2:
        name = candidates.pop()
        data = unless_lost(partial(read_whole, fs, directory / name), unread)
        loaded = decode_checkpoint(data, name, group_id) if data is not None else None
        if loaded is None:
            broken.append(name)
        elif segment_of(loaded.position) >= oldest_sequence:
            whole.append(loaded)
    if unread and not whole:
        raise unread[0]
    return sorted(whole, key=lambda placed: (placed.checkpoint.index, placed.position)), broken
