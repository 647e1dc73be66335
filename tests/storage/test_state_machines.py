"""What follows the appended log, what follows the committed one, and how both come back from a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from lockstep.protocol.records.control import ControlKind, build
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.aborted_transactions import ENTRY_CONTROL, ENTRY_TRANSACTIONAL, AbortedTransaction
from lockstep.storage.control_partition import (
    Command,
    close_command,
    encode_command,
    encode_values,
    log_start_command,
    open_command,
)
from lockstep.storage.log.format import ENTRY_NOTES, ENTRY_RAW
from lockstep.storage.partition import PartitionLog
from lockstep.storage.state_machines import (
    CONTROL_SECTION,
    OFFSETS_SECTION,
    TRANSACTIONS_SECTION,
    Sections,
    StateMachines,
)
from lockstep.storage.types import NOTES_PARTITION, Buffer, CorruptLog, DirectoryEntry, Frame, FrameKind
from tests.support.cases import each_case

TOPIC = bytes(range(16))
OTHER_TOPIC = bytes(range(1, 17))


class Tally:
    """A machine that remembers which batches it was given."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def snapshot(self, time_ms: int) -> bytes:
        return json.dumps(self.seen).encode()

    def restore(self, data: bytes) -> None:
        self.seen = json.loads(data or b"[]")

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        self.seen.append([entry.partition, entry.base_offset, time_ms])


class RunTally(Tally):
    """The same, of one that takes runs."""

    def replay_run(self, partition: int, payloads: Sequence[Buffer], time_ms: int) -> None:
        """Each payload is the offset of its batch, or those of several."""
        for payload in payloads:
            bases = [payload[at : at + 8] for at in range(0, len(payload), 8)]
            self.seen += [[partition, int.from_bytes(each, "big"), time_ms] for each in bases]


class Group:
    """Derived state with one machine of each kind, and frames as a leader would make them."""

    def __init__(self) -> None:
        self.tail, self.committed = Tally(), Tally()
        self.state = StateMachines({TOPIC: ("committed", self.committed)}, {"tail": self.tail})
        self.state.restore({})
        self.index = 0
        self.offsets: dict[int, int] = {}

    @property
    def partitions(self) -> dict[int, PartitionLog]:
        return self.state.control.partitions

    def frame(self, *batches: tuple[int, int], flags: int = 0) -> Frame:
        """A frame of (partition, record count) batches."""
        return self._frame([(number, records, b"") for number, records in batches], flags)

    def commands(self, *commands: Command) -> Frame:
        return self._frame([(0, len(commands), encode_values(map(encode_command, commands), 5))])

    def _frame(self, batches: list[tuple[int, int, bytes]], flags: int = 0) -> Frame:
        self.index += 1
        directory = []
        for number, records, payload in batches:
            base = self.offsets.get(number, 0)
            directory.append(DirectoryEntry(number, base, records, len(payload), 0, 4, 5, flags))
            self.offsets[number] = base + records
        records = sum(each.record_count for each in directory)
        payloads: list[Buffer] = [payload for _, _, payload in batches]
        return Frame(FrameKind.DATA, 1, self.index, 1, 100 + self.index, directory, payloads, records)

    def transactional(self, number: int, producer_id: int, ended: ControlKind | None = None) -> Frame:
        """A frame with one record of a producer's transaction, or with the marker that ends it."""
        if ended is None:
            builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, transactional=True)
            builder.append(timestamp_ms=5, key=None, value=b"x")
            return self._frame([(number, 1, builder.build())], ENTRY_TRANSACTIONAL)
        marker = build(ended, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=5)
        return self._frame([(number, 1, marker)], ENTRY_TRANSACTIONAL | ENTRY_CONTROL)

    def apply(self, frame: Frame) -> list[int]:
        """The frame is committed; the numbers of the partitions that advanced."""
        advanced: dict[PartitionLog, None] = {}
        self.state.apply_committed(frame, advanced)
        return [partition.local_id for partition in advanced]

    def both(self, frame: Frame) -> list[int]:
        self.state.replay_appended(frame)
        return self.apply(frame)

    def checkpoint(self) -> Sections:
        sections = self.state.snapshot_appended(9)
        self.state.add_committed(sections, 9)
        return sections


def opened() -> Group:
    """Partition 1 of a topic with a machine, partition 2 of one without."""
    group = Group()
    group.both(group.commands(open_command(1, TOPIC, 0, 0), open_command(2, OTHER_TOPIC, 0, 0)))
    group.tail.seen.clear()
    return group


