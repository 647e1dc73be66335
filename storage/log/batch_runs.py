"""Runs: neighbouring batches of one partition in a frame, taken in one step by the log and the tail machines.

Within a run offsets and bytes are contiguous, the leader epoch is one, and flags are 0; a batch with flags
is a run of its own. A run ends at `MAX_RUN_BYTES`, so that a read that begins within it looks at a few
batches. Runs never span frames. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lockstep.storage.types import Buffer, DirectoryEntry, EntryFields, Frame, Run

MAX_RUN_BYTES: Final = 64 << 10
"""LIMIT. Bytes of a run of several batches."""


def runs_of(frame: Frame) -> list[Run]:
    """The batches of a frame whose directory is complete, as runs in their order; kept in `frame.runs`."""
    runs = frame.runs
    if runs is None:
        entries = frame.entries
        if len(entries) == 1:
            ((local_id, offset, count, length, _, epoch, timestamp, flags),) = entries
            runs = [(local_id, offset, offset + count, 1, length, epoch, timestamp, flags)]
        else:
            runs = group_batches(entries)
        frame.runs = runs
    return runs


def group_batches(entries: Sequence[EntryFields]) -> list[Run]:
    """The runs of a directory, in its order."""
    runs: list[Run] = []
    partition = leader_epoch = -1
    base = end = batches = size = newest = run_flags = 0
    for local_id, offset, count, length, _, epoch, timestamp, flags in entries:
        if (
            local_id == partition
            and offset == end
            and epoch == leader_epoch
            and not (flags or run_flags)
            and size + length <= MAX_RUN_BYTES
        ):
            end += count
            batches += 1
            size += length
            if timestamp > newest:
                newest = timestamp
            continue
        if batches:
            runs.append((partition, base, end, batches, size, leader_epoch, newest, run_flags))
        partition, base, end, batches, size = local_id, offset, offset + count, 1, length
        leader_epoch, newest, run_flags = epoch, timestamp, flags
    if batches:
        runs.append((partition, base, end, batches, size, leader_epoch, newest, run_flags))
    return runs


def batches_of(
    frame: Frame, entries: Sequence[EntryFields], first: int, count: int, begin: int
) -> list[tuple[DirectoryEntry, Buffer]]:
    """Some batches of a frame, each with its entry; the frame keeps none of it.

    Args:
        entries: the frame's, of all batches.
        begin: where the first lies among the payloads.
    """
    body = frame.body
    found: list[tuple[DirectoryEntry, Buffer]] = []
    for row in range(first, first + count):
        fields = entries[row]
        end = begin + fields[3]
        found.append((DirectoryEntry(*fields), frame.payloads[row] if body is None else body[begin:end]))
        begin = end
    return found
