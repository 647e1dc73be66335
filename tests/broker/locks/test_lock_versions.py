"""Marks against an exact model: never too low, exact where they say so, and bounded."""

from __future__ import annotations

import random
import tracemalloc
from hashlib import blake2b

from lockstep.broker.locks.lock_versions import CELLS, RECENT, LockVersions, restore
from tests.support.cases import each_case


def lock(number: int) -> bytes:
    return blake2b(b"%d" % number, digest_size=16).digest()


@each_case("seed", range(4))
def test_never_too_low(seed: int) -> None:
    """A small table, so that all of its parts are in use; cut and restored in between."""
    rng = random.Random(seed)
    marks, true = LockVersions(rng.choice([-1, 3]), 0, 32, 256), dict[int, int]()
    locks = [lock(number) for number in range(400)]
    for offset in range(4, 20_000):
        if rng.random() < 0.001:
            marks = restore(marks.snapshot(), 32, rng.choice([256, 256, 128]))
        number = int(rng.paretovariate(0.7)) % 400
        mark, is_exact = marks.of(locks[number])
        known = true.get(number, -1)
        assert mark >= known
        if is_exact:
            assert mark == known
        elif known > marks.horizon:
            raise AssertionError("a new mark that is not exact")
        assert is_exact or mark <= max(marks.horizon, marks.floor)
        marks.raise_lock(locks[number], offset)
        true[number] = offset
        assert marks.of(locks[number]) == (offset, True)


def test_a_floor_counts_for_every_lock() -> None:
    marks = LockVersions(17)
    assert marks.of(lock(1)) == (17, False)
    marks.raise_lock(lock(1), 18)
    assert marks.of(lock(1)) == (18, True) and marks.of(lock(2)) == (17, False)
    assert LockVersions(-1).of(lock(1)) == (-1, True)


def test_a_client_that_has_applied_the_newest_raises_is_never_rejected_wrongly() -> None:
    marks = LockVersions(-1, 0, 1000, 1 << 12)
    for offset in range(100_000):
        marks.raise_lock(lock(offset), offset)
    hwm = 99_000
    assert marks.horizon == 98_999
    assert all(marks.of(lock(number))[0] <= hwm for number in (*range(99_001), *range(200_000, 250_000)))


def test_locks_that_nobody_raised_among_a_hundred_thousand_old_ones() -> None:
    """What hwm -1 meets: in a hundred thousand that left the exact part, about one in a hundred."""
    marks = LockVersions(-1)
    for offset in range(RECENT + 100_000):
        marks.raise_lock(lock(offset), offset)
    wrong = sum(marks.of(lock(10_000_000 + number))[0] > -1 for number in range(20_000))
    assert wrong < 20_000 * 0.02


def test_collisions_are_late_and_reported_as_estimates() -> None:
    """[Waltz: LocksTest.testCollisions] New locks, one after the other, by somebody who stopped reading: at
    first none is refused, and the one that is at last is refused by an estimate, not by its own name."""
    recent, cells, hwm = 32, 256, 123
    marks, numbers = LockVersions(-1, 0, recent, cells), iter(range(1_000_000))
    refused = None
    offset = hwm
    while refused is None:
        name = lock(next(numbers))
        mark, is_exact = marks.of(name)
        if mark > hwm:
            refused = (mark, is_exact)
        else:
            offset += 1
            marks.raise_lock(name, offset)
    taken = offset - hwm
    assert recent + recent // 2 < taken < recent + cells
    assert refused[0] <= marks.horizon and not refused[1]


def test_memory_is_bounded() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        marks = LockVersions(-1)
        for offset in range(3 * RECENT):
            marks.raise_lock(lock(offset), offset)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used < 300 * RECENT + 8 * CELLS


def test_a_snapshot_gives_an_equal_state() -> None:
    marks = LockVersions(3, 9, 16, 64)
    for offset in range(5, 200):
        marks.raise_lock(lock(offset % 50), offset)
    again = restore(marks.snapshot(), 16, 64)
    assert again.snapshot() == marks.snapshot() and again.since == 9
    assert [again.of(lock(n)) for n in range(60)] == [marks.of(lock(n)) for n in range(60)]
    empty = restore(LockVersions(-1).snapshot())
    assert (empty.floor, empty.horizon, empty.of(lock(1))) == (-1, -1, (-1, True))


def test_other_sizes_than_the_snapshots() -> None:
    """Cells of another number say nothing any more: all that they knew becomes the floor."""
    marks = LockVersions(-1, 0, 16, 64)
    for offset in range(100):
        marks.raise_lock(lock(offset), offset)
    other = restore(marks.snapshot(), 16, 128)
    assert other.floor == marks.horizon == 83
    assert other.of(lock(0)) == (83, False) and other.of(lock(99)) == (99, True)
    fewer = restore(marks.snapshot(), 8, 64)
    assert all(fewer.of(lock(n))[0] >= n for n in range(100)) and fewer.horizon == 91
