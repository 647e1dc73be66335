"""The committed state of the groups of one data log group: generations, consumer groups, offsets.

Owns: `GroupsState`, a commit machine: it changes in `replay` alone, live and at recovery alike. A snapshot is
taken on the loop, so it is made of columns: 100,000 offsets take some 50 ms. Invariants:
`restore(snapshot())` gives an equal state; an unknown record changes nothing and is passed
over, as Kafka does: another version may have written it. What a transaction commits is `pending` until its
marker comes. Does not: know which group belongs to which partition, time, or who is a member now
(`group_coordinator.py` does).
"""

from __future__ import annotations

import json
import logging
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import chain
from operator import itemgetter
from typing import Final

from lockstep.broker.groups.consumer.consumer_group_records import KINDS
from lockstep.broker.groups.consumer.consumer_groups_state import ConsumerGroupsState
from lockstep.broker.groups.group_records import (
    GROUP_METADATA,
    OFFSET_KINDS,
    CommittedOffset,
    GroupMetadata,
    UnknownGroupRecord,
    committed_offset,
    group_key,
    group_metadata,
    kind_of,
    offset_key,
    plain_commit,
)
from lockstep.broker.groups.transactional_offsets import (
    OffsetTransaction,
    Pending,
    PendingOffsets,
    TopicPartition,
)
from lockstep.protocol.primitives import MalformedMessage
from lockstep.protocol.records import control
from lockstep.protocol.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, MalformedBatch, read_header
from lockstep.protocol.records.record import key_values
from lockstep.storage.types import Buffer, DirectoryEntry, NewerFormat

log = logging.getLogger("lockstep.groups")

SECTION: Final = "groups"
"""Its name in a checkpoint."""
STATE_VERSION: Final = 3
PENDING_STATE_VERSION: Final = 2
"""Where there is no consumer group."""
PLAIN_STATE_VERSION: Final = 1
"""Where nothing is pending: what a broker that knows no transactions reads, too."""
WARNINGS: Final = 10
"""So many warnings are logged about unknown records; another tool may have written a million."""
_PREFIX: Final = struct.Struct(">HI")
_ATTRIBUTES_AT: Final = 22
"""The low byte of a batch's attributes."""

Offsets = dict[TopicPartition, CommittedOffset]
_TOPIC: Final = itemgetter(0)
_INDEX: Final = itemgetter(1)
_METADATA: Final = itemgetter(CommittedOffset._fields.index("metadata"))
_TOPIC_ID: Final = itemgetter(CommittedOffset._fields.index("topic_id"))
_COLUMNS: Final = [
    (code, itemgetter(CommittedOffset._fields.index(name)))
    for code, name in (
        ("q", "offset"),
        ("i", "leader_epoch"),
        ("q", "commit_time_ms"),
        ("q", "expire_time_ms"),
    )
]
_NOTHING: Final[Mapping[TopicPartition, CommittedOffset]] = {}


