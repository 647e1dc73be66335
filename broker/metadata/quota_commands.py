"""The commands of group 0 about client quotas: one for each entity and key.

Pure. Owns: their form. A command without a value removes the quota; in a checkpoint there are those with one.
"""

from __future__ import annotations

from typing import Any, Final

from lockstep.broker.metadata.command_kind import kind_of
from lockstep.broker.quotas.quota_entity import ENTITY_TYPES, QuotaEntity, canonical_entity
from lockstep.broker.quotas.quota_table import QuotaTable
from lockstep.storage.types import CorruptLog

QUOTA: Final = "quota"


def quota_command(entity: QuotaEntity, key: str, value: float | None) -> dict[str, object]:
    """A quota is in force; None: not any more."""
    command: dict[str, object] = {"do": QUOTA, "entity": [list(part) for part in entity], "key": key}
    return command if value is None else command | {"value": value}


def apply_quota_command(table: QuotaTable, command: dict[str, Any]) -> None:
    """Applies a command to the stored quotas. Raises CorruptLog."""
    match command:
        case {"entity": list(parts), "key": str(key), "value": int() | float() as value}:
            table.set(_entity(parts), key, float(value))
        case {"entity": list(parts), "key": str(key)}:
            table.remove(_entity(parts), key)
        case _:
            raise CorruptLog(f"unknown metadata command: {kind_of(command)}")


def _entity(parts: list[Any]) -> QuotaEntity:
    names: dict[str, str | None] = {}
    for part in parts:
        match part:
            case [str(entity_type), (str() | None) as name] if entity_type in ENTITY_TYPES:
                names[entity_type] = name
            case _:
                raise CorruptLog(f"not a quota entity in a metadata command: {parts!r}")
    if not names:
        raise CorruptLog("a quota without an entity in a metadata command")
    return canonical_entity(names)
