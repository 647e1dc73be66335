"""The sink's record batches are those that the protocol's own builder writes, whatever the rows."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.protocol.records.batch import read_header, verify
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder, iter_records
from spark_connector.sink.batch_encoder import Body, Headers, bodies, build_batch
from tests.support.cases import each_case

DATA = st.one_of(st.none(), st.binary(max_size=40))
HEADERS = st.one_of(
    st.none(), st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), DATA), max_size=3)
)
ROWS = st.lists(st.tuples(DATA, DATA, HEADERS, st.integers(0, 1 << 42)), min_size=1, max_size=40)


def rows_of(batch: bytes) -> list[tuple[object, ...]]:
    return [
        (each.key, each.value, [(name, value) for name, value in each.headers], each.timestamp)
        for each in iter_records(batch)
    ]


@settings(deadline=None)
@given(ROWS, st.integers(1, 400))
def test_rows_come_out_as_they_went_in(
    rows: list[tuple[bytes | None, bytes | None, Headers | None, int]], batch_bytes: int
) -> None:
    keys, values, headers, stamps = zip(*rows, strict=True)
    found: list[tuple[object, ...]] = []
    for body in bodies(keys, values, headers, stamps, batch_bytes):
        batch = build_batch(body, 7, 0, 0)
        header = read_header(batch)
        verify(batch, 0, header)
        assert header.is_transactional and header.record_count == body.record_count
        assert len(body.data) <= batch_bytes or body.record_count == 1
        found += rows_of(batch)
    assert found == [(key, value, headers or [], stamp) for key, value, headers, stamp in rows]


@settings(deadline=None)
@given(st.lists(DATA, min_size=1, max_size=50), st.integers(1, 300))
def test_values_alone_are_the_same(values: Sequence[bytes | None], batch_bytes: int) -> None:
    fast = list(bodies(None, values, None, 1_000, batch_bytes))
    slow = list(bodies([None] * len(values), values, None, 1_000, batch_bytes))
    assert _values(fast) == _values(slow) == list(values)
    assert all(len(each.data) <= batch_bytes or each.record_count == 1 for each in fast)


@each_case("keys", [None, []])
def test_no_rows_make_no_batch(keys: list[bytes | None] | None) -> None:
    assert list(bodies(keys, [], None, 1_000, 100)) == []


def _values(found: list[Body]) -> list[object]:
    return [row[1] for body in found for row in rows_of(build_batch(body, -1, -1, -1))]


@each_case("count", [1, 4_095, 4_097, 20_000])
@each_case("size", [0, 63, 64, 5_000])
def test_as_the_protocols_builder_writes_it(count: int, size: int) -> None:
    if count * size > 30_000_000:
        count = 100
    building = BatchBuilder()
    for _ in range(count):
        building.append(b"v" * size, timestamp_ms=5)
    (body,) = bodies(None, [b"v" * size] * count, None, 5, 1 << 30)
    assert build_batch(body, -1, -1, -1) == building.build()


@each_case("codec", list(Codec))
def test_codecs(codec: Codec) -> None:
    (body,) = bodies([b"k"], [b"v" * 100], [[("h", b"x")]], [3], 1 << 20)
    assert rows_of(build_batch(body, 7, 0, 0, codec)) == [(b"k", b"v" * 100, [("h", b"x")], 3)]
