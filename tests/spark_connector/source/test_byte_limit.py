"""How bytes are shared out: nobody gets more than there are, and each partition gets on one day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from spark_connector.options import TopicPartition
from spark_connector.source import byte_limit
from spark_connector.source.byte_limit import PartitionRotation, limit_bytes

A, B, C = ("a", 0), ("b", 0), ("c", 0)
Batches = Sequence[tuple[int, int]]
"""The offset after each, and its bytes."""


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> dict[TopicPartition, Batches]:
    """What is in the log; reading it is `_end_within`'s, and tested over a broker."""
    found: dict[TopicPartition, Batches] = {}

    def reach(
        cluster: object, part: TopicPartition, start: int, end: int, share: int, *, committed: bool
    ) -> tuple[int, int]:
        position, size = start, 0
        for after, batch_bytes in found[part]:
            if after > start and position < end:
                if size and size + batch_bytes > share:
                    break
                position, size = after, size + batch_bytes
                if size >= share:
                    break
        return min(position, end), size

    monkeypatch.setattr(byte_limit, "_end_within", reach)
    return found


def limited(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    max_bytes: int,
    rotation: PartitionRotation | None = None,
) -> dict[TopicPartition, int]:
    return limit_bytes(None, start, end, max_bytes, committed=False, rotation=rotation)  # type: ignore[arg-type]


def test_what_fits_is_taken_however_uneven_it_is(there: dict[TopicPartition, Batches]) -> None:
    there |= {A: [(100 * n, 10_000) for n in range(1, 101)], B: [(1, 900_000)]}
    end = {A: 10_000, B: 1}
    assert limited({A: 0, B: 0}, end, 10_000_000) == end


def test_the_limit_holds(there: dict[TopicPartition, Batches]) -> None:
    rotation = PartitionRotation()
    there |= {A: [(n, 100) for n in range(1, 101)], B: [(1, 700)], C: [(1, 90), (2, 90)]}
    for _ in range(4):
        reached = limited(dict.fromkeys((A, B, C), 0), {A: 100, B: 1, C: 2}, 1000, rotation)
        taken = reached[A] * 100 + reached[B] * 700 + reached[C] * 90
        assert 900 <= taken <= 1000


def test_turns() -> None:
    rotation = PartitionRotation()
    first = rotation.order((A, B, C))[0]
    assert first in (A, B, C) and rotation.order(()) == []
    came = [rotation.order((A, B, C)) for _ in range(3)]
    assert sorted(order[0] for order in came) == [A, B, C] and came[2][0] == first
    assert all(sorted(order) == [A, B, C] for order in came)
    rotation.order((A,))
    assert rotation.order((C, B))[0] == B, "behind whoever came first, whoever is there"


def test_a_batch_over_the_limit_moves_one_day(there: dict[TopicPartition, Batches]) -> None:
    there |= {A: [(n, 100) for n in range(1, 1000)], B: [(1, 5_000)]}
    at, rotation = {A: 0, B: 0}, PartitionRotation()
    for _ in range(4):
        at = limited(at, {A: at[A] + 1, B: 1}, 1000, rotation)
    assert at[B] == 1 and at[A] >= 3
