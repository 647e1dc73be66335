"""Compaction's rules against a naive model: streams of random keys, tombstones, transactions and codecs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.protocol.records.batch import CONTROL_FLAG, BatchHeader, crc_of, read_header
from lockstep.protocol.records.batch import patch_whole as place
from lockstep.protocol.records.batch_filter import FilteredBatch
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.control import ControlKind, build, parse
from lockstep.protocol.records.record import BatchBuilder, Record, iter_records
from lockstep.storage import compaction_rules
from lockstep.storage.aborted_transactions import AbortedTransaction
from lockstep.storage.compaction_rules import DIGEST_BYTES, MAX_OWN_KEY_LENGTH, OffsetMap, PartitionCleaning
from lockstep.storage.types import CorruptLog
from tests.support.cases import each_case

KEEP_MS = 100
"""delete.retention.ms"""


class Stream:
    """One partition's batches as they were written, and as they are after passes over them."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.written: list[bytes] = []
        self.next_offset = 0
        self.open: dict[int, int] = {}
        self.aborted: list[AbortedTransaction] = []

    def add(self, batch: bytes) -> None:
        data = bytearray(batch)
        place(data, self.next_offset, 3)
        self.next_offset = read_header(data).next_offset
        self.batches.append(bytes(data))
        self.written.append(bytes(data))

    def records(
        self,
        pairs: Sequence[tuple[bytes | None, bytes | None]],
        codec: Codec = Codec.NONE,
        producer: int = -1,
    ) -> None:
        builder = BatchBuilder(codec, producer_id=producer, transactional=producer >= 0)
        for key, value in pairs:
            builder.append(value, key, timestamp_ms=1000 + self.next_offset)
        if producer >= 0:
            self.open.setdefault(producer, self.next_offset)
        self.add(builder.build())

    def end(self, producer: int, commit: bool) -> None:
        first = self.open.pop(producer, None)
        if first is not None and not commit:
            self.aborted.append(AbortedTransaction(producer, first, self.next_offset, 0))
        kind = ControlKind.COMMIT if commit else ControlKind.ABORT
        self.add(build(kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1))

    @property
    def last_stable_offset(self) -> int:
        return min(self.open.values(), default=self.next_offset)

    def clean(self, dirty: int, end: int, now_ms: int, room: int = 1000) -> int:
        """One pass; where it ended."""
        pass_ = PartitionCleaning(5, dirty, end, now_ms, KEEP_MS, self.aborted, room)
        pass_.fill(b"".join(self.batches), lambda count: None)
        after: list[bytes] = []
        for batch in self.batches:
            left = pass_.filter_batch(batch)
            if left is True:
                after.append(batch)
            elif isinstance(left, FilteredBatch):
                after.append(left.batch)
        self.batches = after
        return pass_.end

    def clean_all(self, end: int, now_ms: int, room: int = 1000) -> None:
        dirty = 0
        while dirty < end:
            before, dirty = dirty, self.clean(dirty, end, now_ms, room)
            assert dirty > before


def read(batches: Sequence[bytes]) -> list[tuple[BatchHeader, Record]]:
    return [(read_header(b), r) for b in batches for r in iter_records(b)]


def is_aborted(stream: Stream, header: BatchHeader, record: Record) -> bool:
    return header.is_transactional and any(
        t.producer_id == header.producer_id and t.first_offset <= record.offset <= t.last_offset
        for t in stream.aborted
    )


def naive(stream: Stream, end: int) -> tuple[list[Record], list[Record]]:
    """What must be there of the records below `end` (the last of each key), and of those above."""
    last: dict[bytes, Record] = {}
    above: list[Record] = []
    for header, record in read(stream.written):
        if header.is_control:
            continue
        if header.next_offset > end:
            above.append(record)
        elif record.key is not None and not is_aborted(stream, header, record):
            last[record.key] = record
    return sorted(last.values(), key=lambda record: record.offset), above


