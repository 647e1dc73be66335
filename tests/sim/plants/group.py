"""Plants in the drive loop: what is applied, told, rebuilt and written down, and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from lockstep.storage import group_recovery
from lockstep.storage.applier import Applier
from lockstep.storage.checkpointer import Checkpointer
from lockstep.storage.log.recent_frames import RecentFrames
from lockstep.storage.log.tail_cache import TailCache
from lockstep.storage.log_group import LogGroup
from lockstep.storage.open_frame import OpenFrame
from lockstep.storage.partition import PartitionLog
from lockstep.storage.raft.configuration import ConfigurationStack
from lockstep.storage.raft.raft import Raft
from lockstep.storage.replica import Replica
from lockstep.storage.state_machines import Sections, StateMachines
from lockstep.storage.types import Checkpoint, Frame
from lockstep.storage.waiters import Waiter, Waiters
from tests.sim.faces import Plant
from tests.sim.plants.raft import ELECTIONS, MEMBERS, replaced


@contextmanager
def tail_answered_early() -> Iterator[None]:
    """Clients' batches only: opening a partition would fall over its own feet."""
    real = LogGroup.when_committed

    def when_committed(self: LogGroup, waiter: Waiter) -> None:
        if self.failed is None and all(entry[0] for entry in self._open._entries):
            self._loop.call_soon(waiter, None)
        else:
            real(self, waiter)

    with patch.object(LogGroup, "when_committed", when_committed):
        yield


@contextmanager
def duplicate_answered_at_once() -> Iterator[None]:
    real = LogGroup.when_committed

    def when_committed(self: LogGroup, waiter: Waiter) -> None:
        if self.failed is None and not self._open.pending_bytes:
            self._loop.call_soon(waiter, None)
        else:
            real(self, waiter)

    with patch.object(LogGroup, "when_committed", when_committed):
        yield


@contextmanager
def waiters_ignore_terms() -> Iterator[None]:
    real = Waiters.on_commit

    def on_commit(self: Waiters, index: int, term_at: Any) -> None:
        terms = {at: term for at, term, _ in self._waiting}
        real(self, index, lambda at: terms[at])

    def on_truncate(self: Waiters, last_index: int) -> None:
        return

    with patch.object(Waiters, "on_commit", on_commit), patch.object(Waiters, "on_truncate", on_truncate):
        yield


@contextmanager
def applied_at_append() -> Iterator[None]:
    real = Applier.apply

    def apply(self: Applier, commit_index: int, advanced: dict[PartitionLog, None]) -> bool:
        return real(self, self._log.last_index, advanced)

    with patch.object(Applier, "apply", apply):
        yield


@contextmanager
def end_of_log_served() -> Iterator[None]:
    """High watermarks follow the appended log."""
    real = Applier.on_append

    def on_append(self: Applier, frames: Sequence[Frame], is_in_tail: bool, tail_matches_log: bool) -> None:
        real(self, frames, is_in_tail, tail_matches_log)
        for partition in self._state.control.partitions.values():
            partition.high_watermark = partition.next_offset

    with patch.object(Applier, "on_append", on_append):
        yield


@contextmanager
def tail_state_kept() -> Iterator[None]:
    def rebuild_tail(self: Applier) -> int:
        for partition in self._state.control.partitions.values():
            partition.next_offset = max(partition.high_watermark, _end_in_log(self, partition.local_id))
        return 0

    with patch.object(Applier, "rebuild_tail", rebuild_tail):
        yield


def _end_in_log(applier: Applier, number: int) -> int:
    """Where a partition's entries of the log above the applied ones end."""
    end, index = 0, applier.index
    while index < applier._log.last_index:
        frames = applier._log.frames_cold(index + 1, 1 << 20)
        for frame in frames:
            index = frame.index
            for entry in frame.directory:
                if entry.partition == number and entry.record_count:
                    end = entry.base_offset + entry.record_count
    return end


@contextmanager
def followers_forget_producers() -> Iterator[None]:
    real = StateMachines.replay_appended

    def replay_appended(self: StateMachines, frame: Frame) -> None:
        machines = self._tail_machines, self._run_machines
        self._tail_machines, self._run_machines = {}, ()
        real(self, frame)
        self._tail_machines, self._run_machines = machines

    with patch.object(StateMachines, "replay_appended", replay_appended):
        yield


@contextmanager
def checkpoint_without_tail() -> Iterator[None]:
    real = StateMachines.snapshot_appended

    def snapshot_appended(self: StateMachines, time_ms: int) -> Sections:
        found = real(self, time_ms)
        for section in self._tail_machines:
            found[section] = b""
        return found

    with patch.object(StateMachines, "snapshot_appended", snapshot_appended):
        yield


