"""Transactions of key-values: who gets what, and the times that travel with them."""

from __future__ import annotations

import pytest

from bench.player.workload import (
    HEAD_BYTES,
    KEY_VALUE_BYTES,
    NEVER,
    Shape,
    SplitByKey,
    head_of,
    split,
    target_names,
    transaction,
)
from protocol.records.record import Record


@pytest.mark.parametrize(("targets", "keys"), [(20, 1), (20, 10), (2, 10), (15, 10), (5, 5)])
def test_parts_are_the_whole_transaction_once_and_everybody_gets_equally_much(
    targets: int, keys: int
) -> None:
    shape, received = Shape(targets, keys), [0] * targets
    for number in range(targets * keys):
        whole = transaction(number, 7, keys)
        assert len(whole) == HEAD_BYTES + keys * KEY_VALUE_BYTES
        assert head_of(whole) == (number, 7, NEVER)
        parts = split(whole, targets, 9)
        assert sorted(parts) == sorted(shape.targets_of(number)) and len(parts) == min(keys, targets)
        assert all(head_of(part) == (number, 7, 9) for part in parts.values())
        bodies = [part[HEAD_BYTES:] for part in parts.values()]
        cut = [
            body[at : at + KEY_VALUE_BYTES] for body in bodies for at in range(0, len(body), KEY_VALUE_BYTES)
        ]
        assert b"".join(sorted(cut)) == whole[HEAD_BYTES:]
        for target, part in parts.items():
            received[target] += (len(part) - HEAD_BYTES) // KEY_VALUE_BYTES
    assert received == [keys * keys] * targets


def test_the_player_splits_by_name_and_tells_when_it_began() -> None:
    choice = SplitByKey(target_names(3))
    choice.dispatched_ns = 11
    parts = choice(Record(0, 0, None, transaction(1, 5, 2), []))
    assert list(parts) == ["target-2", "target-0"]
    assert head_of(parts["target-0"] or b"") == (1, 5, 11)
