"""Client quotas of a cluster: what `lockstep quotas` needs of their APIs, on top of a `Client`.

Does not: know which client a quota is for. Raises BrokerError throughout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import BrokerError
from lockstep.protocol.messages.alter_client_quotas import AlterClientQuotasResponse
from lockstep.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from lockstep.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

QuotaEntity = Mapping[str, str | None]
"""Name by type: `user`, `client-id` or `ip`; None is the default of the type."""
_EXACT, _DEFAULT = 0, 1


@dataclass(frozen=True)
class ClientQuotas:
    """The quotas of one entity, by key."""

    entity: QuotaEntity
    values: Mapping[str, float]


async def list_quotas(client: Client, entity: QuotaEntity) -> list[ClientQuotas]:
    """The quotas of the entities that have these parts, others beside them too; of all for {}."""
    components = [
        ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for kind, name in entity.items()
    ]
    request = DescribeClientQuotasRequest(components=components, strict=False)
    response = await (await client.any_broker()).call(request, DescribeClientQuotasResponse)
    if response.error_code:
        raise BrokerError(response.error_code, "quotas", response.error_message)
    return [
        ClientQuotas(
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in response.entries or ()
    ]


async def alter_quotas(client: Client, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
    """Sets each key's value, or removes it for None."""
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in changes.items()
        ],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    response = await (await client.any_broker()).call(request, AlterClientQuotasResponse)
    for result in response.entries:
        if result.error_code:
            raise BrokerError(result.error_code, "quotas", result.error_message)
