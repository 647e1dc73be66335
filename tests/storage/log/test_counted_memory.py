"""What a follower holds in memory of the frames it received is what its limits count, and no more."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import cast

from crc32c import crc32c

from lockstep.broker.fetch.replica_selector import missing_offsets
from lockstep.player_host.group_entries import split_into_entries
from lockstep.protocol.records.batch import HEADER
from lockstep.storage.aborted_transactions import ENTRY_TRANSACTIONAL
from lockstep.storage.append_codec import unpack
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import encode_frame_head, frame_buffers
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.recent_frames import cost_bytes
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.raft.messages import Append
from lockstep.storage.state_machines import StateMachines
from lockstep.storage.types import Buffer, DirectoryEntry, EntryFields, Frame, FrameKind
from tests.storage.log.frames import whole
from tests.support.cases import each_case

Batches = Sequence[tuple[int, int]]
"""Partition and body size of each batch of a frame."""
TRANSACTIONAL = 0x10
"""Of a batch's attributes."""


def batch(base_offset: int, size: int, is_transactional: bool) -> bytes:
    """A batch of one record of nothing, with a body of so many bytes."""
    fields = [base_offset, 49 + size, 3, 2, 0, TRANSACTIONAL * is_transactional, 0, 9, 9, 7, 0, 0, 1]
    fields[4] = crc32c(HEADER.pack(*fields)[21:] + bytes(size))
    return HEADER.pack(*fields) + bytes(size)


class Leader:
    """Makes messages of frames, as a follower receives them."""

    def __init__(self, chain: int) -> None:
        self._chain = chain
        self._index, self._lsn = 0, 1
        self._nexts: dict[int, int] = {}

    def frame(self, batches: Batches, flags: int = 0) -> Frame:
        """Its payloads are one buffer each, as a leader has them."""
        entries: list[EntryFields] = []
        payloads: list[Buffer] = []
        for partition, size in batches:
            base = self._nexts.setdefault(partition, 70_000)
            self._nexts[partition] += 1
            payload = batch(base, size, bool(flags & ENTRY_TRANSACTIONAL))
            crc = int.from_bytes(payload[17:21], "big")
            entries.append((partition, base, 1, len(payload), crc, 3, 1_700_000_000_000 + base, flags))
            payloads.append(bytearray(payload))
        self._index += 1
        frame = Frame(
            FrameKind.DATA, 1, self._index, self._lsn, 1_700_000_000_000, [], payloads, len(entries)
        )
        frame.pack(entries)
        self._lsn += len(entries)
        return frame

    def message(self, frames: Sequence[Frame]) -> Append:
        before, buffers = self._chain, []
        for frame in frames:
            frame.head, self._chain = encode_frame_head(frame, self._chain)
            buffers += frame_buffers(frame)
        first, last = frames[0].index, frames[-1].index
        data = b"".join(buffers)
        return Append(2, 1, 1, first - 1, int(first > 1), [(first, 1)], last, [], 0, 0, [data], before)


def held_by(forget: Callable[[], None]) -> int:
    """The bytes that are free once this was called."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    forget()
    gc.collect()
    return before - tracemalloc.get_traced_memory()[0]


class Tail:
    """A follower's log without recent frames, so that its tail cache alone holds what was received."""

    def __init__(self, directory: Path, limit: int) -> None:
        options = LogOptions(tail_cache_bytes=limit, recent_frames_bytes=0, flush=False)
        self.log = DataLog.open(directory, 1, options)
        self.leader = Leader(self.log.chain)

    def receive(self, *frames: Batches) -> None:
        self.log.append(unpack(self.leader.message([self.leader.frame(each) for each in frames])))

    def close(self) -> tuple[int, int]:
        """(bytes counted, bytes held)"""
        cache = self.log._tail_cache
        counted = cache._used_bytes
        held = held_by(cache.clear)
        self.log.close()
        return counted, held


