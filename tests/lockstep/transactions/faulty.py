"""Brokers behind a bad network: requests that do not arrive, answers that do not come back."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from lockstep.kafka_client.connection import BrokerConnection, ConnectionFailed
from lockstep.protocol.messages.produce import PartitionProduceResponse
from lockstep.transactions.log import AppendUnknown
from lockstep.transactions.remote import RemoteLog

ARRIVES = "arrives"
ANSWER_LOST = "answer lost"
REQUEST_LOST = "request lost"
STUCK = "stuck"


class FaultyLog(RemoteLog):
    """What becomes of each Produce request is told beforehand; by default it arrives."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, topic, "faulty")
        self.coming: deque[str] = deque()
        self.sent: list[Mapping[int, bytes]] = []
        self.stuck: list[Mapping[int, bytes]] = []
        """Requests that lie on some wire, and may arrive yet."""
        self.gives_up = False
        """Say of the next append at once that nobody knows."""

    async def _produce(
        self, connection: BrokerConnection, batches: Mapping[int, bytes], remaining_s: float
    ) -> dict[int, PartitionProduceResponse]:
        self.sent.append(batches)
        fate = self.coming.popleft() if self.coming else ARRIVES
        if fate == REQUEST_LOST:
            raise ConnectionFailed(fate)
        if fate == STUCK:
            self.stuck.append(batches)
            if self.gives_up:
                self.gives_up = False
                raise AppendUnknown(fate)
            raise ConnectionFailed(fate)
        answers = await super()._produce(connection, batches, remaining_s)
        if fate == ANSWER_LOST:
            raise ConnectionFailed(fate)
        return answers

    async def arrive(self) -> list[int]:
        """What lay on the wire arrives now; the errors it is answered with."""
        stuck, self.stuck = self.stuck, []
        codes = []
        for batches in stuck:
            answers = await super()._produce(await self._connect_to_leader(min(batches)), batches, 5.0)
            codes += [each.error_code for each in answers.values()]
        return codes
