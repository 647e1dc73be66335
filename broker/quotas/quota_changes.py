"""Changes of client quotas, as the controller checks and records them (KIP-546).

Owns: the limit of entities, that an entity is changed as a whole or not at all, and that what is in force
already is not recorded again. Does not: store anything (`broker/metadata/metadata_image.py`), or check who
may change quotas. Source: Kafka's ClientQuotaControlManager; but an entity that a request names twice keeps
its quotas, of which Kafka reports the error and makes the first change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from lockstep.broker.quotas.quota_entity import QuotaEntity, check_value, entity_of, invalid
from lockstep.broker.quotas.quota_table import QuotaTable
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode

MAX_ENTITIES: Final = 10_000
"""LIMIT. Entities with quotas: each is in the memory of every node and in each checkpoint."""

Parts = tuple[tuple[str, str | None], ...]
"""An entity as a request names it: type and name of each part, in any order."""


class QuotaChange(NamedTuple):
    """A quota that is in force from now on, or (None) is not any more."""

    entity: QuotaEntity
    key: str
    value: float | None


class QuotaAlteration(NamedTuple):
    """The changes of one entity in a request: key and value, None to remove it."""

    parts: Parts
    operations: tuple[tuple[str, float | None], ...]


class QuotaChanges:
    """See the module.

    Args:
        table: the quotas in force.
        record: stores changes; they are in force when it returns. Raises RequestError.
    """

    def __init__(self, table: QuotaTable, record: Callable[[Sequence[QuotaChange]], Awaitable[None]]) -> None:
        self._table, self._record = table, record

    async def change(
        self, alterations: Sequence[QuotaAlteration], is_validated_only: bool
    ) -> dict[Parts, RequestError | None]:
        """Make changes; by entity None or the error."""
        results: dict[Parts, RequestError | None] = {}
        changes: dict[Parts, list[QuotaChange]] = {}
        for each in alterations:
            name = tuple(sorted(dict(each.parts).items(), key=lambda part: part[0]))
            if name in results:
                results[name] = invalid(f"Ignoring duplicate entity {_text(dict(name))}")
                changes.pop(name, None)
                continue
            results[name] = None
            try:
                changes[name] = self._check(each)
            except RequestError as error:
                results[name] = error
        recorded = [change for each in changes.values() for change in each]
        if recorded and not is_validated_only:
            try:
                self._check_room(recorded)
                await self._record(recorded)
            except RequestError as error:
                results |= {name: error for name, each in changes.items() if each}
        return results

    def _check(self, alteration: QuotaAlteration) -> list[QuotaChange]:
        """The changes that differ from what is in force. Raises RequestError."""
        operations = dict(alteration.operations)
        if len(operations) < len(alteration.operations):
            raise invalid(f"Ignoring duplicate entity {_text(dict(alteration.parts))}")
        entity = entity_of(alteration.parts)
        in_force = self._table.of(entity)
        changes = []
        for key, value in operations.items():
            if value is not None:
                check_value(entity, key, value)
            if in_force.get(key) != value:
                changes.append(QuotaChange(entity, key, value))
        return changes

    def _check_room(self, changes: Sequence[QuotaChange]) -> None:
        added = {
            each.entity for each in changes if each.value is not None and not self._table.of(each.entity)
        }
        if added and len(self._table) + len(added) > MAX_ENTITIES:
            text = f"{len(self._table)} entities have quotas, at most {MAX_ENTITIES} can have"
            raise RequestError(ErrorCode.POLICY_VIOLATION, text)


def _text(names: Mapping[str, str | None]) -> str:
    """An entity as Kafka prints it."""
    parts = ", ".join(f"{each}={'null' if name is None else name[:250]}" for each, name in names.items())
    return f"ClientQuotaEntity(entries={{{parts}}})"
