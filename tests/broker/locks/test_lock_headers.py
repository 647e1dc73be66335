"""The grammar of lock headers: what is read, and that nothing half-understood passes."""

from __future__ import annotations

import base64

import pytest

from lockstep.broker.locks.lock_headers import (
    MAX_OPENED_BYTES,
    BadLockHeader,
    LockRequest,
    TooManyLocks,
    lock_requests,
)
from lockstep.protocol.lock_words import MAX_LOCK_NAME_BYTES, MAX_LOCK_NAMES
from lockstep.protocol.records.batch import MalformedBatch, read_header
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder, Headers
from tests.support.cases import each_case

TOPIC_ID = bytes(range(16))
AS_TEXT = base64.urlsafe_b64encode(TOPIC_ID).rstrip(b"=")


def batch(*records: Headers, codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(codec=codec)
    for headers in records:
        builder.append(b"value", headers=headers, timestamp_ms=5)
    return builder.build()


def read(data: bytes) -> list[LockRequest]:
    return lock_requests(data, read_header(data))


def one(*headers: tuple[str, bytes | None]) -> LockRequest:
    (request,) = read(batch(list(headers)))
    return request


@each_case("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_the_lock_requests_of_records(codec: Codec) -> None:
    first: Headers = [
        ("trace", None),
        ("lockstep-hwm", b"41"),
        ("lockstep-write-lock", b"a\nb"),
        ("lockstep-write-lock", b"c"),
        ("lockstep-read-lock", b"\xff/\x00"),
        ("lockstep-append-lock", b"d"),
        ("lockstep-topic-id", AS_TEXT),
        ("lockstep-request", b"u-u.i_d/0/18"),
    ]
    last: Headers = [
        ("lockstep-expected-offset", b"0"),
        ("lockstep-read-lock@other-topic-7", b"x"),
        ("lockstep-hwm@other-topic-7", b"-1"),
        ("lockstep-topic-id@other-topic-7", AS_TEXT),
        ("lockstep-read-lock@third-0", b"y"),
    ]
    here, there = read(batch(first, [], [("other", b"v")], last, codec=codec))
    assert (here.record, here.hwm, here.topic_id) == (0, 41, TOPIC_ID)
    assert (here.writes, here.reads, here.appends) == ([b"a", b"b", b"c"], [b"\xff/\x00"], [b"d"])
    assert (here.request, here.part, here.parts) == (b"u-u.i_d/0/18", 1, 1)
    assert here.is_conditional and here.expected_offset is None and not here.other_partitions
    assert (there.record, there.expected_offset, there.hwm, there.writes) == (3, 0, None, [])
    assert list(there.other_partitions) == [("other-topic", 7), ("third", 0)]
    asked = there.other_partitions["other-topic", 7]
    assert (asked.hwm, asked.reads, asked.writes, asked.topic_id) == (-1, [b"x"], [], TOPIC_ID)
    assert there.other_partitions["third", 0].hwm is None


def test_records_without_locks_have_no_lock_requests() -> None:
    assert read(batch([], [("hwm", b"x")], [("Lockstep-hwm", b"x")])) == []
    assert not one(("lockstep-request", b"a/1/2")).is_conditional
    assert not one(("lockstep-hwm", b"5")).is_conditional


@each_case(
    "headers",
    [
        [("lockstep-hwm", None)],
        [("lockstep-write-lock", None)],
        [("lockstep-hwm", b"")],
        [("lockstep-hwm", b"-2")],
        [("lockstep-hwm", b"+1")],
        [("lockstep-hwm", b" 1")],
        [("lockstep-hwm", b"1\n")],
        [("lockstep-hwm", b"1_0")],
        [("lockstep-hwm", "٣".encode())],
        [("lockstep-hwm", b"9" * 19)],
        [("lockstep-hwm", b"1"), ("lockstep-hwm", b"1")],
        [("lockstep-hwm@t-0", b"1"), ("lockstep-hwm@t-0", b"2")],
        [("lockstep-expected-offset", b"-1")],
        [("lockstep-expected-offset", b"x")],
        [("lockstep-write-lock", b"")],
        [("lockstep-write-lock", b"a\n")],
        [("lockstep-read-lock", b"a\n\nb")],
        [("lockstep-writelock", b"a")],
        [("lockstep-Write-lock", b"a")],
        [("lockstep-", b"a")],
        [("lockstep-write-lock@t-0", b"a")],
        [("lockstep-append-lock@t-0", b"a")],
        [("lockstep-request@t-0", b"a/1/1")],
        [("lockstep-expected-offset@t-0", b"1")],
        [("lockstep-read-lock@t", b"a")],
        [("lockstep-read-lock@-0", b"a")],
        [("lockstep-read-lock@t-", b"a")],
        [("lockstep-read-lock@t-x", b"a")],
        [("lockstep-read-lock@t-1234567890", b"a")],
        [("lockstep-read-lock@t-01", b"a")],
        [("lockstep-read-lock@t-²", b"a")],
        [("lockstep-read-lock@", b"a")],
        [("lockstep-topic-id", AS_TEXT[:-1])],
        [("lockstep-topic-id", b"!" * 22)],
        [("lockstep-topic-id", TOPIC_ID)],
        [("lockstep-request", b"a/1")],
        [("lockstep-request", b"a/1/x")],
        [("lockstep-request", b"/1/1")],
        [("lockstep-request", b"a b/1/1")],
        [("lockstep-request", b"a" * 65 + b"/1/1")],
        [("lockstep-part", b"1/1/1")],
        [("lockstep-request", b"a/1/1"), ("lockstep-part", b"0/1")],
        [("lockstep-request", b"a/1/1"), ("lockstep-part", b"2/1")],
        [("lockstep-request", b"a/1/1"), ("lockstep-part", b"01/1")],
    ],
)
def test_what_is_not_understood_is_refused(headers: Headers) -> None:
    with pytest.raises(BadLockHeader) as bad:
        read(batch([("fine", b"")], headers))
    assert bad.value.record == 1 and not isinstance(bad.value, TooManyLocks)


def test_limits_on_names() -> None:
    most = b"\n".join(b"%d" % each for each in range(MAX_LOCK_NAMES - 1))
    longest = b"n" * MAX_LOCK_NAME_BYTES
    assert (
        len(one(("lockstep-read-lock", most), ("lockstep-read-lock@t-0", longest)).reads)
        == MAX_LOCK_NAMES - 1
    )
    for headers in (
        [("lockstep-read-lock", most), ("lockstep-write-lock", b"a"), ("lockstep-append-lock", b"b")],
        [("lockstep-read-lock", most), ("lockstep-read-lock@t-0", b"a\nb")],
        [("lockstep-append-lock", longest + b"n")],
    ):
        with pytest.raises(TooManyLocks):
            one(*headers)


def part(number: int, of: int, request: bytes | None = b"a/1/1", lock: bytes = b"x") -> Headers:
    headers: Headers = [("lockstep-part", b"%d/%d" % (number, of)), ("lockstep-append-lock", lock)]
    return headers if request is None else [*headers, ("lockstep-request", request)]


def test_the_parts_of_a_request_stand_together() -> None:
    third = [part(each, 3, b"a/1/3") for each in (1, 2, 3)]
    found = read(batch([], part(1, 2), part(2, 2), part(1, 1, b"a/1/2"), *third))
    assert [(each.record, each.part, each.parts) for each in found] == [
        (1, 1, 2),
        (2, 2, 2),
        (3, 1, 1),
        (4, 1, 3),
        (5, 2, 3),
        (6, 3, 3),
    ]


@each_case(
    ("records", "record"),
    [
        ([part(1, 2)], 0),
        ([part(2, 2)], 0),
        ([part(1, 2), part(1, 2)], 1),
        ([part(1, 2), part(2, 2), part(1, 2), part(2, 2)], 2),
        ([part(1, 1), part(1, 1)], 1),
        ([part(1, 3), part(3, 3)], 0),
        ([part(1, 2), [], part(2, 2)], 0),
        ([part(1, 2), part(2, 2, b"a/1/2")], 0),
        ([part(1, 2), part(2, 3)], 0),
        ([part(1, 1, b"a/1/0"), part(2, 2)], 1),
        ([part(1, 2, None), part(2, 2, None)], 0),
    ],
)
def test_parts_that_do_not(records: list[Headers], record: int) -> None:
    with pytest.raises(BadLockHeader) as bad:
        read(batch(*records))
    assert bad.value.record == record


def test_what_cannot_be_opened() -> None:
    data = bytearray(batch([("lockstep-hwm", b"1")]))
    data[60] = 2  # records announced
    with pytest.raises(MalformedBatch):
        read(bytes(data))


def test_what_nobody_reads_through() -> None:
    """Small batches that would keep everybody waiting: each is refused before it is read."""
    empty: Headers = [("", b"")] * 11_000
    most: Headers = [("lockstep-append-lock", b"\n".join(b"%d" % each for each in range(250)))]
    for records in ([[("lockstep-hwm", b"1"), *empty]], [most] * 100, [[("lockstep-hwm", b"1")]] * 10_001):
        with pytest.raises(TooManyLocks):
            read(batch(*records, codec=Codec.ZSTD))
    builder = BatchBuilder(codec=Codec.ZSTD)
    builder.append(bytes(MAX_OPENED_BYTES), headers=[("lockstep-hwm", b"1")], timestamp_ms=5)
    with pytest.raises(MalformedBatch):
        read(builder.build())
    with pytest.raises(BadLockHeader):
        one(("lockstep-read-lock@" + "a" * 250 + "-0", b"x"))


def test_a_topic_id_alone_is_a_condition() -> None:
    assert one(("lockstep-topic-id", AS_TEXT)).is_conditional