def agrees(stream: Stream, end: int, tombstones: bool = True) -> None:
    expected, above = naive(stream, end)
    expected = [record for record in expected if tombstones or record.value is not None]
    data = [(h, r) for h, r in read(stream.batches) if not h.is_control]
    assert [r for h, r in data if h.next_offset <= end] == expected
    assert [r for h, r in data if h.next_offset > end] == above
    offsets = [header.base_offset for header in map(read_header, stream.batches)]
    assert offsets == sorted(set(offsets))
    by_base = {read_header(batch).base_offset: read_header(batch) for batch in stream.written}
    for batch in stream.batches:
        header, was = read_header(batch), by_base[read_header(batch).base_offset]
        assert (header.next_offset, header.leader_epoch, header.producer_id) == (
            was.next_offset,
            was.leader_epoch,
            was.producer_id,
        )


KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"k" * 19, b"k" * 20, b"k" * 300, None])
PAIRS = st.lists(st.tuples(KEYS, st.sampled_from([b"v", b"w" * 40, None])), min_size=1, max_size=5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("records"), PAIRS, st.sampled_from(list(Codec)), st.sampled_from([-1, -1, 1, 2])),
        st.tuples(st.just("end"), st.sampled_from([1, 2]), st.booleans()),
    ),
    min_size=1,
    max_size=14,
)


def played(steps: Sequence[tuple[Any, ...]]) -> Stream:
    stream = Stream()
    for name, *arguments in steps:
        getattr(stream, name)(*arguments)
    stream.records([(b"newest", b"v")])
    return stream


def end_of(stream: Stream, pick: int) -> int:
    """A place where a batch begins, at most the last stable offset, before the newest batch."""
    bases = [read_header(batch).base_offset for batch in stream.written]
    allowed = [base for base in bases if base <= stream.last_stable_offset]
    return allowed[pick % len(allowed)]


@given(steps=STEPS, more=STEPS, pick=st.integers(0, 99), room=st.sampled_from([1, 3, 1000]))
@settings(max_examples=150, deadline=None)
def test_exactly_the_last_record_of_each_key_stays(
    steps: list[Any], more: list[Any], pick: int, room: int
) -> None:
    stream = played(steps)
    end = end_of(stream, pick)
    stream.clean_all(end, 5000, room)
    agrees(stream, end)
    once = list(stream.batches)
    stream.clean_all(end, 5000 + KEEP_MS - 1, room)
    assert stream.batches == once
    stream.clean(end, end, 5000 + KEEP_MS)
    agrees(stream, end, tombstones=False)
    for name, *arguments in more:
        getattr(stream, name)(*arguments)
    stream.records([(b"newest", b"x")])
    later = max(end, end_of(stream, -1))
    dirty = end
    while dirty < later:
        dirty = stream.clean(dirty, later, 6000, room)
    stream.clean(later, later, 6000 + KEEP_MS)
    agrees(stream, later, tombstones=False)


PLANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "aborted records count": lambda: patch.object(PartitionCleaning, "_is_aborted", lambda self, h: False),
    "a map that forgets": lambda: patch.object(OffsetMap, "last_offset", lambda self, key: -1),
    "keys by their first byte": lambda: patch.object(compaction_rules, "_own", lambda key: key[:1]),
    "no end": lambda: patch.object(PartitionCleaning, "filter_batch", _judge_without_end),
    "tombstones for ever": lambda: patch.object(BatchHeader, "has_delete_horizon", False),
    "none": nullcontext,
}
_judge = PartitionCleaning.filter_batch


def _judge_without_end(self: PartitionCleaning, batch: bytes) -> FilteredBatch | bool:
    with patch.object(self, "end", 1 << 40):
        return _judge(self, batch)


def sample() -> Stream:
    stream = Stream()
    stream.records([(b"a", b"1"), (b"abc", b"1"), (None, b"x"), (b"d", b"1")])
    stream.records([(b"a", b"2"), (b"d", b"2")], Codec.ZSTD, producer=1)
    stream.records([(b"b", b"1"), (b"b", None)], Codec.LZ4)
    stream.end(1, commit=False)
    stream.records([(b"c", b"1"), (b"a", b"3")])
    stream.records([(b"a", b"4"), (b"b", b"2"), (None, b"y")])
    return stream


