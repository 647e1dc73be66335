"""The partitioner, against kafka-python's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as their_murmur2

from lockstep.protocol.partitioner import murmur2, partition_of


@given(st.binary(max_size=70))
def test_the_hash_is_javas(data: bytes) -> None:
    assert murmur2(data) == their_murmur2(data) & 0xFFFF_FFFF


def test_known_values() -> None:
    """Of Kafka's own UtilsTest."""
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    }
    assert {data: (murmur2(data) ^ 1 << 31) - (1 << 31) for data in known} == known


@given(st.binary(max_size=20), st.integers(1, 1000))
def test_there_is_such_a_partition(key: bytes, count: int) -> None:
    assert 0 <= partition_of(key, count) < count
