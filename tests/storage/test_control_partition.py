"""Partition 0 of a group: commands open and close partitions and move log starts; nothing else does."""

from __future__ import annotations

import json

import pytest

from lockstep.storage.control_partition import (
    STATE_VERSION,
    Command,
    ControlPartition,
    close_command,
    encode_command,
    encode_values,
    log_start_command,
    open_command,
)
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import CorruptLog, DirectoryEntry, NewerFormat
from tests.support.cases import each_case

TOPIC = bytes(range(16))
NEVER = (1 << 63) - 1


def replay(control: ControlPartition, *commands: Command) -> None:
    """One batch of these commands is committed."""
    payload = encode_values(map(encode_command, commands), 5)
    entry = DirectoryEntry(0, 0, len(commands), len(payload), 0, 1, 5)
    control.replay(entry, payload, 5)


def opened(*numbers: int) -> ControlPartition:
    control = ControlPartition()
    replay(control, *(open_command(number, TOPIC, number + 10, 3) for number in numbers))
    return control


def test_a_new_group_has_itself_alone() -> None:
    control = ControlPartition()
    assert (list(control.partitions), control.next_local_id) == ([0], 1)


def test_a_command_opens_a_partition() -> None:
    control = opened(1)
    partition = control.partitions[1]
    assert (partition.local_id, partition.topic_id, partition.index, partition.epoch_base) == (
        1,
        TOPIC,
        11,
        3,
    )
    assert (partition.log_start_offset, partition.next_offset, partition.machine) == (0, 0, None)


def test_numbers_are_never_used_again() -> None:
    control = opened(1, 2)
    replay(control, close_command(2))
    assert (list(control.partitions), control.next_local_id) == ([0, 1], 3)
    assert [control.is_closed(number) for number in (0, 1, 2, 3)] == [False, False, True, False]
    assert control.just_closed == [2]
    replay(control, open_command(1, TOPIC, 0, 0))
    assert control.next_local_id == 3


def test_a_batch_holds_many_commands_in_order() -> None:
    control = ControlPartition()
    replay(control, open_command(1, TOPIC, 0, 0), close_command(1), open_command(2, TOPIC, 1, 0))
    assert list(control.partitions) == [0, 2]


def test_a_log_start_only_rises() -> None:
    control = opened(1)
    replay(control, log_start_command(1, 40))
    replay(control, log_start_command(1, 30))
    assert (control.partitions[1].log_start_offset, control.log_start(1)) == (40, 40)


def test_commands_for_closed_partitions_are_ignored() -> None:
    control = opened(1)
    replay(control, log_start_command(9, 40), close_command(9))
    assert list(control.partitions) == [0, 1]


def test_nothing_of_a_closed_partition_is_needed_nor_of_the_group_s_own_entries() -> None:
    control = opened(1)
    assert [control.log_start(number) for number in (0, 1, 2)] == [NEVER, 0, NEVER]


@each_case(
    "command",
    [
        {},
        {"do": "grow", "partition": 1},
        {"do": "close"},
        {"do": "close", "partition": "1"},
        {"do": "log_start", "partition": 1, "offset": None},
        {"do": "open", "partition": 1, "topic_id": 7, "index": 0, "epoch_base": 0},
        {"do": "open", "partition": 1, "topic_id": "00", "index": 0},
    ],
)
def test_a_command_that_is_not_understood_stops_the_replay(command: Command) -> None:
    with pytest.raises(CorruptLog, match="unknown control command"):
        replay(opened(1), command)


def test_a_record_without_a_value_is_no_command() -> None:
    control = ControlPartition()
    with pytest.raises(CorruptLog, match=r"unknown control command: \{\}"):
        control.replay(DirectoryEntry(0, 0, 1, 0, 0, 1, 5), encode_values([b""], 5), 5)