@each_case("plant", PLANTS)
def test_a_planted_mistake_is_caught(plant: str) -> None:
    stream = sample()
    end = read_header(stream.written[-1]).base_offset
    with PLANTS[plant]():
        stream.clean(0, end, 5000)
        stream.clean(end, end, 5000 + KEEP_MS)
    if plant == "none":
        agrees(stream, end, tombstones=False)
        return
    with pytest.raises(AssertionError):
        agrees(stream, end, tombstones=False)


def kinds(stream: Stream) -> list[tuple[int, str]]:
    """(base offset, kind) of the control batches that are left."""
    headers = [(read_header(batch), batch) for batch in stream.batches]
    return [(h.base_offset, parse(batch).kind.name) for h, batch in headers if h.is_control]


def test_a_commit_marker_goes_after_its_records_and_an_abort_marker_stays() -> None:
    stream = Stream()
    for producer, commit in ((1, True), (2, False), (1, True), (2, True)):
        stream.records([(b"key of %d" % producer, b"v")], producer=producer)
        stream.end(producer, commit)
    stream.records([(b"newest", b"v")])
    end = read_header(stream.written[-1]).base_offset
    all_of_them = [(1, "COMMIT"), (3, "ABORT"), (5, "COMMIT"), (7, "COMMIT")]
    stream.clean(0, end, 5000)
    assert kinds(stream) == all_of_them
    stream.clean(end, end, 5000 + KEEP_MS - 1)
    assert kinds(stream) == all_of_them
    stream.clean(end, end, 5000 + KEEP_MS)
    assert kinds(stream) == all_of_them[1:], "the first one's record is superseded, those of 5 and 7 are not"
    agrees(stream, end)


def test_nothing_is_over_while_somebody_may_miss_it() -> None:
    stream = Stream()
    stream.records([(b"a", None)], producer=1)
    stream.end(1, True)
    stream.records([(b"a", b"2"), (b"b", None)])
    stream.records([(b"newest", b"v")])
    stream.clean(0, 4, 5000)
    before = list(stream.batches)
    for horizons_end in (False, True):
        pass_ = PartitionCleaning(5, 4, 4, 9000, KEEP_MS, horizons_end=partial(bool, horizons_end))
        judged = [pass_.filter_batch(batch) is True for batch in before]
        assert judged == ([True] * 3 if not horizons_end else [False, False, True])


def test_other_control_records_stay() -> None:
    stream = Stream()
    builder = BatchBuilder(control=True)
    builder.append(b"\0\0\0\0\0\0", b"\0\0\0\2", timestamp_ms=1)
    stream.add(builder.build())
    stream.records([(b"newest", b"v")])
    for now_ms in (5000, 9000):
        stream.clean(0, 1, now_ms)
    assert stream.batches == stream.written


def test_what_cannot_be_opened_stays_and_is_counted() -> None:
    stream = Stream()
    stream.records([(b"a", b"1")])
    for batch in (bytearray(stream.written[0]), bytearray(stream.written[0])):
        batch[57:61] = (2).to_bytes(4, "big")  # two records, it says
        if len(stream.written) == 2:
            batch[22] |= CONTROL_FLAG
        batch[23:27] = (0).to_bytes(4, "big")
        header = read_header(batch)
        batch[17:21] = crc_of(batch, 0, header.total_bytes).to_bytes(4, "big")
        stream.add(bytes(batch))
    stream.records([(b"a", b"2")])
    stream.records([(b"newest", b"v")])
    pass_ = PartitionCleaning(5, 0, 4, 0, 0)
    assert pass_.fill(b"".join(stream.batches), lambda count: None) == 4
    assert [pass_.filter_batch(batch) for batch in stream.batches] == [False, True, True, True, True]
    assert pass_.unreadable == [1, 2] and len(pass_.map) == 1


