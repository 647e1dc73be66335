"""The topic of the claims on brokers: made where it is not there, and kept short.

Locks and compaction do not go together (docs/locks.md), so nothing is deleted by age, and who holds a claim
deletes what newer ones have superseded. The last claim of a log stays: its term must not be used again.
"""

from __future__ import annotations

import logging
from typing import Final

from lockstep.kafka_client.client import EARLIEST
from lockstep.kafka_client.connection import ClientError
from lockstep.kafka_client.security import Properties
from lockstep.player_host.claims import PARTITION
from lockstep.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from lockstep.transactions.remote import RemoteLog

log = logging.getLogger("lockstep.player")

CONFIGS: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
DELETE_TIMEOUT_MS: Final = 10_000


class ClaimsTopic(RemoteLog):
    """See `lockstep.player_host.claims.ClaimsLog`."""

    def __init__(
        self, bootstrap: str, topic: str, client_id: str, properties: Properties | None = None
    ) -> None:
        super().__init__(bootstrap, topic, client_id, create=1, configs=CONFIGS, properties=properties)

    async def first_position(self) -> int:
        """Same as `ClaimsLog.first_position`. Raises ClientError."""
        return await self._followed.offset(PARTITION, EARLIEST)

    def problem(self) -> str:
        """Same as `ClaimsLog.problem`."""
        reader = self._readers.get(PARTITION)
        return "" if reader is None else reader.problem()

    async def trim(self, position: int) -> None:
        """Same as `ClaimsLog.trim`."""
        below = DeleteRecordsPartition(partition_index=PARTITION, offset=position)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=self._name, partitions=[below])], timeout_ms=DELETE_TIMEOUT_MS
        )
        try:
            connection = await self._connect_to_leader(PARTITION)
            response = await connection.call(request, DeleteRecordsResponse)
        except ClientError as error:
            log.info("old claims are not deleted now: %s", error)
            return
        for topic in response.topics:
            for each in topic.partitions:
                if each.error_code:
                    log.info("old claims are not deleted now: error %d", each.error_code)
