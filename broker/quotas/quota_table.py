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
    normal_address,
)

BucketName = tuple[str, str]
"""User and client id of those who share a quota; "" where all of them do."""
_DEFAULT_ADDRESS: Final[QuotaEntity] = ((IP, None),)


class QuotaTable:
    """See the module."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[QuotaEntity, dict[str, float]] = {}

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
        self._values.setdefault(entity, {})[key] = value

    def remove(self, entity: QuotaEntity, key: str) -> None:
        """A quota is not in force any more."""
        values = self._values.get(entity, {})
        values.pop(key, None)
        if not values:
            self._values.pop(entity, None)

    def clear(self) -> None:
        """There is no quota."""
        self._values.clear()

    @property
    def has_client_quotas(self) -> bool:
        """True if some user or client has a quota."""
        return any(entity[0][0] != IP for entity in self._values)

    @property
    def has_connection_rates(self) -> bool:
        """True if some address has a quota."""
        return any(entity[0][0] == IP for entity in self._values)

    def find(self, key: str, user: str, client_id: str) -> tuple[BucketName, float] | None:
        """The quota of a client, and who shares it; None for no limit. A client without an id has quotas of
        its user alone."""
        for entity, bucket in _levels(user, client_id):
            value = self._values.get(entity, {}).get(key)
            if value is not None:
                return bucket, value
        return None

    def connection_rate(self, address: str) -> float | None:
        """The rate at which connections from an address are accepted; None for no limit."""
        normal = normal_address(address)
        for entity, values in self._values.items():
            entity_type, name = entity[0]
            if entity_type == IP and name is not None and normal_address(name) == normal:
                return values.get(CONNECTION_CREATION_RATE)
        return self._values.get(_DEFAULT_ADDRESS, {}).get(CONNECTION_CREATION_RATE)

    def find_matching(
        self, exact: Mapping[str, str | None], any_name: Set[str], is_strict: bool
    ) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        """The entities of a filter. Args: exact: names by type. any_name: types with any name. is_strict:
        entities with further types do not match."""
        for entity, values in self._values.items():
            names = dict(entity)
            if is_strict and len(names) != len(exact) + len(any_name):
                continue
            if any_name <= names.keys() and exact.items() <= names.items():
                yield entity, values


def _levels(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, BucketName]]:
    """The entities whose quotas may apply, the first that has one does."""
    for name in (user, None):
        if client_id:
            yield ((USER, name), (CLIENT_ID, client_id)), (user, client_id)
            yield ((USER, name), (CLIENT_ID, None)), (user, client_id)
        yield ((USER, name),), (user, "")
    if client_id:
        yield ((CLIENT_ID, client_id),), ("", client_id)
        yield ((CLIENT_ID, None),), ("", client_id)
