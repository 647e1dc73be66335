"""Producer ids that no other producer of the cluster ever had.

Taken in blocks from group 0, so that an id costs no write of its own; a restart drops the rest of its block.
Source: KIP-730 (blocks of 1,000).
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

from broker.cluster_image import ClusterImage, producer_ids_command
from storage.group import LogGroup
from storage.partition import PartitionLog

BLOCK: Final = 1000


class ProducerIds:
    """This node's supply of producer ids.

    Args:
        group: group 0.
        partition: its metadata partition.
        image: what that partition replays into.
    """

    def __init__(self, group: LogGroup, partition: PartitionLog, image: ClusterImage) -> None:
        self._group = group
        self._partition = partition
        self._image = image
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def take(self) -> int:
        """An unused id. Raises what `LogGroup.append` raises when a new block cannot be recorded."""
        async with self._refill:
            if self._next == self._end:
                first = self._image.next_producer_id
                command = json.dumps(producer_ids_command(first + BLOCK)).encode()
                await self._group.append_values(self._partition, [command])
                self._next, self._end = first, first + BLOCK
            self._next += 1
            return self._next - 1
