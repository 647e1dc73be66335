"""The deletion of groups without members, with their offsets (KIP-229).

Owns: `GroupDeletions`, those of one coordinator that are being written. Invariant: an offset whose commit was
allowed before the deletion, and was not visible yet, is deleted, too; one that was allowed after it stays.
Does not: check whether a group may be deleted (`group_coordinator.py` does).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from lockstep.broker.groups.consumer.consumer_group_coordinator import ConsumerGroupCoordinator
from lockstep.broker.groups.group_context import GroupRecordStore
from lockstep.broker.groups.group_records import Record, group_record, offset_record
from lockstep.broker.process.log_text import printable
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.plural import pluralize

log = logging.getLogger("lockstep.groups")


class GroupDeletions:
    """Args: on_written: called with a group's id when its deletion is written, or has failed."""

    __slots__ = ("_consumer", "_on_written", "_pending", "_store")

    def __init__(
        self,
        store: GroupRecordStore,
        consumer: ConsumerGroupCoordinator,
        on_written: Callable[[str], None],
    ) -> None:
        self._store = store
        self._consumer = consumer
        self._on_written = on_written
        self._pending: dict[str, bool] = {}
        """Groups whose deletion is being written -> whether a commit of offsets was allowed since."""

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._pending

    def on_commit(self, group_id: str) -> None:
        """A commit of offsets of the group is allowed."""
        if group_id in self._pending:
            self._pending[group_id] = True

    def clear(self) -> None:
        """The leadership is lost."""
        self._pending = {}

    def delete(self, group_id: str, callback: Callable[[ErrorCode], None]) -> None:
        """Deletes a group and its offsets; `callback` is called once."""
        self._pending.setdefault(group_id, False)
        self._write(group_id, callback)

    def _write(self, group_id: str, callback: Callable[[ErrorCode], None]) -> None:
        count = len(self._store.state.topic_partitions(group_id))

        def on_written(error: ErrorCode) -> None:
            remaining = self._store.state.topic_partitions(group_id)
            if error is ErrorCode.NONE and remaining and not self._pending.get(group_id, True):
                self._write(group_id, callback)  # commits allowed before the deletion, visible only now
                return
            self._pending.pop(group_id, None)
            if error is ErrorCode.NONE:
                log.info("group %s: deleted with %s", printable(group_id), pluralize(count, "offset"))
            self._on_written(group_id)
            callback(error)

        def on_end(_: object, rejection: RequestError | None) -> None:
            on_written(ErrorCode.NONE if rejection is None else rejection.error)

        if self._consumer.has(group_id):
            self._consumer.end(group_id, lambda: self._offset_tombstones(group_id), on_end)
        else:
            records = [*self._offset_tombstones(group_id), group_record(group_id, None)]
            self._store.append(group_id, records, on_written)

    def _offset_tombstones(self, group_id: str) -> list[Record]:
        offsets = self._store.state.topic_partitions(group_id)
        return [offset_record(group_id, *topic_partition, None) for topic_partition in offsets]
