"""The newest batches in memory: what is evicted leaves nothing behind."""

from __future__ import annotations

import random
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.storage.log.batch_runs import MAX_RUN_BYTES, runs_of
from lockstep.storage.log.tail_cache import (
    BATCH_COST_BYTES,
    PARTITION_COST_BYTES,
    SharedBuffer,
    TailCache,
)
from lockstep.storage.types import Buffer, Frame
from tests.storage.log.frames import whole
from tests.storage.log.run_frames import BATCH_LISTS, frame_of
from tests.support.cases import each_case


def room(batches: int, batch_bytes: int, partitions: int = 1) -> int:
    """What so many batches of so many partitions take."""
    return batches * (batch_bytes + BATCH_COST_BYTES) + partitions * PARTITION_COST_BYTES


@each_case("partitions", [1, 500])
def test_batches_of_100_bytes_take_no_more_memory_than_the_limit(partitions: int) -> None:
    cache = TailCache(limit := 2 << 20)
    tracemalloc.start()
    try:
        for number in range(50_000):
            cache.add(number % partitions, number // partitions, bytearray(100), 100)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert limit / 2 < taken < 1.25 * limit


def test_a_forgotten_partition_leaves_nothing_behind() -> None:
    cache = TailCache(1 << 30)
    cache.add(0, 0, b"kept", 4)
    for number in range(1, 5_000):
        for base in range(3):
            cache.add(number, base, b"x" * 100, 100)
        cache.forget_below(number, 1 << 62)
    assert list(cache._partitions) == [0]
    assert cache._used_bytes == room(1, 4) and len(cache._order) < 3_000
    assert cache.read(0, 0, 100, 1, True) == ([b"kept"], 4)


def test_partitions_that_came_and_went_cost_nothing() -> None:
    cache = TailCache(room(10, 100, 4))
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


def ten(cache: TailCache) -> None:
    """Partition 1: ten batches of two records and 100 bytes, at offsets 0, 2, ..., 18."""
    for number in range(10):
        cache.add(1, number * 2, b"%02d" % number * 50, 100)


def numbers(found: tuple[list[Buffer], int] | None) -> list[int] | None:
    """Which of the ten batches were read; None where the first is not kept."""
    if found is None:
        return None
    batches, size = found
    assert size == sum(len(batch) for batch in batches)
    return [int(bytes(batch[:2])) for batch in batches]


def test_a_read_begins_with_the_batch_that_holds_the_offset() -> None:
    cache = TailCache(10_000)
    ten(cache)
    for offset in (14, 15):
        assert numbers(cache.read(1, offset, 10_000, 20, True)) == [7, 8, 9]


def test_a_read_stops_at_its_budget_and_at_the_high_watermark() -> None:
    cache = TailCache(10_000)
    ten(cache)
    assert numbers(cache.read(1, 4, 300, 20, True)) == [2, 3, 4]
    assert numbers(cache.read(1, 4, 399, 20, True)) == [2, 3, 4]
    assert numbers(cache.read(1, 4, 10_000, 8, True)) == [2, 3]
    assert numbers(cache.read(1, 4, 300, 6, True)) == [2]


def test_one_batch_goes_over_the_budget_where_there_must_be_one() -> None:
    cache = TailCache(10_000)
    ten(cache)
    assert numbers(cache.read(1, 4, 50, 20, True)) == [2]
    assert numbers(cache.read(1, 4, 50, 20, False)) == []
    assert numbers(cache.read(1, 18, 10_000, 18, True)) == []  # it is not committed


def test_what_was_evicted_is_for_the_disk() -> None:
    cache = TailCache(room(3, 100))
    ten(cache)
    assert numbers(cache.read(1, 14, 250, 20, True)) == [7, 8]
    assert numbers(cache.read(1, 13, 10_000, 20, True)) is None


def test_reads_are_the_same_after_any_number_of_batches() -> None:
    """Over several compactions: what is evicted is given back now and then, and nothing shifts."""
    cache = TailCache(room(10, 100))
    for number in range(5000):
        cache.add(1, number, b"%04d" % number * 25, 100)
        if number % 97 == 50:
            kept = cache.read(1, number - 9, 10_000, number + 1, True)
            assert kept is not None
            assert [int(bytes(batch[:4])) for batch in kept[0]] == list(range(number - 9, number + 1))
            assert kept[1] == 1000
            assert cache.read(1, number - 5, 200, number + 1, True) == (list(kept[0][4:6]), 200)
            assert cache.read(1, number - 10, 200, number + 1, True) is None
    assert len(cache._partitions[1].payloads) < 3000


def test_the_oldest_goes_first_whosever_it_is() -> None:
    cache = TailCache(room(3, 100, 2))
    for number in (0, 1):
        cache.add(1, number, bytes(100), 100)
        cache.add(2, number, bytes(100), 100)
    assert cache.read(1, 0, 100, 2, True) is None
    assert [cache.read(*at, 100, 2, True) is not None for at in ((2, 0), (1, 1), (2, 1))] == [True] * 3


def test_after_a_truncation_it_begins_again() -> None:
    cache = TailCache(room(3, 100))
    cache.add(1, 0, b"old" * 100, 300)
    cache.clear()
    assert cache.read(1, 0, 1000, 1, True) is None
    for base in (0, 1, 2):
        cache.add(1, base, b"new%d" % base * 25, 100)
    found = cache.read(1, 0, 1000, 3, True)
    assert found is not None and found[1] == 300


def test_what_was_cleaned_is_forgotten_and_the_others_keep_their_turn() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        cache, kept = TailCache(6000), {1: [], 2: []}  # type: ignore[var-annotated]
        for base in range(300):
            number = rng.choice((1, 2))
            payload = bytes([base % 256]) * rng.randrange(1, 90)
            cache.add(number, base, payload, len(payload))
            kept[number].append((base, payload))
            if rng.random() < 0.05:
                below = rng.randrange(base + 2)
                cache.forget_below(number, below)
                kept[number] = [each for each in kept[number] if each[0] >= below]
            for each, batches in kept.items():
                for place, (offset, data) in enumerate(batches):
                    found = cache.read(each, offset, 1 << 20, 1 << 20, True)
                    if found is not None:
                        assert found[0] == [payload for _, payload in batches[place:]]
                        assert found[0][0] == data
                        break
        payloads = [each for tail in cache._partitions.values() for each in tail.payloads[tail.start :]]
        sizes = [len(each) for each in payloads if isinstance(each, bytes)]
        total = sum(sizes) + room(len(sizes), 0, len(cache._partitions))
        assert total == cache._used_bytes <= 6000
        assert all(cache.read(n, 0, 1, 1 << 20, True) is None for n in (1, 2, 3))
    cache.forget_below(3, 9)


def test_a_partition_all_of_which_was_cleaned_goes_on() -> None:
    cache = TailCache(room(5, 20))
    for base in range(4):
        cache.add(1, base, b"x" * 20, 20)
    cache.forget_below(1, 99)
    assert cache.read(1, 3, 100, 99, True) is None
    for base in range(4, 12):
        cache.add(1, base, b"y" * 20, 20)
    assert cache.read(1, 8, 1000, 99, True) == ([b"y" * 20] * 4, 80)


def cached(frames: list[Frame], kind: str, limit: int) -> TailCache:
    """What frames leave in the cache: batches one by one, runs of batches, or rows in one buffer."""
    cache = TailCache(limit)
    for frame in frames:
        row, begin = 0, 3
        shared = SharedBuffer(memoryview(b"..." + whole(frame.payloads)))
        for partition, base, next_offset, count, size, *_ in runs_of(frame):
            payloads = frame.payloads[row : row + count]
            row += count
            if kind == "buffers":
                cache.add_shared(partition, base, next_offset, shared, begin, size)
            elif kind == "batches" or count == 1:
                for payload in payloads:
                    cache.add(partition, int.from_bytes(payload[:8], "big"), payload, len(payload))
            else:
                cache.add_run(partition, base, next_offset, payloads, size)
            begin += size
    return cache


@settings(max_examples=60, deadline=None)
@given(st.lists(BATCH_LISTS, min_size=1, max_size=4), st.integers(0, 1 << 30))
def test_reads_of_the_tail_are_the_same_of_runs_as_of_batches(
    all_batches: list[list[tuple[int, int, int, int, int]]], seed: int
) -> None:
    frames, nexts = [], {1: 5, 2: 70}
    for batches in all_batches:
        frame = frame_of(batches)
        moved = []  # on to where the partition is
        for fields, payload in zip(frame.entries, frame.payloads, strict=True):
            partition, records = fields[0], fields[2]
            base = nexts[partition]
            nexts[partition] += records
            moved.append((*fields[:1], base, *fields[2:]))
            frame.payloads[len(moved) - 1] = base.to_bytes(8, "big") + bytes(payload[8:])
        frame.pack(moved)
        frame.runs = None
        frames.append(frame)
    expected = cached(frames, "batches", 1 << 30)
    rng = random.Random(seed)
    for kind in ("runs", "buffers"):
        cache = cached(frames, kind, 1 << 30)
        for partition, first in ((1, 5), (2, 70)):
            for offset in range(first - 1, nexts[partition] + 1):
                for _ in range(6):
                    arguments = (
                        partition,
                        offset,
                        rng.choice([0, 1, 60, rng.randrange(600), rng.randrange(3 * MAX_RUN_BYTES), 1 << 30]),
                        rng.randrange(offset + 1, nexts[partition] + 2),
                        rng.random() < 0.5,
                    )
                    one, other = expected.read(*arguments), cache.read(*arguments)
                    assert (one is None) == (other is None)
                    if one is not None and other is not None:
                        assert whole(one[0]) == whole(other[0]) and one[1] == other[1], (kind, arguments)


def test_the_oldest_runs_go_first_and_are_counted_off() -> None:
    frame = frame_of([(1, 1, 400, 0, 0)] * 1000)
    for kind in ("runs", "buffers"):
        cache = cached([frame], kind, 200_000)
        kept = [offset for offset in range(5, 1005) if cache.read(1, offset, 1, 1 << 30, True) is not None]
        assert kept == list(range(kept[0], 1005)) and 300 < len(kept) < 500
        assert cache._used_bytes <= 200_000
        run = cache._partitions[1].bases[cache._partitions[1].start + 1]
        cache.forget_below(1, run + 1)  # within the second run, which goes as well
        assert cache.read(1, run + 1, 1, 1 << 30, True) is None
        cache.forget_below(1, 1 << 40)
        assert cache._used_bytes == 0 and not cache._partitions


def test_a_run_that_is_not_committed_is_not_read() -> None:
    for kind in ("runs", "buffers"):
        cache = cached([frame_of([(1, 2, 50, 0, 0)] * 3)], kind, 1 << 20)
        assert cache.read(1, 5, 1 << 20, 5, True) == ([], 0)
        found = cache.read(1, 5, 1 << 20, 7, True)
        assert found is not None and whole(found[0])[:8] == (5).to_bytes(8, "big") and found[1] == 71
