"""The protocols whose crashes are enumerated: each scenario drives a `World` and gives its recorded disk."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from lockstep.storage.log.format import encode_frame_head, group_seed
from lockstep.storage.types import Frame, HardState
from tests.storage.log.crash_world import GROUP, OPTIONS, World, chains
from tests.storage.log.frames import FrameMaker
from tests.storage.log.simulated_disk import Image

WITHOUT_FLUSH = dataclasses.replace(OPTIONS, flush=False)


def some_frame(world: World, rng: random.Random, most_bytes: int = 1500) -> Frame:
    batches = [
        (rng.randrange(1, 4), rng.randrange(1, 5), rng.randbytes(rng.randrange(1, most_bytes)))
        for _ in range(rng.choice((1, 1, 1, 2, 3)))
    ]
    return world.make.data(*batches)


def some_frames(world: World, rng: random.Random, most_bytes: int = 1500) -> list[Frame]:
    return [some_frame(world, rng, most_bytes) for _ in range(rng.choice((1, 1, 2, 3)))]


def append(rng: random.Random) -> World:
    """A new directory; writes, some of several frames or flushed together; a kill; a clean stop."""
    world = World()
    world.append(world.make.no_op())
    world.flush()
    for _ in range(6):
        for _ in range(rng.choice((1, 1, 2))):
            world.append(*some_frames(world, rng, 700))
        world.flush()
        if rng.random() < 0.4:
            world.idle()
    world.append(*some_frames(world, rng, 700))
    world.restart()
    world.append(*some_frames(world, rng, 700))
    world.flush()
    world.append(*some_frames(world, rng, 700))
    world.log.close()
    return world


def roll(rng: random.Random) -> World:
    """Writes over several segments, unflushed ones in front of and behind a roll."""
    world = World()
    for _ in range(14):
        for _ in range(rng.choice((1, 2, 3))):
            world.append(*some_frames(world, rng, 2200))
        world.flush()
    return world


def hurried(rng: random.Random) -> World:
    """Writes that need more files than are ready: those are only reserved."""
    world = World(reserves=True)
    for turn in range(6):
        world.append(*[some_frame(world, rng, 2400) for _ in range(rng.randrange(8, 20))])
        if rng.random() < 0.7:
            world.flush()
        if turn == 3:
            files = len(world.log.segments()) + world.log._pool.ready_count
            assert world.log.written_bytes()["zero fill"] < OPTIONS.segment_bytes * files
            world.kill_and_reopen(_crashed(world, rng))
    return world


def torn_tail(rng: random.Random) -> World:
    """Recovery from a torn tail, then writes where it was: the stale frames behind must stay dead."""
    world = World()
    for _ in range(rng.randrange(2, 12)):
        world.append(some_frame(world, rng, 1200))
        world.flush()
    for _ in range(4):
        world.append(*some_frames(world, rng, 900))
    pending = world.disk.pending(len(world.disk.record))
    victim = rng.choice(pending)
    image = world.disk.crash(len(world.disk.record), {victim: None})
    lost = list(world.frames)
    world.kill_and_reopen(image)
    again = lost[len(world.frames) :]
    for frame in again[: rng.randrange(0, len(again) + 1)]:
        world.make.follow(frame)
        world.append(frame)
        if rng.random() < 0.5:
            world.flush()
    for _ in range(3):
        world.append(some_frame(world, rng, 900))
        world.flush()
    return world


def hard_state(rng: random.Random) -> World:
    """Votes and terms saved between appends, also right after a reopen."""
    world = World()
    for term in range(1, 6):
        world.save_hard_state(HardState(term, rng.randrange(3), term * 7))
        world.append(some_frame(world, rng, 300))
        if rng.random() < 0.7:
            world.flush()
        if term == 3:
            world.flush()
            world.kill_and_reopen()
    return world


def truncate(rng: random.Random) -> World:
    """A follower's log cut within a segment, at a roll and over several segments, and written on."""
    world = World()
    for _ in range(4):
        for _ in range(rng.randrange(3, 9)):
            world.append(*some_frames(world, rng, 1800))
            if rng.random() < 0.6:
                world.flush()
        count = len(world.frames)
        world.truncate(rng.randrange(max(1, count - 6), count))
        world.append(some_frame(world, rng))
        if rng.random() < 0.5:
            world.flush()
    world.flush()
    return world


