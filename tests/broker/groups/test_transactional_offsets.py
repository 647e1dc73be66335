"""Offsets committed within transactions: Kafka's rules, by hand and against a model that is Kafka's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.broker.groups.group_records import CommittedOffset, Record, group_record, offset_record
from lockstep.broker.groups.group_state import GroupsState
from lockstep.broker.groups.transactional_offsets import Pending, PendingOffsets
from lockstep.protocol.records import control
from lockstep.protocol.records.control import ControlKind
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.types import DirectoryEntry
from tests.support.cases import each_case

Key = tuple[str, str, int]


class Log:
    """Batches of a log group's partitions of `__consumer_offsets`, replayed as they are appended."""

    def __init__(self) -> None:
        self.state = GroupsState()
        self.batches: list[tuple[DirectoryEntry, bytes]] = []
        self._ends: dict[int, int] = {}

    def write(self, *records: Record, partition: int = 1, producer_id: int = -1) -> int:
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, transactional=producer_id >= 0)
        for key, value in records:
            builder.append(value, key, timestamp_ms=1)
        return self._append(partition, builder.build(), len(records))

    def end(self, producer_id: int, kind: ControlKind = ControlKind.COMMIT, partition: int = 1) -> None:
        batch = control.build(
            kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1
        )
        self._append(partition, batch, 1)

    def _append(self, partition: int, batch: bytes, count: int) -> int:
        at = self._ends.get(partition, 0)
        self._ends[partition] = at + count
        entry = DirectoryEntry(partition, at, count, len(batch), 0, 0, 1)
        self.batches.append((entry, batch))
        self.state.replay(entry, batch, 1)
        return at

    def restart(self) -> None:
        """What a checkpoint makes of the state."""
        restored = GroupsState()
        restored.restore(self.state.snapshot(0))
        assert restored == self.state
        self.state = restored


def commit(offset: int, index: int = 0, group: str = "g", metadata: str = "") -> Record:
    return offset_record(group, "t", index, CommittedOffset(offset, 1, metadata, 2, -1, bytes(range(16))))


def gone(index: int = 0, group: str = "g") -> Record:
    return offset_record(group, "t", index, None)


def offsets(state: GroupsState, group: str = "g") -> dict[int, int]:
    return {index: each.offset for (_, index), each in state.offsets(group).items()}


def test_what_is_pending_holds_when_its_transaction_commits() -> None:
    log = Log()
    log.write(commit(1), commit(2, 1))
    log.write(commit(7, metadata="m"), commit(8, 2), producer_id=5)
    assert offsets(log.state) == {0: 1, 1: 2}
    assert log.state.pending("g") == {("t", 0), ("t", 2)} and log.state.pending("h") == set()
    assert log.state.topics() == {"t": 4}, "a topic is not forgotten while an offset of it may yet hold"
    assert log.state.topic_partitions("g") == [("t", 0), ("t", 1), ("t", 2)]
    log.end(5)
    assert offsets(log.state) == {0: 7, 1: 2, 2: 8} and not log.state.pending("g")
    assert log.state.offsets("g")["t", 0].metadata == "m"
    assert log.state.topics() == {"t": 3}


def test_what_is_pending_is_nothing_when_its_transaction_aborts() -> None:
    log = Log()
    log.write(commit(7), producer_id=5)
    assert (
        "g" in log.state
        and list(log.state.group_ids()) == ["g"]
        and log.state.topic_partitions("g") == [("t", 0)]
    )
    log.end(5, ControlKind.ABORT)
    assert log.state == GroupsState() and "g" not in log.state
    log.end(5)  # nothing is pending any more
    assert log.state == GroupsState()


@each_case("kind", [ControlKind.COMMIT, ControlKind.ABORT])
def test_a_plain_commit_that_comes_later_holds_whatever_becomes_of_the_transaction(kind: ControlKind) -> None:
    log = Log()
    log.write(commit(7), producer_id=5)
    log.write(commit(3))
    assert log.state.pending("g") == {("t", 0)}, "readers of stable offsets go on waiting"
    log.restart()
    log.end(5, kind)
    assert offsets(log.state) == {0: 3} and log.state.topics() == {"t": 1}


