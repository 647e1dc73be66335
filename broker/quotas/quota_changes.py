"""Changes of client quotas, as the controller checks and records them (KIP-546).

Owns: the limit of entities, that what is in force already is not recorded again, and the batches in which a
large request is recorded. Invariant: an entity is changed as a whole or not at all, as all its changes are in
one batch; the error of a batch is that of its entities and of later batches. Does not: store anything
(`broker/metadata/metadata_image.py`), or check who may change quotas. Source: Kafka's
ClientQuotaControlManager; but an entity that a request names twice keeps its quotas, of which Kafka reports
the error and makes the first change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple

from lockstep.broker.quotas.quota_entity import (
    MAX_QUOTED_CHARACTERS,
    QuotaEntity,
    canonical_entity,
    check_value,
    entity_of,
    invalid,
)
from lockstep.broker.quotas.quota_table import QuotaTable
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode

MAX_ENTITIES: Final = 10_000
"""LIMIT. Entities with quotas: each is in the memory of every node and in each checkpoint."""
MAX_BATCH_CHANGES: Final = 500
"""LIMIT. Changes of one commit, except those of its last entity."""

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
        record: stores changes together; they are in force when it returns. Raises RequestError.
        lock: held while changes are compared with the table and recorded.
    """

    def __init__(
        self,
        table: QuotaTable,
        record: Callable[[Sequence[QuotaChange]], Awaitable[None]],
        lock: AbstractAsyncContextManager[Any],
    ) -> None:
        self._table, self._record, self._lock = table, record, lock

    async def change(
        self, alterations: Sequence[QuotaAlteration], validate_only: bool
    ) -> dict[Parts, RequestError | None]:
        """Make changes; by entity None or the error."""
        async with self._lock:
            return await self._change(alterations, validate_only)

    async def _change(
        self, alterations: Sequence[QuotaAlteration], validate_only: bool
    ) -> dict[Parts, RequestError | None]:
        results: dict[Parts, RequestError | None] = {}
        named: dict[QuotaEntity, Parts] = {}
        changes: dict[Parts, list[QuotaChange]] = {}
        for each in alterations:
            name = tuple(sorted(dict(each.parts).items(), key=lambda part: part[0]))
            first = named.setdefault(_key(name), name)
            if first in results:
                results[first] = results[name] = invalid(f"Ignoring duplicate entity {_text(dict(name))}")
                changes.pop(first, None)
                continue
            results[name] = None
            try:
                changes[name] = self._check(each)
            except RequestError as error:
                results[name] = error
        changes = {name: each for name, each in changes.items() if each}
        if changes and not validate_only:
            results |= await self._record_all(changes)
        return results

    async def _record_all(self, changes: Mapping[Parts, list[QuotaChange]]) -> dict[Parts, RequestError]:
        """Record changes in batches; the errors of those that are not in force."""
        batch: list[QuotaChange] = []
        begun, recorded = 0, 0
        try:
            self._check_room([change for each in changes.values() for change in each])
            for each in changes.values():
                batch += each
                begun += 1
                if len(batch) >= MAX_BATCH_CHANGES or begun == len(changes):
                    await self._record(batch)
                    batch, recorded = [], begun
        except RequestError as error:
            return dict.fromkeys(list(changes)[recorded:], error)
        return {}

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


def _key(name: Parts) -> QuotaEntity:
    """The same for all names of an entity, however its address is written."""
    entity = canonical_entity(dict(name))
    return entity if len(entity) == len(name) else name


def _text(names: Mapping[str, str | None]) -> str:
    """An entity as Kafka prints it."""
    shown = {each: "null" if name is None else name[:MAX_QUOTED_CHARACTERS] for each, name in names.items()}
    parts = ", ".join(f"{each}={name}" for each, name in shown.items())
    return f"ClientQuotaEntity(entries={{{parts}}})"