@contextmanager
def checkpoint_without_commits() -> Iterator[None]:
    real = StateMachines.add_committed

    def add_committed(self: StateMachines, sections: Sections, time_ms: int) -> None:
        real(self, sections, time_ms)
        for section, _ in self._commit_machines.values():
            sections[section] = b""

    with patch.object(StateMachines, "add_committed", add_committed):
        yield


@contextmanager
def checkpoint_before_commit() -> Iterator[None]:
    real = Checkpointer.cut

    def cut(self: Checkpointer, time_ms: int) -> None:
        real(self, time_ms)
        self.on_apply(self._log.last_index, time_ms)

    with patch.object(Checkpointer, "cut", cut):
        yield


@contextmanager
def checkpoint_of_later_state() -> Iterator[None]:
    """What follows the appended log is cut when the checkpoint is written, not at its frame."""
    real = StateMachines.add_committed

    def add_committed(self: StateMachines, sections: Sections, time_ms: int) -> None:
        sections.update(self.snapshot_appended(time_ms))
        real(self, sections, time_ms)

    with patch.object(StateMachines, "add_committed", add_committed):
        yield


@contextmanager
def buffer_used_again() -> Iterator[None]:
    real = OpenFrame.add_batch
    last: list[bytearray] = []

    def add_batch(self: OpenFrame, partition: PartitionLog, batch: bytearray, *more: Any) -> int:
        if last and len(batch) > 61 and len(last[-1]) >= len(batch):
            last[-1][61 : len(batch)] = batch[61:]
        base_offset = real(self, partition, batch, *more)
        last[:] = [batch]
        return base_offset

    with patch.object(OpenFrame, "add_batch", add_batch):
        yield


@contextmanager
def configurations_not_recovered() -> Iterator[None]:
    class Forgetful(ConfigurationStack):
        """Made by recovery; what it is given there is in the log, not in a checkpoint."""

        def append(self, index: int, configuration: Any) -> None:
            if getattr(self, "recovered", False):
                super().append(index, configuration)

    real = Raft

    def made(member_id: int, configurations: Any, *rest: Any) -> Any:
        configurations.recovered = True
        return real(member_id, configurations, *rest)

    with (
        patch.object(group_recovery, "ConfigurationStack", Forgetful),
        patch("lockstep.storage.group_recovery.Raft", made),
    ):
        yield


@contextmanager
def serves_before_no_op() -> Iterator[None]:
    real: Any = vars(Replica)["is_serving"]

    def is_serving(self: Replica) -> bool:
        leader_state = self.raft.leader_state
        if leader_state is not None and self.failed is None and leader_state.no_op_index:
            leader_state.is_serving = True
            return not self.raft.is_transferring
        return bool(real.fget(self))

    with patch.object(Replica, "is_serving", property(is_serving)):
        yield


@contextmanager
def installed_state_mixed() -> Iterator[None]:
    """After an install the tail machines still say what they said before."""
    real = Applier.on_install

    def on_install(self: Applier, checkpoint: Checkpoint) -> None:
        machines, self._state._tail_machines = self._state._tail_machines, {}
        real(self, checkpoint)
        self._state._tail_machines = machines

    with patch.object(Applier, "on_install", on_install):
        yield


@contextmanager
def committed_before_flush() -> Iterator[None]:
    """The lone member commits what it has written, and flushes it with the next frame."""

    def append_alone(self: Replica, frames: Sequence[Frame]) -> bool:
        log, advanced = self.log, dict[PartitionLog, None]()
        log.append(frames)
        self.time_ms = frames[-1].time_ms
        self.raft.on_persisted(log.last_index, log.last_term, self.raft.truncation_count, self.now_ms())
        self.applier.apply_at_once(frames, not self._listener.has_unproposed_batches, advanced)
        self._listener.on_progress(advanced)
        return True

    with patch.object(Replica, "_append_alone", append_alone):
        yield


@contextmanager
def committed_without_the_others() -> Iterator[None]:
    """A leader takes itself for a lone member while nothing of its log waits for the others."""

    def commits_alone(self: Raft) -> bool:
        return self.accepts_proposals and self.commit_index == self.last_index

    with patch.object(Raft, "commits_alone", property(commits_alone)):
        yield