def test_of_two_transactions_the_later_commit_holds_not_the_later_end() -> None:
    log = Log()
    log.write(commit(1), commit(1, 1), producer_id=5)
    log.write(commit(2), commit(2, 1), producer_id=6)
    log.write(commit(3, 1), producer_id=5)
    log.end(6)
    assert offsets(log.state) == {0: 2, 1: 2} and log.state.pending("g") == {("t", 0), ("t", 1)}
    log.end(5)
    assert offsets(log.state) == {0: 2, 1: 3} and log.state.topics() == {"t": 2}


def test_a_tombstone_ends_what_is_pending_of_its_key_in_every_transaction() -> None:
    log = Log()
    log.write(commit(1), commit(1, 1), producer_id=5)
    log.write(commit(2), producer_id=6)
    log.write(gone())
    assert log.state.pending("g") == {("t", 1)} and log.state.topics() == {"t": 1}
    log.end(6)
    log.end(5)
    assert offsets(log.state) == {1: 1}
    log.write(commit(9), producer_id=5)
    log.write(gone(), producer_id=5)  # nobody writes one within a transaction; Kafka does the same with it
    log.end(5)
    assert offsets(log.state) == {1: 1}


def test_each_partition_gets_the_end_on_its_own() -> None:
    log = Log()
    log.write(commit(1), producer_id=5)
    log.write(commit(2, group="h"), partition=2, producer_id=5)
    log.end(5, partition=2)
    assert offsets(log.state, "h") == {0: 2} and not offsets(log.state)
    log.end(5, ControlKind.ABORT)
    assert not offsets(log.state) and log.state.topics() == {"t": 1}


