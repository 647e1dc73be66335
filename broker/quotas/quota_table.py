"""The quotas that group 0 has recorded, and which of them applies to a client.

Pure. Owns: the eight levels at which a client's quota is looked for, and what a filter of
DescribeClientQuotas matches. Invariant: each key has its own first level, so that a quota for one key leaves
those for others in force. Source: Kafka's ClientQuotaManager and ClientQuotasImage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Final

from lockstep.broker.quotas.quota_entity import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    IP,
    USER,
    QuotaEntity,
    canonical_entity,
)

QuotaScope = tuple[str, str]
"""The user and client id that share a quota; "" where all of them do."""
_DEFAULT_ADDRESS: Final[QuotaEntity] = ((IP, None),)


class QuotaTable:
    """See the module."""

    __slots__ = ("_addresses", "_values")

    def __init__(self) -> None:
        self._values: dict[QuotaEntity, dict[str, float]] = {}
        self._addresses = 0
        """The entities that are addresses."""

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        """Each entity with its quotas, in the order in which they were first set."""
        return iter(self._values.items())

    def of(self, entity: QuotaEntity) -> Mapping[str, float]:
        """The quotas of exactly this entity."""
        return self._values.get(entity, {})

    def set(self, entity: QuotaEntity, key: str, value: float) -> None:
        """A quota is in force."""
        values = self._values.get(entity)
        if values is None:
            values = self._values[entity] = {}
            self._addresses += entity[0][0] == IP
        values[key] = value

    def remove(self, entity: QuotaEntity, key: str) -> None:
        """A quota is not in force any more."""
        values = self._values.get(entity)
        if values is None:
            return
        values.pop(key, None)
        if not values:
            del self._values[entity]
            self._addresses -= entity[0][0] == IP

    def clear(self) -> None:
        """There is no quota."""
        self._values.clear()
        self._addresses = 0

    @property
    def has_client_quotas(self) -> bool:
        """True if some user or client has a quota."""
        return len(self._values) > self._addresses

    @property
    def has_connection_rates(self) -> bool:
        """True if some address has a quota."""
        return self._addresses > 0

    def find(self, key: str, user: str, client_id: str) -> tuple[QuotaScope, float] | None:
        """The quota of a client, and who shares it; None for no limit. A client without an id has quotas of
        its user alone."""
        for entity, bucket in _levels(user, client_id):
            value = self._values.get(entity, {}).get(key)
            if value is not None:
                return bucket, value
        return None

    def connection_rate(self, address: str) -> float | None:
        """The rate at which connections are accepted from an address in its canonical form; None for no
        limit."""
        values = self._values.get(((IP, address),)) or self._values.get(_DEFAULT_ADDRESS, {})
        return values.get(CONNECTION_CREATION_RATE)

    def find_matching(
        self, exact: Mapping[str, str | None], any_name: Set[str], is_strict: bool
    ) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        """The entities of a filter. Args: exact: names by type. any_name: types with any name. is_strict:
        entities with further types do not match."""
        exact = dict(canonical_entity(exact))
        for entity, values in self._values.items():
            names = dict(entity)
            if is_strict and len(names) != len(exact) + len(any_name):
                continue
            if any_name <= names.keys() and exact.items() <= names.items():
                yield entity, values


def _levels(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, QuotaScope]]:
    """The entities whose quotas may apply, the first that has one does."""
    for name in (user, None):
        if client_id:
            yield ((USER, name), (CLIENT_ID, client_id)), (user, client_id)
            yield ((USER, name), (CLIENT_ID, None)), (user, client_id)
        yield ((USER, name),), (user, "")
    if client_id:
        yield ((CLIENT_ID, client_id),), ("", client_id)
        yield ((CLIENT_ID, None),), ("", client_id)