def test_an_append_moves_next_offsets_and_a_commit_high_watermarks() -> None:
    group = opened()
    frame = group.frame((1, 3), (2, 5), (1, 2))
    group.state.replay_appended(frame)
    one, two = group.partitions[1], group.partitions[2]
    assert [(p.next_offset, p.high_watermark) for p in (one, two)] == [(5, 0), (5, 0)]
    assert (one.leader_epochs, group.committed.seen) == ([(4, 0)], [])
    assert group.tail.seen == [[1, 0, 102], [2, 0, 102], [1, 3, 102]]
    assert group.apply(frame) == [1, 2]
    assert [(p.next_offset, p.high_watermark) for p in (one, two)] == [(5, 5), (5, 5)]
    assert group.committed.seen == [[1, 0, 102], [1, 3, 102]]  # 2 has no machine


@each_case("in_one_buffer", [False, True])
def test_a_machine_that_takes_runs_sees_the_same_batches(in_one_buffer: bool) -> None:
    for beside in ({}, {"other": Tally()}):
        group, by_run = opened(), RunTally()
        group.state = StateMachines({TOPIC: ("committed", group.committed)}, {"runs": by_run, **beside})
        group.state.restore(opened().checkpoint())
        expected: list[list[int]] = []
        for flags in (0, ENTRY_TRANSACTIONAL):
            batches = []
            bases = [group.offsets.get(1, 0), group.offsets.get(2, 0)]
            for number in (1, 1, 2, 1, 2, 2, 2):
                batches.append((number, 3, bases[number - 1].to_bytes(8, "big")))
                expected.append([number, bases[number - 1], 101 + group.index])
                bases[number - 1] += 3
            frame = group._frame(batches, flags)
            if in_one_buffer:
                entries = frame.entries
                frame = Frame(frame.kind, 1, frame.index, 1, frame.time_ms, [], [], 21)
                frame.pack(entries, memoryview(b"".join([payload for _, _, payload in batches])))
            group.state.replay_appended(frame)
            if not flags:
                group.apply(frame)
        assert by_run.seen == expected
        assert group.committed.seen == [each for each in expected[:7] if each[0] == 1]
        assert [group.partitions[each].high_watermark for each in (1, 2)] == [9, 12]


def test_a_batch_that_leaves_a_gap_is_corruption() -> None:
    group = opened()
    group.frame((1, 3))
    with pytest.raises(CorruptLog, match="entry 3: partition 1 continues at 3, expected 0"):
        group.state.replay_appended(group.frame((1, 1)))


def test_raw_entries_are_no_batches_of_a_partition() -> None:
    group = opened()
    assert group.both(group.frame((1, 1), flags=ENTRY_RAW)) == []
    assert (group.partitions[1].next_offset, group.partitions[1].high_watermark) == (0, 0)
    assert (group.tail.seen, group.committed.seen) == ([], [])


def test_notes_reach_tail_machines_after_their_batches() -> None:
    group = opened()
    frame = group.frame((1, 2))
    frame.directory.append(DirectoryEntry(NOTES_PARTITION, 0, 0, 4, 0, 0, -1, ENTRY_RAW | ENTRY_NOTES))
    frame.payloads.append(b"note")
    assert group.both(frame) == [1]
    assert group.tail.seen == [[1, 0, 102], [NOTES_PARTITION, 0, 102]]
    assert group.committed.seen == [[1, 0, 102]]
    assert NOTES_PARTITION not in group.partitions and group.partitions[1].next_offset == 2


def test_an_irrelevant_flag_changes_nothing() -> None:
    group = opened()
    assert group.both(group.frame((1, 1), flags=8)) == [1]
    assert group.partitions[1].transactions is None


def test_batches_of_a_closed_partition_are_dead() -> None:
    group = opened()
    group.both(group.commands(close_command(1)))
    group.tail.seen.clear()
    assert group.both(group.frame((1, 3))) == []
    assert (group.tail.seen, group.committed.seen) == ([], [])


def test_batches_may_follow_an_opening_that_is_not_committed_yet() -> None:
    group = Group()
    opening = group.commands(open_command(1, TOPIC, 0, 0))
    group.state.replay_appended(opening)
    group.state.replay_appended(group.frame((1, 3)))
    group.state.replay_appended(group.frame((1, 2)))
    assert list(group.partitions) == [0]
    assert json.loads(group.state.snapshot_appended(9)[OFFSETS_SECTION]) == [
        [0, 1, [[4, 0]]],
        [1, 5, [[4, 0]]],
    ]
    group.apply(opening)
    assert (group.partitions[1].next_offset, group.partitions[1].leader_epochs) == (5, [(4, 0)])
    assert group.partitions[1].machine is group.committed
    assert len(json.loads(group.state.snapshot_appended(9)[OFFSETS_SECTION])) == 2  # once, not twice


def test_opened_and_closed_in_one_batch_leaves_nothing() -> None:
    group = Group()
    group.both(group.commands(open_command(1, TOPIC, 0, 0), close_command(1)))
    assert (list(group.partitions), group.state.control.next_local_id) == ([0], 2)


def test_a_batch_without_a_machine_is_committed_to_nobody() -> None:
    group = opened()
    entry = DirectoryEntry(2, 0, 1, 0, 0, 4, 5)
    group.state.apply_batch(group.partitions[2], entry, b"", 5)
    assert group.committed.seen == []