def test_markers_with_other_content_or_none(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    log.write(commit(1), producer_id=5)
    for key in (b"\0\0\0\7", b"\0"):
        builder = BatchBuilder(producer_id=5, producer_epoch=0, transactional=True, control=True)
        builder.append(bytes(6), key, timestamp_ms=1)
        log.state.replay(DirectoryEntry(1, 9, 1, 1, 0, 0, 0), builder.build(), 1)
    assert log.state.pending("g") == {("t", 0)} and len(caplog.records) == 1
    log.end(5)
    assert offsets(log.state) == {0: 1}


def test_a_generation_written_within_a_transaction_holds_at_once() -> None:
    """Nobody writes one; what Kafka would do with it is not undone at the end."""
    log = Log()
    log.write(group_record("g", None), commit(1), producer_id=5)
    assert log.state.pending("g") == {("t", 0)}


def test_a_broker_without_transactions_reads_what_has_none() -> None:
    log = Log()
    log.write(commit(1))
    assert log.state.snapshot(0)[:2] == b"\0\1"
    log.write(commit(2), producer_id=5)
    assert log.state.snapshot(0)[:2] == b"\0\2"
    log.end(5)
    assert log.state.snapshot(0)[:2] == b"\0\1"


def test_pending_offsets_by_themselves() -> None:
    pending, same = PendingOffsets(), PendingOffsets()
    assert not pending and pending == same and pending != 1
    assert pending.end((1, 1)) == [] and pending.drop("g", ("t", 0)) == 0
    pending.supersede("g", ("t", 0))
    assert pending.add((1, 1), "g", ("t", 0), Pending(4, CommittedOffset(1)))
    assert not pending.add((1, 1), "g", ("t", 0), Pending(5, CommittedOffset(2)))
    assert pending.add((1, 1), "h", ("t", 0), Pending(6, None)) and pending.add(
        (1, 2), "g", ("u", 0), Pending(7, CommittedOffset(3))
    )
    assert pending and pending != same and "g" in pending and list(pending.group_ids()) == ["g", "h"]
    assert list(same.restore(pending.rows())) == ["t", "u", "t"] and pending == same
    pending.supersede("g", ("t", 0), before=5)
    assert pending == same, "it is not before itself"
    pending.supersede("g", ("t", 0), before=6)
    pending.supersede("g", ("u", 1))
    assert pending.end((1, 1)) == [("g", ("t", 0), Pending(5, None)), ("h", ("t", 0), Pending(6, None))]
    assert pending.end((1, 2)) == [("g", ("u", 0), Pending(7, CommittedOffset(3)))] and not pending


# --- against a model --------------------------------------------------------------------------------------


@dataclass
class Model:
    """Kafka's OffsetMetadataManager, with every offset's place in the log. A group has one partition."""

    committed: dict[Key, tuple[int, int]] = field(default_factory=dict)
    pending: dict[tuple[int, int], dict[Key, tuple[int, int]]] = field(default_factory=dict)

    def plain(self, key: Key, at: int, offset: int) -> None:
        self.committed[key] = at, offset

    def within(self, partition: int, producer_id: int, key: Key, at: int, offset: int) -> None:
        self.pending.setdefault((partition, producer_id), {})[key] = at, offset

    def tombstone(self, key: Key) -> None:
        self.committed.pop(key, None)
        for each in self.pending.values():
            each.pop(key, None)

    def end(self, partition: int, producer_id: int, is_commit: bool) -> None:
        for key, (at, offset) in self.pending.pop((partition, producer_id), {}).items():
            if is_commit and (key not in self.committed or at > self.committed[key][0]):
                self.committed[key] = at, offset


GROUPS = ("g", "h")
PLACES = st.tuples(st.sampled_from(GROUPS), st.integers(0, 1))
COMMITS = st.tuples(st.just("commit"), PLACES, st.sampled_from([-1, 5, 5, 6, 6]), st.booleans())
ENDS = st.tuples(st.just("end"), st.sampled_from([1, 2]), st.sampled_from([5, 6]), st.booleans())
STEPS = st.one_of(
    COMMITS,
    COMMITS,
    ENDS,
    ENDS,
    st.tuples(st.just("tombstone"), PLACES) | st.tuples(st.just("restart")),
)


def partition_of(group: str) -> int:
    return 1 if group == "g" else 2


def take(log: Log, model: Model, step: Sequence[object], number: int) -> None:
    """One step of both. Offsets are the step's number: every commit has another."""
    match step:
        case ["commit", (str(group), int(index)), int(producer_id), bool(twice)]:
            partition = partition_of(group)
            records = [commit(number, index, group)] + [commit(-number, 1, group)] * twice
            at = log.write(*records, partition=partition, producer_id=producer_id)
            written = [((group, "t", index), number)] + [((group, "t", 1), -number)] * twice
            for place, (key, offset) in enumerate(written):
                if producer_id < 0:
                    model.plain(key, at + place, offset)
                else:
                    model.within(partition, producer_id, key, at + place, offset)
        case ["tombstone", (str(group), int(index))]:
            log.write(gone(index, group), partition=partition_of(group))
            model.tombstone((group, "t", index))
        case ["end", int(partition), int(producer_id), bool(is_commit)]:
            kind = ControlKind.COMMIT if is_commit else ControlKind.ABORT
            log.end(producer_id, kind, partition)
            model.end(partition, producer_id, is_commit)
        case _:
            log.restart()


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, min_size=12, max_size=30))
def test_any_history_is_what_kafka_makes_of_it(steps: list[tuple[object, ...]]) -> None:
    log, model = Log(), Model()
    for number, step in enumerate(steps, 1):
        take(log, model, step, number)
        for group in GROUPS:
            expected = {k[2]: offset for k, (_, offset) in model.committed.items() if k[0] == group}
            assert offsets(log.state, group) == expected
            unstable = {k[1:] for each in model.pending.values() for k in each if k[0] == group}
            assert log.state.pending(group) == unstable
        counted = len(model.committed) + sum(map(len, model.pending.values()))
        assert sum(log.state.topics().values()) == counted
    again = GroupsState()
    for entry, batch in log.batches:
        again.replay(entry, batch, 1)
    assert again == log.state
