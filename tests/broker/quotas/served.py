"""A broker whose quotas run on a clock that a test moves, and requests about quotas."""

from __future__ import annotations

from typing import Any

from lockstep.broker.server import Broker
from lockstep.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from lockstep.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from tests.broker.wire import Client

ADMIN = "admin"
"""The client id of requests that no quota is set for."""


def stop_clock(broker: Broker) -> list[int]:
    """The quotas' milliseconds, which stand until a test changes them."""
    now_ms = [1_000_000]
    broker.assembly.quotas.clock_ms = lambda: now_ms[0]
    broker.assembly.connections.throttles.clock = lambda: 0.0
    return now_ms


def alteration(entity: dict[str, str | None], **quotas: float | None) -> AlterClientQuotasRequest:
    """A request that sets quotas of one entity; None removes one."""
    return AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=each, entity_name=name) for each, name in entity.items()],
                ops=[
                    OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()
                ],
            )
        ]
    )


async def alter(port: int, entity: dict[str, str | None], **quotas: float | None) -> None:
    """Set quotas through a connection of its own."""
    client = await Client.connect(port)
    (result,) = (await client.call(alteration(entity, **quotas), 1, ADMIN)).entries
    assert result.error_code == 0, result.error_message
    await client.close()


async def describe(client: Client) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    """All quotas, by entity."""
    response: Any = await client.call(DescribeClientQuotasRequest(), 1, ADMIN)
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in response.entries
    }
