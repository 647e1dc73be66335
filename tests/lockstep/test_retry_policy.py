"""How long is waited between tries, and when somebody else is asked who leads."""

from __future__ import annotations

import asyncio

from lockstep.kafka_client.client import Client
from lockstep.kafka_client.retry_policy import RetryPolicy


class Suspecting(Client):
    """Keeps when it was told to suspect whom it asks."""

    def __init__(self) -> None:
        super().__init__("nobody:1")
        self.suspected: list[float] = []

    def suspect(self, for_s: float = 0.0) -> None:
        self.suspected.append(for_s)


async def test_tries_end_at_their_deadline() -> None:
    loop = asyncio.get_running_loop()
    tries = RetryPolicy(loop.time() + 0.1)
    count = 0
    while await tries.wait_before_retry():
        count += 1
    assert 0 < count < 4 and 0.001 <= tries.remaining_s <= 0.1


async def test_the_metadata_broker_is_suspected_once_attempts_have_failed_for_long() -> None:
    client = Suspecting()
    began = asyncio.get_running_loop().time()
    tries = RetryPolicy(began + 10, client, 0.3)
    while not client.suspected:
        assert await tries.wait_before_retry()
    assert client.suspected == [0.3], "it is for the client to say whether that one is the one it was"
    assert asyncio.get_running_loop().time() - began >= 0.3, "a leader had time to be elected"
    assert await tries.wait_before_retry() and client.suspected == [0.3, 0.3], "and whoever comes next"
