"""Producer ids that no producer of the cluster has had before.

They come in blocks from group 0, so that an id costs no write of its own; a restart drops the rest of its
block. The controller allocates the blocks, for itself and for the other nodes. Source: KIP-730 (blocks of
1,000).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.metadata.metadata_image import Command, MetadataImage, producer_ids_command
from lockstep.broker.peers.peer_rpc import NotLeaderHere, PeerRpc, RequestKind
from lockstep.protocol.staged_messages import is_staged
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.types import StorageError

BLOCK_SIZE: Final = 1000
BLOCK_TIMEOUT_SECONDS: Final = 5.0
"""The timeout of a request for a block."""


class ProducerIds:
    """The producer ids that this node may assign.

    Args:
        record: commits the allocated block, where this node is the controller.
        leads: returns whether this node is the controller.
        image: replays the recorded blocks.
        peer_rpc: sends requests to the controller; None for a node alone.
    """

    def __init__(
        self,
        record: Callable[[Sequence[Command]], Awaitable[None]],
        leads: Callable[[], bool],
        image: MetadataImage,
        peer_rpc: PeerRpc | None = None,
    ) -> None:
        self._record = record
        self._leads = leads
        self._image = image
        self._peer_rpc = peer_rpc
        self._next = 0
        self._end = 0
        self._refill_lock = asyncio.Lock()
        self._allocation_lock = asyncio.Lock()
        if peer_rpc is not None:
            peer_rpc.handlers[RequestKind.PRODUCER_IDS] = self._on_block_request

    async def take(self) -> int:
        """Returns an unused id. Raises StorageError when a new block cannot be recorded."""
        async with self._refill_lock:
            if self._next == self._end:
                self._next = await self._block()
                self._end = self._next + BLOCK_SIZE
            self._next += 1
            return self._next - 1

    async def _block(self) -> int:
        if self._peer_rpc is None:
            return await self._allocate_block()
        try:
            response = await self._peer_rpc.request_from_leader(
                METADATA_GROUP, RequestKind.PRODUCER_IDS, b"", BLOCK_TIMEOUT_SECONDS
            )
        except PeerError as error:
            raise StorageError(str(error)) from None
        return int.from_bytes(response, "big")

    async def _allocate_block(self) -> int:
        async with self._allocation_lock:  # two requests at once would get the same block
            first = self._image.next_producer_id
            if is_staged(
                first + BLOCK_SIZE - 1
            ):  # such an id would be a staged one, whose transactions no coordinator ends
                raise StorageError("there are no producer ids left")
            await self._record([producer_ids_command(first + BLOCK_SIZE)])
            return first

    async def _on_block_request(self, node_id: int, body: bytes) -> bytes:
        if not self._leads():
            raise NotLeaderHere("not the controller")
        return (await self._allocate_block()).to_bytes(8, "big")
