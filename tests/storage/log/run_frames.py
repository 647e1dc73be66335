"""Frames of batches that are runs, and such as are not, as a leader has them."""

from __future__ import annotations

from array import array

from hypothesis import strategies as st

from lockstep.storage.log.batch_index import BatchIndex
from lockstep.storage.log.batch_runs import MAX_RUN_BYTES
from lockstep.storage.types import Buffer, EntryFields, Frame, FrameKind
from tests.storage.log.frames import batch, entry

BATCH_LISTS = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 1, 2]),  # partition
        st.integers(1, 4),  # records
        st.sampled_from([0, 1, 30, 30, 30, 400, MAX_RUN_BYTES // 3, MAX_RUN_BYTES]),  # bytes
        st.sampled_from([0, 0, 0, 0, 2]),  # flags
        st.sampled_from([0, 0, 0, 0, 1]),  # how much higher the leader epoch is
    ),
    min_size=1,
    max_size=14,
)


def moved(index: BatchIndex, next_offset: int) -> BatchIndex:
    """The index, with offsets that follow on another's."""
    by = next_offset - index.bases[0] if index.bases else 0
    index.bases = array("q", [base + by for base in index.bases])
    index.next_offset += by
    return index


def frame_of(batches: list[tuple[int, int, int, int, int]]) -> Frame:
    """A frame as a leader has it."""
    entries: list[EntryFields] = []
    payloads: list[Buffer] = []
    nexts = {1: 5, 2: 70}
    epoch = 3
    for number, (partition, records, size, flags, more) in enumerate(batches):
        epoch += more
        payload = batch(nexts[partition], bytes([number % 256]) * size, epoch)
        each = entry(partition, payload, records, (number * 7) % 5)
        each.flags = flags
        entries.append(each.fields)
        payloads.append(payload)
        nexts[partition] += records
    frame = Frame(FrameKind.DATA, 1, 1, 1, 9, [], payloads, sum(fields[2] for fields in entries))
    frame.pack(entries)
    return frame