def checkpoint(rng: random.Random) -> World:
    """Checkpoints at and behind the end, in the active segment and below it; dead segments freed, in front
    and in the middle, and recycled."""
    world = World()
    for turn in range(16):
        for _ in range(2):
            world.append(*some_frames(world, rng, 1800))
        world.flush()
        if turn % 3 == 2:
            world.write_checkpoint(behind=rng.choice((0, 0, 1, 2)))
            world.free_below(rng.choice((0, 1, 2)), closed={2} if turn < 9 else set())
        if turn == 10:
            world.kill_and_reopen()
            list(world.log.replay())
    return world


def without_flush(rng: random.Random) -> World:
    """`log.flush=os`: only checkpoints promise anything; rolls, a crash and recovery in between."""
    world = World(WITHOUT_FLUSH)
    for turn in range(12):
        for _ in range(2):
            world.append(*some_frames(world, rng, 1600))
        world.flush()
        if turn in (5, 10):
            world.write_checkpoint(behind=1)
        if turn == 3:
            world.restart()
        if turn == 7:
            world.kill_and_reopen(_crashed(world, rng))
    return world


def truncate_and_append(rng: random.Random) -> World:
    """Cut, written on at once and crashed, again and again, with reopens in between."""
    world = World()
    for turn in range(6):
        for _ in range(rng.randrange(2, 7)):
            world.append(*some_frames(world, rng, 2200))
            if rng.random() < 0.5:
                world.flush()
        if turn == 2:
            world.write_checkpoint(behind=rng.choice((0, 3)))
        count, least = len(world.frames), world.checkpoint.index if world.checkpoint else 1
        world.truncate(rng.choice((least, max(least, count - 2), rng.randrange(least, count + 1))))
        for _ in range(rng.randrange(3)):
            world.append(some_frame(world, rng))
        if rng.random() < 0.5:
            world.flush()
        if rng.random() < 0.4:
            world.kill_and_reopen(_crashed(world, rng))
    return world


def _other_log(world: World, rng: random.Random, more: int) -> list[Frame]:
    """What a leader may ship: some of this log, then entries of a newer term, so that it is longer."""
    shared = rng.randrange(world.checkpoint.index if world.checkpoint else 0, len(world.frames) + 1)
    frames = world.frames[:shared]
    make = FrameMaker()
    for frame in frames:
        make.follow(frame)
    make.term += 1
    chain = chains(frames)[-1] if frames else group_seed(GROUP)
    for _ in range(len(world.frames) - shared + more):
        frame = make.data((rng.randrange(1, 4), 2, rng.randbytes(rng.randrange(1, 1500))))
        frame.head, chain = encode_frame_head(frame, chain)
        frames.append(frame)
    return frames


def install(rng: random.Random) -> World:
    """Logs installed over one another, whole, in part and as checkpoints alone; given up; written on."""
    world = World()
    for turn in range(4):
        for _ in range(rng.randrange(1, 9)):
            world.append(*some_frames(world, rng, 1500))
            if rng.random() < 0.6:
                world.flush()
        if rng.random() < 0.4:
            world.write_checkpoint()
        if rng.random() < 0.3:
            world.log.prepare_now()
        frames = _other_log(world, rng, rng.randrange(1, 25))
        keep_from = rng.choice((1, 1, rng.randrange(1, len(frames)), len(frames) + 1))
        world.install(frames, keep_from, give_up=rng.random() < 0.2)
        world.append(some_frame(world, rng))
        if rng.random() < 0.5:
            world.flush()
        if turn == 1 and rng.random() < 0.5:
            world.kill_and_reopen(_crashed(world, rng))
        elif turn == 1:
            world.restart()
    world.write_checkpoint()
    world.append(some_frame(world, rng))
    world.flush()
    return world


def install_after_truncation(rng: random.Random) -> World:
    """A follower that lost its tail and then its log; then cut down to the installed checkpoint exactly."""
    world = World()
    for _ in range(3):
        for _ in range(rng.randrange(3, 9)):
            world.append(*some_frames(world, rng, 1800))
            world.flush()
        count, least = len(world.frames), world.checkpoint.index if world.checkpoint else 1
        world.truncate(rng.randrange(least, count + 1))
        if rng.random() < 0.5:
            world.append(some_frame(world, rng))
        frames = _other_log(world, rng, rng.randrange(1, 12))
        world.install(frames, rng.choice((1, len(frames) + 1)))
        for _ in range(rng.randrange(4)):
            world.append(some_frame(world, rng))
        world.truncate(len(frames))
    world.append(some_frame(world, rng))
    world.flush()
    world.log.close()
    return world


