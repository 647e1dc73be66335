"""Partition 0 of a group: which partitions are open, and where their logs start.

Its records are small JSON objects in ordinary record batches; they are rare. State changes only in `replay`,
for live entries once they are committed. Next offsets and leader epochs follow the appended log instead, so
they have a snapshot of their own, taken when a frame closes. Nothing is decided here: the leader does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from lockstep.protocol.records.record import BatchBuilder, iter_records
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import (
    CONTROL_PARTITION,
    LAST_OFFSET,
    Buffer,
    CorruptLog,
    DirectoryEntry,
    NewerFormat,
)

NO_TOPIC = bytes(16)
STATE_VERSION = 1

Command = dict[str, object]


def open_command(local_id: int, topic_id: bytes, index: int, epoch_base: int) -> Command:
    """Opens a partition in this group."""
    return {
        "do": "open",
        "partition": local_id,
        "topic_id": topic_id.hex(),
        "index": index,
        "epoch_base": epoch_base,
    }


def close_command(local_id: int) -> Command:
    """Closes a partition; its records are deleted."""
    return {"do": "close", "partition": local_id}


def log_start_command(local_id: int, offset: int) -> Command:
    """Deletes the records below `offset`."""
    return {"do": "log_start", "partition": local_id, "offset": offset}


def encode_values(values: Iterable[bytes], time_ms: int) -> bytes:
    """One uncompressed record batch over `values`, all written at `time_ms`."""
    builder = BatchBuilder()
    for value in values:
        builder.append(timestamp_ms=time_ms, key=None, value=value)
    return builder.build()


def encode_command(command: Command) -> bytes:
    """One command as a record's value."""
    return json.dumps(command, separators=(",", ":")).encode()


class ControlPartition:
    """The open partitions of one group, by local id. A `StateMachine`."""

    __slots__ = ("just_closed", "next_local_id", "on_close", "on_open", "partitions")

    def __init__(self) -> None:
        self.on_open: Callable[[PartitionLog], None] = _ignore
        """Called with a partition that is open now; again with all of them after a switch to another
        state."""
        self.on_close: Callable[[PartitionLog], None] = _ignore
        self.just_closed: list[int] = []
        """The local ids of closed partitions whose rows the log still has."""
        self.partitions: dict[int, PartitionLog] = {}
        self.next_local_id = CONTROL_PARTITION + 1
        self.restore(b"")

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        """Apply one committed batch of commands. Raises CorruptLog for a command it does not know."""
        for record in iter_records(payload):
            self._apply(json.loads(bytes(record.value or b"{}")))

    def _apply(self, command: dict[str, object]) -> None:
        match command:
            case {
                "do": "open",
                "partition": int(local_id),
                "topic_id": str(topic_id),
                "index": int(index),
                "epoch_base": int(epoch_base),
            }:
                opened = PartitionLog(local_id, bytes.fromhex(topic_id), index, epoch_base)
                self.partitions[local_id] = opened
                self.next_local_id = max(self.next_local_id, local_id + 1)
                self.on_open(opened)
            case {"do": "close", "partition": int(local_id)}:
                closed = self.partitions.pop(local_id, None)
                if closed is not None:
                    self.just_closed.append(local_id)
                    self.on_close(closed)
            case {"do": "log_start", "partition": int(local_id), "offset": int(offset)}:
                partition = self.partitions.get(local_id)
                if partition is None:
                    return  # closed meanwhile
                partition.log_start_offset = max(partition.log_start_offset, offset)
            case _:
                raise CorruptLog(f"unknown control command: {command!r}")

    def log_start(self, local_id: int) -> int:
        """The first offset of a partition that is not deleted; beyond every offset where it is closed.

        The control partition needs none of its own records where segments are freed: below a checkpoint.
        """
        partition = self.partitions.get(local_id)
        if partition is None or local_id == CONTROL_PARTITION:
            return LAST_OFFSET
        return partition.log_start_offset

    def is_closed(self, local_id: int) -> bool:
        """Returns whether a partition was open once and is not any more."""
        return local_id < self.next_local_id and local_id not in self.partitions

    def snapshot(self, time_ms: int) -> bytes:
        """The open partitions and their log starts, as JSON.

        Written by hand, as the offsets are: for 100,000 partitions that takes 0.1 s, json.dumps 0.2 s.
        """
        partitions = self.partitions.values()
        topic_ids = {topic_id: topic_id.hex() for topic_id in {each.topic_id for each in partitions}}
        rows = ",".join(
            [
                f'[{each.local_id},"{topic_ids[each.topic_id]}",{each.index},{each.epoch_base},'
                f"{each.log_start_offset}]"
                for each in partitions
            ]
        )
        head = f'"version":{STATE_VERSION},"next_number":{self.next_local_id}'
        return f'{{{head},"partitions":[{rows}]}}'.encode()

    def restore(self, data: bytes) -> None:
        """Take over a snapshot; empty bytes leave only the control partition itself. NewerFormat.

        A partition that was open before and still is keeps its object: others hold on to it.
        """
        before, self.partitions = self.partitions, {}
        self.next_local_id = CONTROL_PARTITION + 1
        self._restore_partition(PartitionLog(CONTROL_PARTITION, NO_TOPIC, 0), before)
        if data:
            self._restore(json.loads(data), before)
        for partition in before.values():
            if partition.local_id not in self.partitions:
                self.on_close(partition)
        for partition in self.partitions.values():
            if partition.local_id != CONTROL_PARTITION:
                self.on_open(partition)

    def _restore(self, state: dict[str, Any], before: dict[int, PartitionLog]) -> None:
        if state["version"] > STATE_VERSION:
            raise NewerFormat(f"partitions of version {state['version']}, known up to {STATE_VERSION}")
        self.next_local_id = state["next_number"]
        for local_id, topic_id, index, epoch_base, log_start in state["partitions"]:
            partition = PartitionLog(local_id, bytes.fromhex(topic_id), index, epoch_base)
            self._restore_partition(partition, before).log_start_offset = log_start

    def _restore_partition(self, partition: PartitionLog, before: dict[int, PartitionLog]) -> PartitionLog:
        kept = before.get(partition.local_id, partition)
        kept.next_offset = kept.log_start_offset = 0
        kept.leader_epochs = []
        self.partitions[partition.local_id] = kept
        return kept

    def snapshot_offsets(self, unopened: Iterable[PartitionLog] = ()) -> bytes:
        """Returns each partition's end of the appended log, and its leader epochs, as JSON; partitions with
        appended batches that are not open yet included. Epochs that ended below log starts are forgotten:
        here, where their number costs something, whatever has moved a log start."""
        rows = []
        for partition in (*self.partitions.values(), *unopened):
            if partition.next_offset:
                partition.forget_epochs()
                epochs = ",".join([f"[{epoch},{offset}]" for epoch, offset in partition.leader_epochs])
                rows.append(f"[{partition.local_id},{partition.next_offset},[{epochs}]]")
        return f"[{','.join(rows)}]".encode()

    def restore_offsets(self, data: bytes) -> None:
        """Take over `snapshot_offsets` of the same frame; partitions closed by it are passed over."""
        for local_id, next_offset, epochs in json.loads(data or b"[]"):
            partition = self.partitions.get(local_id)
            if partition is not None:
                partition.next_offset = next_offset
                partition.leader_epochs = [(epoch, offset) for epoch, offset in epochs]


def _ignore(partition: PartitionLog) -> None:
    """The default callback."""
