"""One log under threads that read, scrub, clean and join while its end is appended to and truncated.

`python -m tests.storage.log.join_stress --seconds 300`; each round is a log of its own, drawn from a seed,
and what a thread does is drawn from that as well. Owns what is right: a read below the committed end gives
exactly the batches that were appended and not taken away, frames are those that were appended, a scrub finds
nothing, nothing is known to be damaged, and no error is raised but that a segment has just been replaced.
The machine orders the threads, so a round that fails may pass when it is run again.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.options import LogOptions
from lockstep.storage.types import Checkpoint, Frame, FramesUnavailable, OffsetOutOfRange, StorageFull
from tests.storage.log.frames import FrameMaker, same, whole

OPTIONS = LogOptions(
    segment_bytes=32 << 10,
    tail_cache_bytes=2 << 10,
    reserve_bytes=1 << 10,
    recent_frames_bytes=4 << 10,
    index_cache_bytes=4 << 10,
    pool_segments=2,
)
PARTITIONS = (1, 2, 3)
PAUSE_S = 0.0005
"""After each step of a thread beside the log's own, which would not get on otherwise."""


class Round:
    """One log, and what it must hold. The writer's thread is the log's own."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.log = DataLog.open(directory, 1, OPTIONS)
        self.log.start_preparing()
        self.make = FrameMaker()
        self.frames: list[Frame] = []
        self.batches: dict[int, list[tuple[int, bytes]]] = {number: [] for number in PARTITIONS}
        """By partition: base offset and bytes of each batch that was appended, in order."""
        self.committed = 0
        """Frames that are never truncated."""
        self.ends = dict.fromkeys(PARTITIONS, 0)
        """By partition: the offset up to which `batches` are committed."""
        self.gone: set[tuple[int, int]] = set()
        """Partition and base offset of batches that a cleaning takes away, now or later."""
        self.did: Counter[str] = Counter()
        self.problems: list[str] = []
        self.is_over = threading.Event()

    # -- the log's own thread -------------------------------------------------------------------------------

    def append(self) -> None:
        for _ in range(self.random.randrange(1, 5)):
            number, size = self.random.choice(PARTITIONS), self.random.randrange(20, 1500)
            frame = self.make.data((number, 2, self.random.randbytes(size)), (3, 1, b"x" * 40))
            try:
                self.log.append([frame])
            except StorageFull:
                return
            self.frames.append(frame)
        self.log.flush()

    def commit(self) -> None:
        upto = self.random.randint(self.committed, len(self.frames))
        for frame in self.frames[self.committed : upto]:
            for entry, payload in zip(frame.directory, frame.payloads, strict=True):
                self.batches[entry.partition].append((entry.base_offset, bytes(payload)))
                self.ends[entry.partition] = entry.base_offset + entry.record_count
        self.committed = upto

    def checkpoint(self) -> None:
        if self.committed == 0 or self.committed < len(self.frames) - 200:
            return
        last = self.frames[self.committed - 1]
        chain = self.log.chain_at(last.index)
        if chain is None:
            return
        next_lsn = last.first_lsn + last.record_count
        self.log.write_checkpoint(Checkpoint(last.index, last.term, next_lsn, chain, last.time_ms, {}))

    def truncate(self) -> None:
        if len(self.frames) == self.committed:
            return
        kept = self.random.randint(self.committed, len(self.frames) - 1)
        self.log.truncate(kept)
        del self.frames[kept:]
        self.make = FrameMaker()
        for frame in self.frames:
            self.make.follow(frame)
        self.make.term += 1

    def seal(self) -> None:
        self.log.seal()

    # -- other threads --------------------------------------------------------------------------------------

    def read(self, draw: random.Random) -> None:
        number = draw.choice(PARTITIONS)
        end = self.ends[number]
        if not end:
            return
        offset = draw.randrange(end)
        found = whole(self.log.read_cold(number, offset, draw.choice((1, 3000, 1 << 20)), end).buffers)
        rows = [(base, data) for base, data in self.batches[number] if base < end]
        first = next((at for at, (base, _) in enumerate(rows) if base > offset), len(rows)) - 1
        at = 0
        for base, data in rows[first:]:
            if found[at : at + len(data)] == data:
                at += len(data)
            elif (number, base) not in self.gone or (at == len(found) and found):
                break
        if at != len(found) or (
            not found and any((number, base) not in self.gone for base, _ in rows[first:])
        ):
            self.problems.append(
                f"partition {number} offset {offset} to {end}: {len(found)} bytes, {at} right"
            )

    def read_frames(self, draw: random.Random) -> None:
        committed = self.committed
        if not committed:
            return
        first = draw.randint(1, committed)
        for frame in self.log.snapshot_frames(first, committed, draw.choice((0, 4000, 60_000))):
            expected = self.frames[frame.index - 1]
            if frame.head != expected.head:
                self.problems.append(f"frame {frame.index} has another head")
            elif not same(frame, expected) and not any(
                (e.partition, e.base_offset) in self.gone for e in expected.directory
            ):
                self.problems.append(f"frame {frame.index} has other batches")

    def look_up(self, draw: random.Random) -> None:
        number = draw.choice(PARTITIONS)
        self.log.timestamp_lookup(number, draw.randrange(3000), 0, self.ends[number])
        self.log.partition_bytes(number, 0)
        self.log.first_offset(number)
        if self.committed:
            self.log.chain_at_cold(draw.randint(1, self.committed))

    def scrub(self, draw: random.Random) -> None:
        segments = self.log.segments()
        if segments:
            sequence = draw.choice(segments).sequence
            if (rotten := self.log.scrub(sequence)) is not None:
                self.problems.append(f"segment {sequence}: scrub says that {rotten} do not verify")

    def clean(self, draw: random.Random) -> None:
        segments = self.log.cleanable_segments()
        if not segments:
            return
        part = draw.randrange(5)

        def judge(entry, payload):  # type: ignore[no-untyped-def]
            if entry.partition == 3 or entry.base_offset % 10 != 2 * part:
                return True
            self.gone.add((entry.partition, entry.base_offset))
            return False

        self.log.clean(draw.choice(segments).sequence, judge)

    def join(self, _: random.Random) -> None:
        self.did["files joined"] += self.log.join()

    def repeat(self, what: Callable[[random.Random], None], seed: int) -> None:
        """Until the round is over; ValueError: the segment has just been replaced."""
        draw = random.Random(seed)
        while not self.is_over.is_set():
            try:
                what(draw)
            except (FramesUnavailable, ValueError, OffsetOutOfRange) as error:
                self.did[f"{what.__name__}: {type(error).__name__}"] += 1
                if isinstance(error, ValueError) and what.__name__ != "clean":
                    self.problems.append(f"{what.__name__}: {traceback.format_exc()}")
            except BaseException:
                self.problems.append(f"{what.__name__}: {traceback.format_exc()}")
                return
            self.did[what.__name__] += 1
            time.sleep(PAUSE_S)

    def run(self, steps: int, until: float) -> None:
        """So many steps of the writer beside all others, or as long as there is time."""
        works = [self.read, self.read, self.read_frames, self.look_up, self.scrub, self.clean, self.join]
        threads = [
            threading.Thread(target=self.repeat, args=(work, self.random.randrange(1 << 30)), daemon=True)
            for work in works
        ]
        for thread in threads:
            thread.start()
        writes = (
            [self.append] * 6 + [self.commit] * 3 + [self.truncate] + [self.seal] * 2 + [self.checkpoint] * 2
        )
        try:
            for _ in range(steps):
                if self.problems or time.monotonic() > until:
                    break
                step = self.random.choice(writes)
                step()
                self.did[step.__name__] += 1
        except BaseException:
            self.problems.append(traceback.format_exc())
        self.is_over.set()
        for thread in threads:
            thread.join(60)
        if self.log.damage.known() or self.log.corruption_found:
            self.problems.append(f"damage is known: {self.log.damage.known()}")


def run_round(seed: int, steps: int, until: float = float("inf")) -> Round:
    """One round on a directory of its own. Afterwards the log is opened again and read through."""
    with tempfile.TemporaryDirectory() as directory:
        made = Round(Path(directory), seed)
        made.run(steps, until)
        made.log.close()
        log = DataLog.open(Path(directory), 1, OPTIONS)
        for segment in log.segments():
            if log.scrub(segment.sequence) is not None:
                made.problems.append(f"segment {segment.sequence} does not verify after a restart")
        if log.last_index != len(made.frames):
            made.problems.append(f"{log.last_index} frames after a restart, {len(made.frames)} before")
        log.close()
    return made


def main() -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.storage.log.join_stress", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--steps", type=int, default=600)
    given = parser.parse_args()
    until, seed, total = time.monotonic() + given.seconds, given.seed, Counter[str]()
    while time.monotonic() < until:
        found = run_round(seed, given.steps, until)
        total.update(found.did)
        if found.problems:
            print(f"seed {seed}:", *found.problems[:5], sep="\n")
            return 1
        seed += 1
    print(f"{seed - given.seed} rounds without a problem:", dict(sorted(total.items())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