@each_case(
    ("batches", "limit"),
    [
        ([(1, 9)] * 400, 300_000),
        ([(1 + at % 2, 40) for at in range(100)], 200_000),
        ([(1 + at % 50, 40) for at in range(100)], 200_000),
        ([(1, 40)], 100_000),
        ([(1, 40), (2, 3000), (1, 500), (1, 10), (3, 10)], 300_000),
        ([(1, 1000)] * 400, 700_000),  # a message of half the limit
        ([(1 + at % 2, 40) for at in range(400)], 100_000),  # likewise
    ],
)
def test_the_tail_cache_counts_what_it_holds(tmp_path: Path, batches: Batches, limit: int) -> None:
    tracemalloc.start()
    try:
        tail = Tail(Path(mkdtemp(dir=tmp_path)), limit)
        sizes = 120 * len(batches) + sum(size for _, size in batches)
        for _ in range(3 * limit // sizes):
            tail.receive(batches)
        counted, held = tail.close()
    finally:
        tracemalloc.stop()
    assert 0.6 * limit < counted <= limit
    assert 0.8 < held / counted < 1.15


def test_a_message_with_rows_of_a_deleted_topic_is_counted_as_long_as_it_is_held(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        tail = Tail(tmp_path / "log", limit := 2_000_000)
        for number in range(40):
            temporary = 100 + number
            tail.receive([(1, 40), *[(temporary, 30_000)] * 8])
            tail.log.forget_partition(temporary)
            tail.receive([(1, 40)], [(temporary, 30_000)] * 8, [(2, 40)])
            tail.log.forget_cleaned({temporary: 1 << 40})
        newest = whole(tail.log.read(1, 70_079, 1000, 1 << 40).buffers)
        counted, held = tail.close()
    finally:
        tracemalloc.stop()
    assert newest[:8] == (70_079).to_bytes(8, "big"), "the newest batch is there still"
    assert counted <= limit and 0.9 < held / counted < 1.1


def test_a_message_of_which_every_row_is_forgotten_costs_nothing(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "log", 1 << 20)
    tail.receive([(1, 40), (2, 40)] * 3)
    cache = tail.log._tail_cache
    tail.log.forget_cleaned({1: 1 << 40})
    assert cache._used_bytes > 600
    tail.log.forget_cleaned({2: 1 << 40})
    assert (cache._used_bytes, cache._partitions) == (0, {})
    tail.log.close()


class Tally:
    """A commit machine, or a tail machine that takes batches one by one."""

    def snapshot(self, time_ms: int) -> bytes:
        return b""

    def restore(self, data: bytes) -> None:
        pass

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        assert int.from_bytes(payload[:8], "big") == entry.base_offset


@each_case(("flags", "by_leader"), [(0, False), (0, True), (ENTRY_TRANSACTIONAL, False)])
def test_recent_frames_hold_no_more_memory_after_all_their_readers(
    tmp_path: Path, flags: int, by_leader: bool
) -> None:
    topic = b"t" * 16
    state = StateMachines({topic: ("committed", Tally())}, {"tail": Tally()})
    log = DataLog.open(Path(mkdtemp(dir=tmp_path)), 1, LogOptions(tail_cache_bytes=0, flush=False))
    leader = Leader(log.chain)
    logs = {1: PartitionLog(1, topic, 0), 2: PartitionLog(2, b"other" + bytes(11), 0)}
    for each in logs.values():
        state.control.partitions[each.local_id] = each
        each.next_offset = 70_000
        state._attach(each)
    batches = [(1 + at // 20 % 2, 40) for at in range(400)]
    tracemalloc.start()
    counted = 0
    for number in range(1, 31):
        frames = [leader.frame(batches, flags)]
        if not by_leader:
            frames = unpack(leader.message(frames))
        log.append(frames)
        for frame in frames:
            state.replay_appended(frame)
            state.apply_committed(frame, {})
            frame.runs = None  # as `Applier` does
            assert len(split_into_entries([frame], 1, logs, 1 << 30, 0).entries) == (0 if flags else 400)
            counted += cost_bytes(frame, frame.total_bytes)
        group = cast(LogGroup, SimpleNamespace(applied_index=number, log=log))
        before = 70_000 + 200 * (number - 1)
        assert missing_offsets(group, number - 1) == {1: before, 2: before}
    del frames, frame
    held = held_by(log._recent.clear)
    tracemalloc.stop()
    log.close()
    assert 0.9 < held / counted < 1.1