def test_a_batch_that_does_not_verify_ends_the_pass() -> None:
    stream = sample()
    bad = bytearray(stream.batches[0])
    bad[-1] ^= 1
    with pytest.raises(CorruptLog, match="partition 5 offset 0"):
        PartitionCleaning(5, 0, 4, 0, 0).fill(bad, lambda count: None)


def test_the_map_ends_where_it_is_full_or_where_it_may_not_go_on() -> None:
    stream = Stream()
    for at in range(6):
        stream.records([(b"%d" % at, b"v"), (b"x%d" % at, b"v"), (None, b"v")])
    data = b"".join(stream.batches)
    seen: list[int] = []
    for dirty, end, room, ends in (
        (0, 18, 7, 9),
        (6, 18, 7, 15),
        (3, 18, 1, 6),
        (0, 18, 99, 18),
        (0, 10, 99, 9),
        (0, 1, 99, 0),
    ):
        pass_ = PartitionCleaning(1, dirty, end, 0, 0, room=room)
        assert pass_.fill(data, seen.append) == pass_.end == ends
    assert sum(seen) > len(data)
    pass_ = PartitionCleaning(1, 0, 18, 0, 0)
    assert pass_.fill(stream.batches[0], seen.append) == 3 and pass_.end == 18
    assert pass_.fill(b"", seen.append) == 0


def test_long_keys_are_kept_as_digests() -> None:
    keys = [b"k" * size for size in (0, 1, MAX_OWN_KEY_LENGTH, DIGEST_BYTES, 4000)]
    stream = Stream()
    stream.records([(key, b"v") for key in keys])
    pass_ = PartitionCleaning(1, 0, 5, 0, 0)
    pass_.fill(stream.batches[0], lambda count: None)
    assert [pass_.map.last_offset(key) for key in keys] == [0, 1, 2, 3, 4]
    assert max(map(len, pass_.map._offsets)) == DIGEST_BYTES and pass_.map.last_offset(b"other") == -1


def test_a_tombstone_whose_time_would_be_beyond_all_times_stays() -> None:
    stream = Stream()
    stream.records([(b"a", b"1"), (b"b", None)])
    stream.records([(b"a", b"2")])
    for _ in range(2):
        pass_ = PartitionCleaning(5, 0, 3, 5000, (1 << 63) - 1)
        pass_.fill(b"".join(stream.batches), lambda count: None)
        left = [pass_.filter_batch(batch) for batch in stream.batches]
        if isinstance(left[0], FilteredBatch):
            stream.batches[0] = left[0].batch
    assert not pass_.unreadable
    header = read_header(stream.batches[0])
    assert header.has_delete_horizon and header.base_timestamp == (1 << 63) - 1 and left == [True, True]


def test_a_tombstone_stays_behind_a_batch_that_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readers see what the tombstone deletes: without it the key would live again."""
    stream = Stream()
    stream.records([(b"%d" % at, b"v") for at in range(10)])
    stream.records([(b"3", None), (b"4", b"newer")])
    stream.records([(b"newest", b"v")])
    monkeypatch.setattr("lockstep.protocol.records.batch_filter.MAX_RECORDS", 9)
    for now_ms in (5000, 5000 + KEEP_MS, 9999):
        stream.clean(0, 12, now_ms)
    assert [(record.key, record.value) for _, record in read(stream.batches)][10:] == [
        (b"3", None),
        (b"4", b"newer"),
        (b"newest", b"v"),
    ]
    monkeypatch.undo()
    stream.clean(0, 12, 10_000)
    assert b"3" not in [record.key for _, record in read(stream.batches)]


def test_what_cannot_be_made_again_stays_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_rules, "LATEST_MS", 1 << 63)
    stream = Stream()
    stream.records([(b"a", b"1"), (b"b", None)])
    stream.records([(b"a", b"2")])
    pass_ = PartitionCleaning(5, 0, 3, 5000, 1 << 63)
    pass_.fill(b"".join(stream.batches), lambda count: None)
    assert [pass_.filter_batch(batch) for batch in stream.batches] == [True, True] and pass_.unreadable == [0]
