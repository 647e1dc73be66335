"""Quota entities: the clients of a quota, its valid keys, and the errors of an invalid one.

Pure. An entity is a user, a client id, both, or an address in its canonical form; a name of None is the
default of its type. Source: Kafka's ClientQuotaControlManager and QuotaConfig, whose error texts these are.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
from collections.abc import Iterable, Mapping
from typing import Final

from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)

QUOTA_KEYS: Final = (*CLIENT_KEYS, CONNECTION_CREATION_RATE)

MAX_NAME_CHARACTERS: Final = 1_000
"""LIMIT. Characters of an entity's name: each is in the memory of every node and in each checkpoint."""
MAX_QUOTED_CHARACTERS: Final = 250
_MAX_FRACTION: Final = 1e-6
_LARGEST: Final[Mapping[str, tuple[float, str]]] = {
    PRODUCER_BYTE_RATE: (2.0**63, "a LONG"),
    CONSUMER_BYTE_RATE: (2.0**63, "a LONG"),
    CONNECTION_CREATION_RATE: (2.0**31 - 1, "an INT"),
}
"""The largest value of each key whose values are whole numbers, and its type as Kafka names it."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Type and name of each part, in the order of `ENTITY_TYPES`; None: the default."""


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of these parts. Raises RequestError for one that no quota can have."""
    names = dict(parts)
    if not names:
        raise invalid("Invalid empty client quota entity")
    for entity_type, name in names.items():
        if entity_type not in ENTITY_TYPES:
            raise invalid(f"Unhandled client quota entity type: {entity_type[:MAX_QUOTED_CHARACTERS]}")
        if name == "":
            raise invalid(f"Empty {entity_type} not supported")
        if name is not None and len(name) > MAX_NAME_CHARACTERS:
            raise invalid(f"The name of a quota entity has {len(name)} characters")
    if IP in names and len(names) > 1:
        raise invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    address = names.get(IP)
    if address is not None and normal_address(address) is None:
        raise invalid(f"{address[:MAX_QUOTED_CHARACTERS]} is not a valid IP or resolvable host.")
    return canonical_entity(names)


def canonical_entity(names: Mapping[str, str | None]) -> QuotaEntity:
    """The entity of names by type: equal for equal ones, however an address is written. Checks nothing."""
    return tuple((each, _canonical_name(each, names[each])) for each in ENTITY_TYPES if each in names)


def _canonical_name(entity_type: str, name: str | None) -> str | None:
    return normal_address(name) or name if entity_type == IP and name is not None else name


def bounded_name(name: str) -> str:
    """The name under which a client is counted: a digest of one that is too long for an entity.

    No entity is named like a digest: what a client sends is UTF-8, which has no lone surrogates.
    """
    if len(name) <= MAX_NAME_CHARACTERS:
        return name
    return "\ud800" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def check_value(entity: QuotaEntity, key: str, value: float) -> None:
    """Raises RequestError for a quota that this entity cannot have."""
    keys = (CONNECTION_CREATION_RATE,) if entity[0][0] == IP else CLIENT_KEYS
    if key not in keys:
        raise invalid(f"Invalid configuration key {key[:MAX_QUOTED_CHARACTERS]}")
    if not math.isfinite(value):
        raise invalid(f"Quota {key} must be a finite number")
    if value <= 0:
        raise invalid(f"Quota {key} must be greater than 0")
    if key in _LARGEST:
        largest, type_name = _LARGEST[key]
        if value > largest:
            raise invalid(f"Proposed value for {key} is too large for {type_name}.")
        if math.fmod(value, 1.0) > _MAX_FRACTION:
            raise invalid(f"{key} cannot be a fractional value.")


def invalid(message: str) -> RequestError:
    """INVALID_REQUEST with this message."""
    return RequestError(ErrorCode.INVALID_REQUEST, message)


def normal_address(host: str) -> str | None:
    """An address in its canonical form, an IPv4 address within IPv6 as IPv4; None for what is no address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
