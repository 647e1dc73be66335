"""DataLog against MemoryLog: the same steps, the same answers, over crashes, cuts and checkpoints."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from storage.log.data_log import DataLog
from storage.log.memory_log import MemoryLog
from storage.log.options import LogOptions
from storage.types import Checkpoint, HardState, OffsetOutOfRange
from tests.storage.log.crash_world import DIRECTORY
from tests.storage.log.frames import FrameMaker, same, whole
from tests.storage.log.simulated_disk import SimulatedFileSystem

PARTITIONS = (0, 1, 2, 7)
BATCHES = st.lists(
    st.tuples(st.sampled_from(PARTITIONS), st.integers(1, 4), st.integers(0, 900)), min_size=1, max_size=4
)


class TwoLogs(RuleBasedStateMachine):
    """Every step on both."""

    @initialize(flush=st.booleans(), cache=st.sampled_from([1, 2000, 1 << 20]))
    def start(self, flush: bool, cache: int) -> None:
        self.options = LogOptions(
            segment_bytes=12 << 10,
            spare_segments=2,
            tail_cache_bytes=cache,
            index_cache_bytes=2000,
            flush=flush,
            reserve_bytes=512,
        )
        self.disk = SimulatedFileSystem()
        self.log = DataLog.open(DIRECTORY, 9, self.options, self.disk)
        self.model = MemoryLog(9, self.options)
        self.make = FrameMaker()
        self.durable = 0

    @rule(frames=st.lists(BATCHES, min_size=1, max_size=3))
    def append(self, frames: list[list[tuple[int, int, int]]]) -> None:
        made = [self.make.data(*((p, n, bytes([p]) * size) for p, n, size in each)) for each in frames]
        self.log.append(made)
        self.model.append(made)

    @rule()
    def append_no_op_of_next_term(self) -> None:
        self.make.term += 1
        frame = self.make.no_op()
        self.log.append([frame])
        self.model.append([frame])

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.model.flush()
        if self.options.flush:
            self.durable = self.model.last_index

    @rule()
    def idle(self) -> None:
        self.log.idle()

    @rule(term=st.integers(0, 9), vote=st.integers(-1, 3))
    def vote(self, term: int, vote: int) -> None:
        for log in (self.log, self.model):
            log.save_hard_state(HardState(term, vote, 1))

    @rule()
    def checkpoint(self) -> None:
        if self.model.last_index == 0:
            return
        log = self.model
        made = Checkpoint(
            log.last_index, log.last_term, log.next_lsn, log.chain, log.last_time_ms, {"x": b"y" * 300}
        )
        self.log.write_checkpoint(made)
        self.model.write_checkpoint(made)
        self.durable = max(self.durable, made.index)

    @rule(back=st.integers(1, 5))
    def truncate(self, back: int) -> None:
        saved = self.model._saved
        cut = max(self.model.last_index - back, saved[-1].index if saved else 1)
        if cut >= self.model.last_index:
            return
        self.log.truncate(cut)
        self.model.truncate(cut)
        self.durable = cut
        self._follow()

    @rule(seed=st.integers(0, 1 << 30), chance=st.sampled_from([0.0, 0.3, 1.0]))
    def crash(self, seed: int, chance: float) -> None:
        rng = random.Random(seed)
        upto = len(self.disk.record)
        lost: dict[int, Any] = {at: None for at in self.disk.pending(upto) if rng.random() < chance}
        self.disk = SimulatedFileSystem(self.disk.crash(upto, lost))
        self.log = DataLog.open(DIRECTORY, 9, self.options, self.disk)
        assert self.durable <= self.log.last_index <= self.model.last_index
        if not self.options.flush:
            self.model.flushed_index = self.durable
        self.model.crash(self.log.last_index)
        self.durable = self.log.last_index
        replayed, modelled = list(self.log.replay()), list(self.model.replay())
        assert len(replayed) == len(modelled) and all(map(same, replayed, modelled))
        loaded = self.log.checkpoint
        assert (loaded.index if loaded else 0) == (
            self.model.checkpoint.index if self.model.checkpoint else 0
        )
        self._follow()

    def _follow(self) -> None:
        self.make = FrameMaker()
        for frame in self.model._frames:
            self.make.follow(frame)

    @rule(
        partition=st.sampled_from(PARTITIONS),
        offset=st.integers(0, 40),
        max_bytes=st.integers(0, 4000),
        length=st.integers(0, 30),
        min_one=st.booleans(),
        cold=st.booleans(),
    )
    def read(
        self, partition: int, offset: int, max_bytes: int, length: int, min_one: bool, cold: bool
    ) -> None:
        end = min(offset + length, self.make.next_offsets.get(partition, 0))
        self.disk.cold = cold
        try:
            expected = self.model.read(partition, offset, max_bytes, end, min_one=min_one)
        except OffsetOutOfRange:
            return
        got = self.log.read(partition, offset, max_bytes, end, min_one=min_one)
        if not got.cold:
            # A read that must not wait may end where the next index is not loaded.
            assert whole(expected.buffers).startswith(whole(got.buffers))
            assert got.buffers or not expected.buffers
        waited = self.log.read_cold(partition, offset, max_bytes, end, min_one=min_one)
        assert whole(waited.buffers) == whole(expected.buffers)
        assert waited.total_bytes == expected.total_bytes == len(whole(waited.buffers))

    @rule(partition=st.sampled_from(PARTITIONS), timestamp=st.integers(998, 1025), start=st.integers(0, 12))
    def look_up_a_time(self, partition: int, timestamp: int, start: int) -> None:
        for name in ("timestamp_lookup", "max_timestamp_batch"):
            extra = (timestamp,) if name == "timestamp_lookup" else ()
            got, expected = (
                getattr(log, name)(partition, *extra, start, 1 << 40) for log in (self.log, self.model)
            )
            assert (got and got.base_offset) == (expected and expected.base_offset)

    @invariant()
    def both_end_alike(self) -> None:
        if not hasattr(self, "log"):
            return
        for name in ("last_index", "last_term", "next_lsn", "chain", "last_time_ms", "hard_state"):
            assert getattr(self.log, name) == getattr(self.model, name), name
        assert self.log.flushed_index <= self.log.last_index

    @invariant()
    def the_last_batches_read_alike(self) -> None:
        if not hasattr(self, "log"):
            return
        for partition, end in self.make.next_offsets.items():
            for back in (1, 6, 20):
                offset = max(0, end - back)
                expected = whole(self.model.read(partition, offset, 1 << 20, end).buffers)
                assert whole(self.log.read_cold(partition, offset, 1 << 20, end).buffers) == expected
                got = self.log.read(partition, offset, 1 << 20, end)
                assert got.cold or expected.startswith(whole(got.buffers))


TestTwoLogs = TwoLogs.TestCase
TestTwoLogs.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