def test_a_checkpoint_brings_both_back() -> None:
    group = opened()
    group.both(group.frame((1, 3), (2, 5)))
    group.both(group.commands(log_start_command(2, 4)))
    sections = group.checkpoint()
    assert sorted(sections) == sorted(
        [CONTROL_SECTION, OFFSETS_SECTION, TRANSACTIONS_SECTION, "committed", "tail"]
    )
    other = Group()
    other.state.restore(sections)
    assert other.checkpoint() == sections
    assert [(p.next_offset, p.high_watermark) for p in other.partitions.values()] == [(3, 3), (3, 3), (5, 5)]
    assert other.partitions[2].log_start_offset == 4
    assert (other.committed.seen, other.tail.seen) == (group.committed.seen, group.tail.seen)
    machines = [partition.machine for partition in other.partitions.values()]
    assert machines == [other.state.control, other.committed, None]


def test_a_cut_is_as_of_its_frame_even_where_the_commit_comes_later() -> None:
    """The offsets are taken when the frame closes, the machines' state when that frame is committed."""
    group = opened()
    frame = group.frame((1, 3))
    group.state.replay_appended(frame)
    sections = group.state.snapshot_appended(9)
    group.state.replay_appended(group.frame((1, 7)))
    group.apply(frame)
    group.state.add_committed(sections, 9)
    other = Group()
    other.state.restore(sections)
    assert (other.partitions[1].next_offset, other.partitions[1].high_watermark) == (3, 3)
    assert other.committed.seen == [[1, 0, 102]] and other.tail.seen == [[1, 0, 102]]


def test_a_truncation_takes_back_what_was_only_appended() -> None:
    group = opened()
    kept = group.frame((1, 3))
    group.both(kept)
    sections = group.checkpoint()
    held = group.partitions[1]
    group.state.replay_appended(group.frame((1, 7), (9, 4)))
    group.state.restore_tail(sections)
    assert group.partitions[1] is held
    assert (held.next_offset, held.high_watermark, held.leader_epochs) == (3, 3, [(4, 0)])
    assert (group.committed.seen, group.tail.seen) == ([[1, 0, 102]], [[1, 0, 102]])
    group.offsets[1] = 3
    group.state.replay_appended(group.frame((1, 1)))
    assert held.next_offset == 4
    # What partition 9 was to be is forgotten: it begins at 0 again.
    del group.offsets[9]
    group.state.replay_appended(group.frame((9, 2)))
    assert json.loads(group.state.snapshot_appended(9)[OFFSETS_SECTION])[-1] == [9, 2, [[4, 0]]]


def test_a_truncation_below_every_checkpoint_leaves_what_is_committed() -> None:
    group = opened()
    group.both(group.frame((1, 3)))
    group.state.restore_tail({})
    assert [(p.next_offset, p.high_watermark) for p in group.partitions.values()] == [(0, 2), (0, 3), (0, 0)]
    assert (group.tail.seen, group.committed.seen) == ([], [[1, 0, 102]])


def stable(group: Group) -> list[int]:
    return [group.partitions[number].last_stable_offset for number in (1, 2)]


def test_the_last_stable_offset_follows_commits_not_appends() -> None:
    group = opened()
    group.both(group.frame((1, 3), (2, 5)))
    begun = group.transactional(1, 7)
    group.both(begun)
    group.both(group.frame((1, 2)))
    assert stable(group) == [3, 5] and group.partitions[1].high_watermark == 6
    ended = group.transactional(1, 7, ControlKind.ABORT)
    group.state.replay_appended(ended)
    assert stable(group) == [3, 5] and group.partitions[1].aborted_between(0, 99) == []
    group.apply(ended)
    assert stable(group) == [7, 5]
    assert group.partitions[1].aborted_between(0, 99) == [AbortedTransaction(7, 3, 6, 7)]


def test_a_checkpoint_has_the_transactions_of_its_frame() -> None:
    group = opened()
    for frame in (
        group.transactional(1, 7),
        group.transactional(1, 7, ControlKind.ABORT),
        group.transactional(1, 8),
    ):
        group.both(frame)
    sections = group.checkpoint()
    ended = group.transactional(1, 8, ControlKind.COMMIT)
    group.both(ended)
    assert stable(group) == [4, 0]
    group.state.restore_tail(sections)
    assert stable(group) == [4, 0]  # what is committed is not taken back
    other = Group()
    other.state.restore(sections)
    assert stable(other) == [2, 0]
    assert other.partitions[1].aborted_between(0, 9) == group.partitions[1].aborted_between(0, 9) != []
    assert other.checkpoint() == sections
    other.both(ended)
    assert stable(other) == [4, 0]
    other.state.restore({})
    assert other.partitions[0].transactions is None
    del sections[TRANSACTIONS_SECTION]  # as a checkpoint from before there were any
    other.state.restore(sections)
    assert stable(other) == [3, 0]
