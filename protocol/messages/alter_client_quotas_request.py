"""The request of AlterClientQuotas (49): `EntryData` is another thing in the response."""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, boolean, float64, message, string, struct


@struct()
class EntityData(Struct):
    """One part of an entity's name; null is the default for its type."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@struct()
class OpData(Struct):
    """One quota to set or to remove."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@struct()
class EntryData(Struct):
    """The changes to one entity."""

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@message(api_key=49, versions="0-1", flexible="1+", kind="request")
class AlterClientQuotasRequest(Struct):
    """Entities to change, or only to check."""

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()
