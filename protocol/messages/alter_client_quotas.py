"""AlterClientQuotas (49): quotas of users, clients and addresses (KIP-546). Versions: 1 flexible."""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, message, string, struct
from lockstep.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest

__all__ = ["AlterClientQuotasRequest", "AlterClientQuotasResponse"]


@struct()
class EntityData(Struct):
    """One part of an entity's name; null is the default for its type."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@struct()
class EntryData(Struct):
    """The result for one entity."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


@message(api_key=49, versions="0-1", flexible="1+", kind="response")
class AlterClientQuotasResponse(Struct):
    """A result for each entity."""

    throttle_time_ms: int = int32()
    entries: list[EntryData] = array(EntryData)
