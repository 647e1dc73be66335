"""The newest batches in memory: what is evicted leaves nothing behind."""

from __future__ import annotations

from storage.log.tail_cache import TailCache


def test_partitions_that_came_and_went_cost_nothing() -> None:
    cache = TailCache(1000)
    for number in range(200):
        for base in range(3):
            cache.add(number, base, b"%03d" % number * 33 + b"!", 100)
    assert len(cache._partitions) == 4  # ten batches
    assert cache.read(199, 0, 1000, 3, True) == ([b"199" * 33 + b"!"] * 3, 300)
    assert cache.read(196, 1, 1000, 3, True) is None
    assert cache.read(196, 2, 1000, 3, True) == ([b"196" * 33 + b"!"], 100)
    assert cache.read(0, 0, 1000, 3, True) is None
    cache.add(0, 3, b"again", 5)
    assert cache.read(0, 3, 1000, 4, True) == ([b"again"], 5)


def test_a_batch_larger_than_the_cache_is_not_kept() -> None:
    cache = TailCache(10)
    cache.add(1, 0, b"x" * 11, 11)
    assert (cache.read(1, 0, 100, 1, True), cache._partitions) == (None, {})
