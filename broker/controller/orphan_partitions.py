"""Closes orphan partitions: those that log groups have open although no topic has them.

They are left by a controller that was deposed while it opened partitions: its command was late, and its
successor had finished the topic, and deleted it, meanwhile. Invariants: a partition is closed only if it
belongs to no topic of a controller that had its lease after the log group had reported the partition, so that
no later controller can have created it; no topic grows while partitions of it are closed here. A topic whose
id is fixed is left alone: it may be made again under the same id. Does not: do so on a single node
(`broker/controller/topics.py` does at its start).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from lockstep.broker.controller.partition_commands import PartitionCommands, is_placed
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, MetadataCache
from lockstep.protocol.plural import pluralize
from lockstep.storage.types import NotLeader, StorageError

log = logging.getLogger("lockstep.topics")

FIRST_SECONDS: Final = 15.0
"""After a controller began: commands of its predecessor that wait for a leader have ended by then."""
EVERY_SECONDS: Final = 60.0


class OrphanPartitions:
    """See the module. Args: growing: the tasks that add partitions to a topic, by its id."""

    def __init__(
        self, cluster: MetadataCache, commands: PartitionCommands, growing: dict[bytes, asyncio.Task[None]]
    ) -> None:
        self._cluster = cluster
        self._commands = commands
        self._growing = growing

    async def run(self) -> None:
        """Searches at an interval, until cancelled."""
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            for group_id in range(1, self._cluster.data_groups + 1):
                try:
                    await self._close_in(group_id)
                except StorageError as error:
                    log.debug("log group %d: partitions of no topic have to wait: %s", group_id, error)
                except Exception:
                    log.exception("log group %d: partitions of no topic could not be looked for", group_id)
            await asyncio.sleep(EVERY_SECONDS)

    async def _close_in(self, group_id: int) -> None:
        """Raises StorageError."""
        for topic_id, indexes in (await self._commands.find_orphans(group_id)).items():
            if not self._cluster.groups[METADATA_GROUP].has_lease:
                raise NotLeader("another controller may know of them")
            image = self._cluster.image
            dead = [index for index in indexes if not is_placed(image, topic_id, index, group_id)]
            if dead and topic_id not in self._growing:
                log.warning(
                    "log group %d: closing %s of no topic", group_id, pluralize(len(dead), "partition")
                )
                task = asyncio.ensure_future(self._commands.end(group_id, topic_id, dead))
                self._growing[topic_id] = task
                try:
                    await task
                finally:
                    del self._growing[topic_id]
