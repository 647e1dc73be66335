"""The newest frames by index: a byte limit, no gaps, nothing left behind."""

from __future__ import annotations

import random
import tracemalloc

from lockstep.storage.log.format import decode_frames, encode_frame_head, frame_buffers, frame_bytes
from lockstep.storage.log.recent_frames import RecentFrames, cost_bytes
from lockstep.storage.types import Frame
from tests.storage.log.frames import FrameMaker
from tests.support.cases import each_case


def cost(frame: Frame) -> int:
    return cost_bytes(frame, frame_bytes(frame))


@each_case("batches", [1, 2, 10, 50])
def test_the_limit_counts_what_frames_really_take(batches: int) -> None:
    bodies = [[bytes([at % 256]) * 100 for _ in range(batches)] for at in range(2000 // batches)]
    make, chain, frames, counted = FrameMaker(), 0, RecentFrames(1 << 40), 0
    make.index, make.next_lsn, make.time_ms = 1 << 20, 1 << 30, 1 << 40
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for each in bodies:
        frame = make.data(*[(1, 1, body) for body in each])
        frame.payloads = [bytearray(payload) for payload in frame.payloads]
        frame.pack(frame.entries)  # as a leader's frame is
        frame.head, chain = encode_frame_head(frame, chain)
        frame.forget_entries()
        frames.add(frame, frame_bytes(frame))
        counted += cost(frame)
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert 0.9 < taken / counted < 1.15


@each_case("batches", [1, 2, 10, 50])
def test_received_frames_are_counted_as_what_they_take(batches: int) -> None:
    make, chain, messages, frames = FrameMaker(), 0, [], RecentFrames(1 << 40)
    make.index, make.next_lsn, make.time_ms = 1 << 20, 1 << 30, 1 << 40
    for _ in range(600 // batches):
        frame = make.data(*[(1, 1, bytes(100))] * batches)
        before = chain
        frame.head, chain = encode_frame_head(frame, chain)
        messages.append((b"".join(frame_buffers(frame)), before))
    tracemalloc.start()
    try:
        for message, before in messages:
            (frame,) = decode_frames(bytes(bytearray(message)), before)
            frame.forget_entries()
            frame.runs = None
            frames.add(frame, frame_bytes(frame))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.9 < taken / frames._total_cost < 1.1


def test_against_a_plain_list() -> None:
    """Any mix of adds, reads and cuts, over a compaction, answers as a list of frames would."""
    rng = random.Random(1)
    make, frames = FrameMaker(), RecentFrames(30_000)
    kept: list[Frame] = []
    for turn in range(6000):
        frame = make.data((1, 1, bytes(rng.randrange(1, 400))))
        frames.add(frame, frame_bytes(frame))
        kept.append(frame)
        if sum(map(cost, kept)) > 30_000:
            while sum(map(cost, kept)) > 30_000 - 30_000 // 16:
                kept.pop(0)
        if turn % 500 == 77:
            last = kept[-1].index - rng.choice((0, 1, 5, 40, 1000))
            frames.truncate(last)
            kept = [f for f in kept if f.index <= last]
            make = FrameMaker()
            make.index = kept[-1].index if kept else 0
        first = kept[0].index if kept else 0
        assert frames.first_index == first
        if not kept or turn % 9:
            continue
        asked, budget = rng.randrange(first - 1, kept[-1].index + 2), rng.randrange(3000)
        got = frames.read(asked, budget)
        if not first <= asked <= kept[-1].index:
            assert got is None and frames.get(asked) is None
            continue
        assert frames.get(asked) is kept[asked - first]
        expected: list[Frame] = []
        for frame in kept[asked - first :]:
            if expected and sum(map(frame_bytes, expected)) + frame_bytes(frame) > budget:
                break
            expected.append(frame)
        assert got == expected
    assert len(frames._frames) < 3000


def test_one_frame_over_the_limit_is_kept_alone() -> None:
    make, frames = FrameMaker(), RecentFrames(100)
    for size in (10, 500, 500, 10):
        frame = make.data((1, 1, bytes(size)))
        frames.add(frame, frame_bytes(frame))
        assert frames.first_index == frame.index and frames.read(frame.index, 0) == [frame]
    frames.clear()
    assert (frames.first_index, frames.read(4, 10)) == (0, None)


def test_what_is_needed_is_kept_beyond_the_limit_up_to_a_higher_one() -> None:
    make = FrameMaker()
    made = [make.data((1, 1, bytes(900))) for _ in range(20)]
    size = frame_bytes(made[0])
    frames = RecentFrames(4 * cost(made[0]), 10 * cost(made[0]))
    for frame in made[:4]:
        frames.add(frame, size)
    frames.need(3)
    for frame in made[4:12]:
        frames.add(frame, size)
    assert frames.first_index == 3 and frames.read(3, 99 * size) == made[2:12]
    for frame in made[12:14]:
        frames.add(frame, size)
    assert frames.first_index == 5, "there is an end to what is kept, needed or not"
    frames.need(8)
    assert frames.first_index == 8, "at once, although nothing is added"
    frames.need(None)
    assert frames.first_index == 11 and frames.read(11, 99 * size) == made[10:14]
    frames.need(12)
    frames.clear()
    for frame in made[14:]:
        frames.add(frame, size)
    assert frames.first_index >= 17, "who forgot all needs nothing"


def test_another_limit_forgets_what_the_old_one_kept() -> None:
    make, frames = FrameMaker(), RecentFrames(10_000)
    kept = make.data((1, 1, bytes(50)))
    frames.add(kept, frame_bytes(kept))
    frames.limit_to(10_000)
    assert frames.get(1) is kept
    frames.limit_to(400)
    assert (frames.first_index, frames.get(1)) == (0, None)
    for _ in range(9):
        frame = make.data((1, 1, bytes(50)))
        frames.add(frame, frame_bytes(frame))
    assert (frames.get(frame.index), frames.get(frame.index - 4)) == (frame, None)


def test_a_cut_below_what_is_kept_leaves_nothing_and_one_above_changes_nothing() -> None:
    make, frames = FrameMaker(), RecentFrames(10_000)
    make.index = 4
    made = [make.data((1, 1, b"x")) for _ in range(3)]
    for frame in made:
        frames.add(frame, frame_bytes(frame))
    frames.truncate(99)
    assert frames.read(5, 10_000) == made
    frames.truncate(5)
    assert frames.read(5, 10_000) == made[:1]
    frames.truncate(4)
    assert frames.first_index == 0
    frames.truncate(3)
    assert frames.read(5, 10_000) is None