def test_a_snapshot_brings_everything_back() -> None:
    control = opened(1, 2, 3)
    replay(control, log_start_command(2, 40), close_command(3))
    other = ControlPartition()
    other.restore(control.snapshot(7))
    assert other.snapshot(7) == control.snapshot(7)
    assert (list(other.partitions), other.next_local_id) == ([0, 1, 2], 4)
    assert (other.log_start(2), other.partitions[2].index, other.partitions[2].topic_id) == (40, 12, TOPIC)


def test_references_to_a_partition_stay_valid_after_a_restore() -> None:
    control = opened(1, 2)
    snapshot = control.snapshot(7)
    held, own = control.partitions[1], control.partitions[0]
    held.next_offset, held.leader_epochs = 50, [(1, 0)]
    replay(control, close_command(2), log_start_command(1, 40))
    control.restore(snapshot)
    assert control.partitions[1] is held and control.partitions[0] is own
    assert (held.next_offset, held.log_start_offset, held.leader_epochs) == (0, 0, [])
    assert list(control.partitions) == [0, 1, 2]
    control.restore(b"")
    assert (list(control.partitions), control.next_local_id) == ([0], 1)


def test_a_newer_snapshot_is_refused_by_name() -> None:
    newer = json.dumps({"version": STATE_VERSION + 1}).encode()
    with pytest.raises(NewerFormat, match=f"version {STATE_VERSION + 1}, known up to {STATE_VERSION}"):
        ControlPartition().restore(newer)


def test_offsets_follow_the_appended_log_and_have_a_snapshot_of_their_own() -> None:
    control = opened(1, 2, 3)
    for number in (1, 3):
        partition = control.partitions[number]
        partition.next_offset = number * 10
        partition.note_epoch(4, number)
    unopened = PartitionLog(7, b"", -1)
    unopened.next_offset = 5
    saved = control.snapshot_offsets([unopened])
    assert json.loads(saved) == [[1, 10, [[4, 1]]], [3, 30, [[4, 3]]], [7, 5, []]]
    other = opened(1, 2)
    other.restore_offsets(saved)  # 3 and 7 are closed there
    assert (other.partitions[1].next_offset, other.partitions[1].leader_epochs) == (10, [(4, 1)])
    assert other.partitions[2].next_offset == 0 and list(other.partitions) == [0, 1, 2]
    other.restore_offsets(b"")
    assert other.partitions[1].next_offset == 10


def test_a_snapshot_has_no_more_epochs_than_what_is_left_was_written_in() -> None:
    control = opened(1, 2)
    for number in (1, 2):
        partition = control.partitions[number]
        for leader_epoch in range(100):
            partition.note_epoch(leader_epoch, leader_epoch * 10)
        partition.next_offset = partition.high_watermark = 1000
    replay(control, log_start_command(1, 995))
    saved = control.snapshot_offsets()
    one, two = json.loads(saved)
    assert (one, len(two[2])) == ([1, 1000, [[99, 990]]], 100)
    assert control.partitions[1].end_offset_of_epoch(99) == (99, 1000)
    other = opened(1, 2)
    other.restore_offsets(saved)
    assert other.snapshot_offsets() == control.snapshot_offsets() == saved
    assert other.partitions[1].leader_epochs == control.partitions[1].leader_epochs


def test_a_snapshot_is_the_json_that_it_is_read_as() -> None:
    control = opened(1, 2, 300)
    replay(control, log_start_command(2, NEVER))
    control.partitions[1].next_offset, control.partitions[1].leader_epochs = 9, [(1, 0), (4, 7)]
    control.partitions[2].next_offset = NEVER
    partitions = [
        [each.local_id, each.topic_id.hex(), each.index, each.epoch_base, each.log_start_offset]
        for each in control.partitions.values()
    ]
    state = {"version": STATE_VERSION, "next_number": 301, "partitions": partitions}
    assert control.snapshot(7) == json.dumps(state, separators=(",", ":")).encode()
    assert control.snapshot_offsets() == b"[[1,9,[[1,0],[4,7]]],[2,%d,[]]]" % NEVER
    assert (ControlPartition().snapshot_offsets(), json.loads(control.snapshot(7))) == (b"[]", state)
