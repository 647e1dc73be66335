"""Batches, and what each target gets of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.player.core.messages import Entry
from lockstep.player.core.router import BadRoute, route_entries
from lockstep.player.routing.record_router import PLAIN_BYTES, RecordRouter, RouteFailed
from lockstep.protocol.records.batch import (
    BATCH_HEADER_BYTES,
    iter_headers,
    read_header,
    set_log_append_time,
    verify,
)
from lockstep.protocol.records.batch_filter import MAX_RECORDS, filter_batch, open_batch
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder, Record, iter_records
from tests.support.cases import each_case

BASE = 1000


def batch(*values: bytes | None, codec: Codec = Codec.NONE) -> Entry:
    builder = BatchBuilder(
        codec, producer_id=7, producer_epoch=2, base_sequence=5, transactional=True, leader_epoch=3
    )
    for at, value in enumerate(values):
        headers = [("h", b"x" * at), ("none", None)] if at % 3 else []
        key = b"k%d" % at if at % 2 else None
        builder.append(value, key, timestamp_ms=50_000 + at * 7 % 11, headers=headers)
    return Entry(BASE + len(values) - 1, bytes(builder.build(BASE)))


def by_value(record: Record) -> list[str]:
    """`b"a b"`: for a and b."""
    return (record.value or b"").decode().split()


def parts(entry: Entry, choice: Any = by_value) -> dict[str, bytes]:
    (found,) = route_entries(RecordRouter(choice), [entry])
    for _, part in found:
        assert part.position == entry.position and isinstance(part.payload, bytes)
        assert part.size_bytes == len(part.payload)
        ((pos, header),) = iter_headers(part.payload)
        verify(part.payload, pos, header)
    return {name: part.payload for name, part in found if isinstance(part.payload, bytes)}


def records(payload: object) -> list[Record]:
    assert isinstance(payload, bytes)
    return list(iter_records(payload))


@each_case("codec", list(Codec))
def test_each_target_gets_its_own_records_with_offsets_and_times(codec: Codec) -> None:
    entry = batch(b"a", b"b", b"a b", b"", b"c", b"b", codec=codec)
    was = records(entry.payload)
    found = parts(entry)
    assert list(found) == ["a", "b", "c"]
    for name, places in {"a": [0, 2], "b": [1, 2, 5], "c": [4]}.items():
        assert records(found[name]) == [was[place] for place in places]
        header, before = read_header(found[name]), read_header(entry.payload)  # type: ignore[arg-type]
        assert header.codec == Codec.NONE and header.last_offset == entry.position
        assert header.max_timestamp == max(was[place].timestamp for place in places)
        kept = ("base_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence")
        assert [getattr(header, each) for each in kept] == [getattr(before, each) for each in kept]
        assert header.is_transactional and header.record_count == len(places)


def test_a_batch_that_a_target_gets_whole_is_passed_on_untouched() -> None:
    entry = batch(b"a b", b"a", b"b a", codec=Codec.LZ4)
    found = parts(entry)
    assert found["a"] is entry.payload and found["b"] is not entry.payload
    assert parts(entry, lambda record: ["x"]) == {"x": entry.payload}


def test_a_part_is_of_its_entrys_partition() -> None:
    entry = batch(b"a", b"b")
    assert {part.partition for _, part in RecordRouter(by_value)(entry)} == {None}
    entry.partition = 4
    assert {part.partition for _, part in RecordRouter(by_value)(entry)} == {4}


def test_nobody_gets_anything() -> None:
    assert parts(batch(b"", b"")) == {}


def test_a_repeated_name_counts_once() -> None:
    found = parts(batch(b"a b a", b"b"))
    assert [each.offset for each in records(found["a"])] == [BASE]


def test_a_value_is_replaced_and_nothing_else() -> None:
    entry = batch(b"one", b"two", None, b"x" * 200, codec=Codec.ZSTD)
    replaced: dict[bytes | None, dict[str, bytes | None]] = {
        b"one": {"a": b"for a", "b": None},
        b"two": {"a": b"two"},
        None: {"a": b"", "b": b"y" * 300},
        b"x" * 200: {"b": b"x" * 200},
    }
    was = records(entry.payload)
    found = parts(entry, lambda record: replaced[record.value])
    assert [each.value for each in records(found["a"])] == [b"for a", b"two", b""]
    assert [each.value for each in records(found["b"])] == [None, b"y" * 300, b"x" * 200]
    for name, places in {"a": [0, 1, 2], "b": [0, 2, 3]}.items():
        for place, record in zip(places, records(found[name]), strict=True):
            record.value = was[place].value
            assert record == was[place]


def test_all_records_replaced_is_not_untouched() -> None:
    entry = batch(b"one", b"two")
    found = parts(entry, lambda record: {"a": b"other", "b": record.value})
    assert [each.value for each in records(found["a"])] == [b"other", b"other"]
    assert found["b"] is entry.payload


def test_the_time_of_the_broker_stays() -> None:
    payload = batch(b"a", b"b", b"a").payload
    assert isinstance(payload, bytes)
    data = bytearray(payload)
    set_log_append_time(data, 99_000)
    found = parts(Entry(BASE + 2, bytes(data)))
    assert [each.timestamp for each in records(found["a"])] == [99_000, 99_000]


def test_what_compaction_left_is_chosen_as_before() -> None:
    entry = batch(b"a", b"b", b"a", b"b")
    whole = open_batch(entry.payload)  # type: ignore[arg-type]
    left = Entry(entry.position, filter_batch(whole, whole.spans[1:3]).batch)
    assert {name: [each.offset for each in records(made)] for name, made in parts(left).items()} == {
        "a": [BASE + 2],
        "b": [BASE + 1],
    }


def test_a_large_part_is_compressed_as_its_batch_was() -> None:
    rng = random.Random(1)
    large = [rng.choice([b"a ", b"b "]) * 10_000 for _ in range(40)]
    found = parts(batch(*large, codec=Codec.ZSTD), lambda record: [(record.value or b"")[:1].decode()])
    assert {read_header(made).codec for made in found.values()} == {Codec.ZSTD}
    plain = parts(batch(*large), lambda record: [(record.value or b"")[:1].decode()])
    for name, made in found.items():
        assert len(made) < 10_000 and len(plain[name]) > PLAIN_BYTES
        assert records(made) == records(plain[name])


def fails(record: Record) -> list[str]:
    raise KeyError("customer")


@each_case(
    ("choice", "words"),
    [
        (fails, r"record at 1000 failed: KeyError: 'customer'"),
        (lambda record: "a", r"record at 1000 is 'a'"),
        (lambda record: None, r"record at 1000 is None"),
        (lambda record: {"a", "b"}, r"neither a list of names"),
        (lambda record: [1], r"record at 1000 is \[1\]"),
        (lambda record: {"a": "text"}, r"values in bytes"),
    ],
)
def test_what_a_choice_may_not_do(choice: Callable[[Record], Any], words: str) -> None:
    with pytest.raises((BadRoute, RouteFailed), match=words):
        parts(batch(b"a"), choice)


def test_a_batch_that_cannot_be_read() -> None:
    with pytest.raises(RouteFailed, match="the batch at 1000 cannot be read"):
        parts(Entry(1000, bytes(batch(b"a").payload[:-1])))  # type: ignore[index]


@each_case("more", [0, 1])
def test_a_batch_of_too_many_records_is_not_opened(more: int) -> None:
    payload = batch(b"a", codec=Codec.GZIP).payload
    assert isinstance(payload, bytes)
    many = bytearray(payload)
    many[57:61] = (MAX_RECORDS + more).to_bytes(4, "big")
    many[BATCH_HEADER_BYTES:] = bytes(len(many) - BATCH_HEADER_BYTES)  # who opens it sees that it is no gzip
    words = "has 200001 records, and is not opened: 200000 at most" if more else "cannot be read"
    with pytest.raises(RouteFailed, match=f"the batch at 1000 {words}"):
        parts(Entry(1000, bytes(many)))


@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from(["a", "b", "c"])), st.none() | st.binary(max_size=200), st.booleans()
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from(list(Codec)),
)
def test_all_parts_together_are_what_was_chosen(
    wanted: list[tuple[set[str], bytes | None, bool]], codec: Codec
) -> None:
    entry = batch(*[value for _, value, _ in wanted], codec=codec)

    def choice(record: Record) -> Any:
        names, _, replaces = wanted[record.offset - BASE]
        return dict.fromkeys(sorted(names), b"new") if replaces else sorted(names)

    found = parts(entry, choice)
    was = records(entry.payload)
    for name in ("a", "b", "c"):
        must = []
        for record, (names, _, replaces) in zip(was, wanted, strict=True):
            if name in names:
                value = b"new" if replaces else record.value
                must.append(Record(record.offset, record.timestamp, record.key, value, record.headers))
        assert (records(found[name]) if name in found else []) == must
