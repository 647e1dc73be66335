"""DescribeClientQuotas (48): quotas of users, clients and addresses (KIP-546). Versions: 1 flexible."""

from __future__ import annotations

from lockstep.protocol.fields import (
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
)


@struct()
class ComponentData(Struct):
    """One part of the filter: how names of one type of entity must match."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


@message(api_key=48, versions="0-1", flexible="1+", kind="request")
class DescribeClientQuotasRequest(Struct):
    """A filter; strict means: entities of exactly these types."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@struct()
class EntityData(Struct):
    """One part of an entity's name; null is the default for its type."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@struct()
class ValueData(Struct):
    """One quota."""

    key: str = string()
    value: float = float64()


@struct()
class EntryData(Struct):
    """The quotas of one entity."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@message(api_key=48, versions="0-1", flexible="1+", kind="response")
class DescribeClientQuotasResponse(Struct):
    """The quotas that match."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")