def rewrite(rng: random.Random) -> World:
    """Segments below the checkpoints repaired and cleaned, some twice, some freed; a crash in between."""
    world = World()
    for turn in range(12):
        for _ in range(4):
            world.append(*some_frames(world, rng, 1800))
        world.flush()
        if turn % 3 == 1:
            world.write_checkpoint(behind=rng.choice((0, 1)))
        for segment in world.rewritable():
            luck = rng.random()
            if luck < 0.25:
                world.repair(segment)
            elif luck < 0.5:
                world.clean(segment, rng.randrange(1, 4))
        if turn == 6:
            world.kill_and_reopen(_crashed(world, rng))
        if turn == 9:
            world.free_below(2)
    world.log.close()
    return world


def seal(rng: random.Random) -> World:
    """Segments sealed long before they are full, two checkpoints of one frame, all below cleaned or freed;
    what comes after is cut away; a crash in between."""
    world = World()
    for turn in range(10):
        for _ in range(rng.choice((1, 2))):
            world.append(*some_frames(world, rng, 700))
        world.flush()
        if turn == 0:
            world.write_checkpoint()  # the second one of its frame lies in another segment
        world.log.seal()
        for _ in range(rng.choice((1, 2, 3))):
            world.write_checkpoint()
        for segment in world.log.cleanable_segments():
            if rng.random() < 0.3:
                world.clean(segment, rng.randrange(1, 4))
        if turn % 4 == 3:
            world.free_below(2)
        if rng.random() < 0.5:
            kept = len(world.frames)
            world.append(*some_frames(world, rng, 700))
            world.truncate(kept)
        if turn == 6:
            world.kill_and_reopen(_crashed(world, rng))
    world.log.close()
    return world


def join(rng: random.Random) -> World:
    """Small segments joined, some of them cleaned, joined again or freed, in front and in the middle; a crash
    in between."""
    world = World()
    for turn in range(14):
        for _ in range(rng.choice((1, 2, 3))):  # what partition 2 has stays, mostly in front
            partition = 2 if turn < 2 or rng.random() < 0.1 else rng.choice((1, 3))
            world.append(world.make.data((partition, rng.randrange(1, 5), rng.randbytes(rng.randrange(900)))))
        world.flush()
        world.log.seal()
        for _ in range(rng.choice((1, 2, 2))):
            world.write_checkpoint()
        for segment in world.log.cleanable_segments():
            if rng.random() < 0.2:
                world.clean(segment, rng.randrange(1, 4))
        if turn % 3 == 2:
            world.join()
        if turn in (6, 9, 12):
            world.free_below(rng.choice((0, 1, 2)), closed={2} if turn < 12 else set())
        if turn in (4, 10):
            world.kill_and_reopen(_crashed(world, rng))
    world.log.close()
    return world


def begin_later(rng: random.Random) -> World:
    """The first segment written afresh without dead frames, next to freeing; a crash in between."""
    world = World()
    for turn in range(12):
        for _ in range(4):
            world.append(*some_frames(world, rng, 1800))
        world.flush()
        if turn % 3 == 1:
            world.write_checkpoint(behind=rng.choice((0, 1)))
        if len(world.rewritable()) > 1:
            world.begin_later(rng.randrange(1, 4))
            if turn % 2:
                world.free_below(3)
        if turn == 8:
            world.kill_and_reopen(_crashed(world, rng))
    assert world.log.oldest_index > 1
    world.log.close()
    return world


def larger_frames(rng: random.Random) -> World:
    """Among others, frames of a leader whose segments are larger than this member's; cut, and written on."""
    world = World()
    for turn in range(8):
        for _ in range(3):
            size = rng.choice((700, 700, 3 * OPTIONS.segment_bytes))
            world.append(*some_frames(world, rng, 700), world.make.data((1, 1, rng.randbytes(size))))
            if rng.random() < 0.6:
                world.flush()
        if turn % 3 == 1:
            world.write_checkpoint(behind=rng.choice((0, 2)))
        if turn == 3:
            world.kill_and_reopen(_crashed(world, rng))
        if turn % 3 == 2:
            count, least = len(world.frames), world.checkpoint.index if world.checkpoint else 1
            world.truncate(rng.randrange(least, count + 1))
    world.flush()
    world.free_below(1)
    world.append(some_frame(world, rng))
    world.log.close()
    return world


def _crashed(world: World, rng: random.Random) -> Image:
    upto = len(world.disk.record)
    return world.disk.crash(upto, {at: None for at in world.disk.pending(upto) if rng.random() < 0.3})


SCENARIOS: dict[str, Callable[[random.Random], World]] = {
    each.__name__: each
    for each in (
        append,
        roll,
        hurried,
        torn_tail,
        hard_state,
        truncate,
        truncate_and_append,
        checkpoint,
        install,
        install_after_truncation,
        rewrite,
        seal,
        join,
        begin_later,
        without_flush,
        larger_frames,
    )
}