PLANTS = (
    Plant(
        "straight-commit-before-flush",
        "a lone member commits its frames when they are written, not when they are flushed",
        committed_before_flush,
        overrides={"nodes": 1, "think_ms": 50},
        source="docs/storage_rules.md: straight commit before the flush",
    ),
    Plant(
        "straight-commit-of-many",
        "a leader with followers applies its frames as if it were a lone member",
        committed_without_the_others,
        overrides={"nodes": 3, "think_ms": 50},
        source="docs/storage_rules.md: straight commit of many",
    ),
    Plant(
        "tail-answered-early",
        "whoever waits for a commit is told at once that it has come",
        tail_answered_early,
        overrides={"fast_path": False},
        source="docs/storage_rules.md: tail answered early",
    ),
    Plant(
        "duplicate-answered-early",
        "a duplicate is acknowledged while the first copy is not committed",
        duplicate_answered_at_once,
        workload="appends",
        overrides={**ELECTIONS, "think_ms": 50},
        source="docs/storage_rules.md: answers from the tail; etcd #14370",
    ),
    Plant(
        "waiters-ignore-terms",
        "a waiter is told of success when another leader's entry is committed in its place",
        waiters_ignore_terms,
        overrides={**ELECTIONS, "think_ms": 50},
        source="docs/storage_rules.md: waiters hold (index, term)",
    ),
    Plant(
        "applied-at-append",
        "entries are applied when they are written, not when they are committed",
        applied_at_append,
        source="etcd #10508",
    ),
    Plant(
        "end-of-log-served",
        "readers are shown what is not committed yet",
        end_of_log_served,
        workload="appends",
        source="Redpanda #14794, #2932",
    ),
    Plant(
        "tail-state-kept",
        "what followed from truncated entries stays in the tail machines",
        tail_state_kept,
        workload="appends",
        overrides={**ELECTIONS, "think_ms": 50},
        source="docs/storage_rules.md: speculative state kept on truncation",
    ),
    Plant(
        "producers-forgotten",
        "producers' state is not kept by followers: a new leader knows none",
        followers_forget_producers,
        workload="appends",
        overrides=ELECTIONS,
        source="Redpanda #6018, #10669",
    ),
    Plant(
        "checkpoint-without-tail",
        "a checkpoint lacks what follows the appended log",
        checkpoint_without_tail,
        workload="appends",
        source="docs/storage_rules.md: checkpoint incomplete",
    ),
    Plant(
        "checkpoint-without-commits",
        "a checkpoint lacks the committed state of the machines",
        checkpoint_without_commits,
        workload="groups",
        overrides={"think_ms": 50, "segment_bytes": 64 << 10},
        source="docs/storage_rules.md: checkpoint incomplete",
    ),
    Plant(
        "checkpoint-before-commit",
        "a checkpoint is written before its entry is committed",
        checkpoint_before_commit,
        overrides={**ELECTIONS, "think_ms": 50, "segment_bytes": 64 << 10},
        source="docs/storage_rules.md: checkpoint at the applied index",
    ),
    Plant(
        "checkpoint-of-two-moments",
        "the two halves of a checkpoint are of two different frames",
        checkpoint_of_later_state,
        overrides={"think_ms": 50, "segment_bytes": 64 << 10},
        source="etcd #13766, #14685, #17780",
    ),
    Plant(
        "buffer-used-again",
        "a batch's buffer is used for the next one while it is under way",
        buffer_used_again,
        workload="appends",
        overrides={"think_ms": 50},
        source="Kafka CVE-2026-35554",
    ),
    Plant(
        "configurations-not-recovered",
        "configurations above the checkpoint are lost in a restart",
        configurations_not_recovered,
        overrides={**MEMBERS, "fault_every_ms": 600},
        source="jraft #1",
    ),
    Plant(
        "serves-before-no-op",
        "a new leader serves before an entry of its term is committed",
        serves_before_no_op,
        overrides=ELECTIONS,
        source="etcd raft: reads need a current-term commit",
    ),
    Plant(
        "tail-cache-kept",
        "truncated batches stay in the cache of the log's end",
        replaced(TailCache, "clear", lambda self: None),
        workload="appends",
        overrides={**ELECTIONS, "think_ms": 50, "tail_cache_bytes": 1 << 20},
        source="docs/storage_rules.md: truncation invalidates cache, index and waiters together",
    ),
    Plant(
        "recent-frames-kept",
        "truncated frames stay among those that followers are sent",
        replaced(RecentFrames, "truncate", lambda self, last_index: None),
        workload="appends",
        overrides={**ELECTIONS, "think_ms": 50},
        source="docs/storage_rules.md: stale batch under a new header",
    ),
    Plant(
        "installed-state-mixed",
        "after an install the tail machines are those of before",
        installed_state_mixed,
        workload="appends",
        overrides={**ELECTIONS, "think_ms": 50, "segment_bytes": 64 << 10},
        source="Redpanda #3377",
    ),
)
