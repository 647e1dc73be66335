"""Keys spread over targets."""

from __future__ import annotations

import pytest

from lockstep.player.routing.key_hash import MAX_CACHED_KEY_BYTES, KeyHashSelector
from lockstep.protocol.partitioner import partition_of
from lockstep.protocol.records.record import Record

NAMES = ("a", "b", "c", "d")


def keyed(key: bytes | None) -> Record:
    return Record(0, 0, key, b"value", [])


def test_the_target_is_the_partition_that_a_producer_would_choose() -> None:
    choice = KeyHashSelector(NAMES, ())
    for number in range(200):
        key = b"%d" % number * (number % 40)
        for _ in range(2):
            assert list(choice(keyed(key))) == [NAMES[partition_of(key, 4)]]
    assert any(len(b"%d" % number * (number % 40)) > MAX_CACHED_KEY_BYTES for number in range(200))


def test_all_targets_get_some() -> None:
    choice = KeyHashSelector(NAMES, ())
    counts = dict.fromkeys(NAMES, 0)
    for number in range(4000):
        (name,) = choice(keyed(b"key-%d" % number))
        counts[name] += 1
    assert min(counts.values()) > 800


def test_without_a_key() -> None:
    assert list(KeyHashSelector(NAMES, ("c",))(keyed(None))) == ["c"]
    assert list(KeyHashSelector(NAMES, ())(keyed(None))) == []
    assert list(KeyHashSelector(["only"], ())(keyed(b""))) == ["only"]


def test_no_targets() -> None:
    with pytest.raises(ValueError, match="at least one"):
        KeyHashSelector((), ())
