"""DataLog against MemoryLog: the same steps, the same answers, over crashes, cuts, checkpoints, installs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.options import LogOptions
from lockstep.storage.types import Checkpoint, Frame, FramesUnavailable, HardState, OffsetOutOfRange
from tests.storage.log.crash_world import DIRECTORY
from tests.storage.log.frames import FrameMaker, same, whole
from tests.storage.log.memory_log import MemoryLog
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
            recent_frames_bytes=cache,
        )
        self.disk = SimulatedFileSystem()
        self.log = DataLog.open(DIRECTORY, 9, self.options, self.disk)
        self.model = MemoryLog(9, self.options)
        self.make = FrameMaker()
        self.history: list[Frame] = []
        """Every frame up to the end, also those that an installed log does not hold."""
        self.durable = 0

    @rule(frames=st.lists(BATCHES, min_size=1, max_size=3))
    def append(self, frames: list[list[tuple[int, int, int]]]) -> None:
        made = [self.make.data(*((p, n, bytes([p]) * size) for p, n, size in each)) for each in frames]
        self.log.append(made)
        self.model.append(made)
        self.history += made

    @rule()
    def append_no_op_of_next_term(self) -> None:
        self.make.term += 1
        frame = self.make.no_op()
        self.log.append([frame])
        self.model.append([frame])
        self.history.append(frame)

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

    @rule(checkpoints=st.sampled_from([0, 2, 2]))
    def seal(self, checkpoints: int) -> None:
        self.log.prepare_now()
        self.log.seal()
        for _ in range(checkpoints):
            self.checkpoint()

    @rule()
    def join(self) -> None:
        self.log.join()

    @rule(back=st.sampled_from([1, 2, 3, 5, 20, 1 << 40]))
    def truncate(self, back: int) -> None:
        saved = self.model._saved
        least = saved[-1].index if saved else 0
        cut = max(self.model.last_index - back, least)
        if cut >= self.model.last_index:
            return
        for log in (self.log, self.model):
            if least:
                with pytest.raises(ValueError, match="below"):
                    log.truncate(least - 1)
            log.truncate(cut)
        self.durable = cut
        self._follow()

    @rule(
        back=st.integers(0, 20),
        more=st.lists(BATCHES, min_size=1, max_size=12),
        shipped=st.sampled_from([0, 3, 1 << 40]),
        reopen=st.booleans(),
    )
    def install(self, back: int, more: list[list[tuple[int, int, int]]], shipped: int, reopen: bool) -> None:
        """What a leader of a newer term has: some of this log, then other entries."""
        saved = self.model._saved
        shared = max(self.model.last_index - back, saved[-1].index if saved else 0)
        leader = MemoryLog(9, self.options)
        if shared:
            leader.append(self.history[:shared])
        self._follow(shared)
        self.make.term += 1
        for each in more:
            leader.append([self.make.data(*((p, n, bytes([p + 100]) * size) for p, n, size in each))])
        end = (leader.last_index, leader.last_term, leader.next_lsn, leader.chain, leader.last_time_ms)
        made = Checkpoint(*end, {"x": b"z"})
        for log in (self.log, self.model):
            installation = log.begin_install()
            at = max(1, leader.last_index + 1 - shipped)
            while at <= leader.last_index:
                frames = leader.snapshot_frames(at, leader.last_index, 3000)
                installation.add(frames, leader.chain_at(at - 1))
                at = frames[-1].index + 1
            installation.finish(made)
        self.history = leader.frames_cold(1, 1 << 40)
        self.durable = made.index
        if reopen:
            self.crash(0, 1.0)

    @rule(first=st.integers(1, 60), budget=st.integers(0, 5000))
    def ask_for_frames(self, first: int, budget: int) -> None:
        first = min(first, self.model.last_index + 1)
        answers: list[list[Frame] | None] = []
        for log in (self.log, self.model):
            try:
                answers.append(log.frames_cold(first, budget))
            except FramesUnavailable:
                answers.append(None)
        got, expected = answers
        assert (got is None) == (expected is None)
        assert len(got or ()) == len(expected or ()) and all(map(same, got or (), expected or ()))
        warm = self.log.frames(first, budget)
        assert warm == self.model.frames(first, budget)
        if warm is not None:
            assert got is not None and len(warm) == len(got) and all(map(same, warm, got))
        assert self.log.chain_at(first) == self.model.chain_at(first)

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

    def _follow(self, last_index: int | None = None) -> None:
        self.make = FrameMaker()
        for frame in self.history[: self.model.last_index if last_index is None else last_index]:
            self.make.follow(frame)
        if last_index is None:
            del self.history[self.model.last_index :]

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
        for name in (
            "last_index",
            "last_term",
            "next_lsn",
            "chain",
            "last_time_ms",
            "hard_state",
            "oldest_index",
            "first_kept_index",
        ):
            assert getattr(self.log, name) == getattr(self.model, name), name
        assert self.log.flushed_index <= self.log.last_index
        for partition in PARTITIONS:
            assert self.log.partition_bytes(partition, 0) == self.model.partition_bytes(partition, 0)

    @invariant()
    def the_last_batches_read_alike(self) -> None:
        if not hasattr(self, "log"):
            return
        for partition, end in self.make.next_offsets.items():
            for back in (1, 6, 20):
                offset = max(0, end - back)
                try:
                    expected = whole(self.model.read(partition, offset, 1 << 20, end).buffers)
                except OffsetOutOfRange:
                    with pytest.raises(OffsetOutOfRange):
                        self.log.read_cold(partition, offset, 1 << 20, end)
                    continue
                assert whole(self.log.read_cold(partition, offset, 1 << 20, end).buffers) == expected
                got = self.log.read(partition, offset, 1 << 20, end)
                assert got.cold or expected.startswith(whole(got.buffers))


TestTwoLogs = TwoLogs.TestCase
TestTwoLogs.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