class GroupsState:
    """Committed generations and offsets, by group. A `StateMachine`."""

    __slots__ = ("_groups", "_offsets", "_pending", "_topics", "_values", "_warned", "consumer_groups")

    def __init__(self) -> None:
        self._groups: dict[str, GroupMetadata] = {}
        self._values: dict[str, bytes] = {}
        """The records `_groups` was read from, for snapshots."""
        self._offsets: dict[str, Offsets] = {}
        self._pending = PendingOffsets()
        self.consumer_groups = ConsumerGroupsState()
        self._topics: dict[str, int] = {}
        """How many offsets each topic has, over all groups; what is pending counts, too."""
        self._warned = 0

    # --- what is committed --------------------------------------------------------------------------------

    def group(self, group_id: str) -> GroupMetadata | None:
        """A group's newest generation; None for one that only commits offsets, or that there is not."""
        return self._groups.get(group_id)

    def offsets(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """A group's offsets by (topic, partition); not to be changed."""
        return self._offsets.get(group_id, _NOTHING)

    def pending(self, group_id: str) -> Set[TopicPartition]:
        """The partitions of a group with an offset that an open transaction has committed."""
        return self._pending.of(group_id)

    def topic_partitions(self, group_id: str) -> list[TopicPartition]:
        """Returns the partitions with a committed or pending offset of a group, each once."""
        offsets = self.offsets(group_id)
        return [*offsets, *sorted(each for each in self.pending(group_id) if each not in offsets)]

    def group_ids(self) -> Iterable[str]:
        """Every id with a generation, of a consumer group, or with offsets, each once."""
        return dict.fromkeys(
            chain(self._groups, self.consumer_groups.ids(), self._offsets, self._pending.group_ids())
        )

    def topics(self) -> Mapping[str, int]:
        """Returns the number of committed or pending offsets of each topic that has any."""
        return self._topics

    def __contains__(self, group_id: object) -> bool:
        is_committed = group_id in self._groups or group_id in self._offsets
        return is_committed or group_id in self._pending or group_id in self.consumer_groups

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupsState) and (
            (self._groups, self._offsets, self._pending, self._topics, self.consumer_groups)
            == (other._groups, other._offsets, other._pending, other._topics, other.consumer_groups)
        )

    __hash__ = None  # type: ignore[assignment]

    # --- replay -------------------------------------------------------------------------------------------

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        """Apply one committed batch; see StateMachine."""
        flags = payload[_ATTRIBUTES_AT]
        if not flags:
            plain = plain_commit(bytes(payload))
            if plain is not None:
                group_id, topic, index, committed = plain
                self._put(group_id, (topic, index), committed)
                return
        try:
            if flags & CONTROL_FLAG:
                self._end(entry, payload)
                return
            if flags & TRANSACTIONAL_FLAG:
                transaction = entry.partition, read_header(payload).producer_id
                for at, (key, value) in enumerate(key_values(payload), entry.base_offset):
                    self._apply(key, value, (transaction, at))
                return
            for key, value in key_values(payload):
                self._apply(key, value)
        except MalformedBatch as error:
            self._warn("a batch of records about groups cannot be read: %s", error)

    def _apply(
        self, key: bytes | None, value: bytes | None, within: tuple[OffsetTransaction, int] | None = None
    ) -> None:
        """One record; `within`: of this transaction, about at this offset (a batch may have lost some)."""
        try:
            kind = kind_of(key)
            assert key is not None
            if kind in OFFSET_KINDS:
                read = offset_key(key)
                topic_partition = read.topic, read.partition
                if value is None:
                    self._remove(read.group, topic_partition)
                elif within is None:
                    self._put(read.group, topic_partition, committed_offset(value))
                else:
                    transaction, at = within
                    self._await(
                        transaction, read.group, topic_partition, Pending(at, committed_offset(value))
                    )
            elif kind == GROUP_METADATA:
                self._apply_group(key, value)
            elif kind in KINDS:
                self.consumer_groups.apply(kind, key, value)
            else:
                raise UnknownGroupRecord(f"a key of kind {kind}")
        except (MalformedMessage, UnknownGroupRecord) as error:
            self._warn("a record about groups is passed over: %s", error)

    def _put(
        self,
        group_id: str,
        topic_partition: TopicPartition,
        committed: CommittedOffset,
        at: int | None = None,
    ) -> None:
        """An offset holds from now on; `at`: since there in the partition, not since its end."""
        if self._pending:
            self._pending.supersede(group_id, topic_partition, at)
        offsets = self._offsets.get(group_id)
        if offsets is None:
            offsets = self._offsets[group_id] = {}
        if topic_partition not in offsets:
            topic_partition = sys.intern(topic_partition[0]), topic_partition[1]
            self._count(topic_partition[0], 1)
        offsets[topic_partition] = committed

    def _remove(self, group_id: str, topic_partition: TopicPartition) -> None:
        if self._pending:
            self._count(topic_partition[0], -self._pending.drop(group_id, topic_partition))
        offsets = self._offsets.get(group_id)
        if offsets is None or topic_partition not in offsets:
            return
        del offsets[topic_partition]
        if not offsets:
            del self._offsets[group_id]
        self._count(topic_partition[0], -1)

    def _count(self, topic: str, more: int) -> None:
        count = self._topics.get(topic, 0) + more
        if count:
            self._topics[topic] = count
        else:
            self._topics.pop(topic, None)

    def _await(
        self, transaction: OffsetTransaction, group_id: str, topic_partition: TopicPartition, pending: Pending
    ) -> None:
        topic_partition = sys.intern(topic_partition[0]), topic_partition[1]
        if self._pending.add(transaction, group_id, topic_partition, pending):
            self._count(topic_partition[0], 1)

    def _end(self, entry: DirectoryEntry, payload: Buffer) -> None:
        """The end of a transaction: what it had pending holds from now on, or never did."""
        if not self._pending:
            return
        kind = control.parse(payload).kind
        if kind is control.ControlKind.OTHER:
            return
        ended = self._pending.end((entry.partition, read_header(payload).producer_id))
        for group_id, topic_partition, pending in ended:
            self._count(topic_partition[0], -1)
            if kind is control.ControlKind.COMMIT and pending.committed is not None:
                self._put(group_id, topic_partition, pending.committed, pending.at)

    def _apply_group(self, key: bytes, value: bytes | None) -> None:
        group_id = group_key(key)
        if value is None:
            self._groups.pop(group_id, None)
            self._values.pop(group_id, None)
        else:
            self._groups[group_id] = group_metadata(value)
            self._values[group_id] = value

    def _warn(self, text: str, error: Exception) -> None:
        self._warned += 1
        if self._warned <= WARNINGS:
            log.warning(text, error)

    # --- snapshot -----------------------------------------------------------------------------------------

    def snapshot(self, time_ms: int) -> bytes:
        """A JSON head with the names, the generations' records, the offsets' numbers column by column, the
        records of consumer groups."""
        topic_partitions = list(chain.from_iterable(self._offsets.values()))
        values = list(chain.from_iterable(map(dict.values, self._offsets.values())))
        topics = zip(map(_TOPIC, topic_partitions), map(_TOPIC_ID, values), strict=True)
        numbers: dict[tuple[str, bytes], int] = {}
        topic_numbers = [numbers.setdefault(topic, len(numbers)) for topic in topics]
        metadata = list(map(_METADATA, values))
        head: dict[str, object] = {
            "groups": list(self._values),
            "sizes": list(map(len, self._values.values())),
            "committers": list(self._offsets),
            "counts": list(map(len, self._offsets.values())),
            "topics": [[name, topic_id.hex()] for name, topic_id in numbers],
            "metadata": metadata if any(metadata) else [],
        }
        version = PLAIN_STATE_VERSION
        if self._pending:
            version = PENDING_STATE_VERSION
            head["pending"] = list(self._pending.rows())
        rows = list(self.consumer_groups.rows())
        if rows:
            version = STATE_VERSION
            head["records"] = [[len(key), len(value)] for key, value in rows]
        written = json.dumps(head, separators=(",", ":")).encode()
        return b"".join(
            (
                _PREFIX.pack(version, len(written)),
                written,
                *self._values.values(),
                struct.pack(f">{len(topic_partitions)}I", *topic_numbers),
                struct.pack(f">{len(topic_partitions)}i", *map(_INDEX, topic_partitions)),
                *(struct.pack(f">{len(values)}{code}", *map(of, values)) for code, of in _COLUMNS),
                *chain.from_iterable(rows),
            )
        )

    def restore(self, data: bytes) -> None:
        """Take over a snapshot; empty bytes are the empty state. Raises NewerFormat."""
        self._groups, self._values, self._offsets, self._topics = {}, {}, {}, {}
        self._pending, self.consumer_groups = PendingOffsets(), ConsumerGroupsState()
        if not data:
            return
        version, size = _PREFIX.unpack_from(data)
        if version > STATE_VERSION:
            raise NewerFormat(f"groups of version {version}, known up to {STATE_VERSION}")
        at = _PREFIX.size + size
        head = json.loads(data[_PREFIX.size : at])
        for group_id, length in zip(head["groups"], head["sizes"], strict=True):
            value = self._values[group_id] = data[at : at + length]
            self._groups[group_id] = group_metadata(value)
            at += length
        count = sum(head["counts"])
        columns = []
        for code in "Iiqiqq":
            columns.append(struct.unpack_from(f">{count}{code}", data, at))
            at += struct.calcsize(f">{count}{code}")
        topic_numbers, indexes, offsets, epochs, times, expirations = columns
        topics = [(sys.intern(name), bytes.fromhex(topic_id)) for name, topic_id in head["topics"]]
        metadata = head["metadata"] or [""] * count
        first = 0
        for group_id, owned in zip(head["committers"], head["counts"], strict=True):
            found = self._offsets[group_id] = {}
            for row in range(first, first + owned):
                name, topic_id = topics[topic_numbers[row]]
                found[name, indexes[row]] = CommittedOffset(
                    offsets[row], epochs[row], metadata[row], times[row], expirations[row], topic_id
                )
                self._topics[name] = self._topics.get(name, 0) + 1
            first += owned
        for name in self._pending.restore(head.get("pending", ())):
            self._count(name, 1)
        self.consumer_groups.restore(_rows(data, at, head.get("records", ())))


def _rows(data: bytes, at: int, sizes: Iterable[tuple[int, int]]) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a snapshot's records."""
    for key_size, value_size in sizes:
        value_at = at + key_size
        yield data[at:value_at], data[value_at : value_at + value_size]
        at = value_at + value_size
