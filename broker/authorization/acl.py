"""An ACL: who may, or may not, do what with which resources, from where; and the filters that find ACLs.

Owns: `AclBinding` with the checks of a new one, `HostPattern`, and `AclBindingFilter`. Invariant: equal
bindings are one ACL. Does not: decide (`acl_cache.py`), or store (`broker/metadata/metadata_image.py`).
Source: Kafka's AclBinding, AclControlManager.validateNewAcl, ResourcePatternFilter and
AccessControlEntryFilter; KIP-290, KIP-1276 for networks. Kafka takes any text for a host; here it is an
address, a network or `*`, since a name would never match.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from lockstep.broker.requests.kafka_principal import USER_TYPE, KafkaPrincipal
from lockstep.protocol.acl_codes import AclOperation, AclPermissionType, AclResourceType, PatternType

WILDCARD: Final = "*"
"""The literal name of all resources; the host of all hosts."""
ANY_USER: Final = str(KafkaPrincipal(USER_TYPE, WILDCARD))
MAX_TEXT_CHARACTERS: Final = 4_096
"""LIMIT. Characters of the name, the principal and the host of an ACL together: each ACL stays in memory, and
in every checkpoint of group 0."""

Code = TypeVar("Code", bound=IntEnum)
Host = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class InvalidAcl(ValueError):
    """An ACL that cannot be; the text has the reason, in Kafka's words where Kafka rejects it, too."""


class AclBinding(NamedTuple):
    """One ACL."""

    resource_type: AclResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType

    def __str__(self) -> str:
        """The form of log lines: `ALLOW READ on LITERAL TOPIC orders to User:bob from *`."""
        return (
            f"{self.permission.name} {self.operation.name} on {self.pattern_type.name} "
            f"{self.resource_type.name} {self.resource_name} to {self.principal} from {self.host}"
        )

    @classmethod
    def of(cls, parts: Sequence[Any]) -> AclBinding:
        """The ACL of its parts as numbers and texts; a number that is not known is UNKNOWN."""
        resource_type, name, pattern_type, principal, host, operation, permission = parts
        return cls(
            member_of(AclResourceType, resource_type),
            name,
            member_of(PatternType, pattern_type),
            principal,
            host,
            member_of(AclOperation, operation),
            member_of(AclPermissionType, permission),
        )

    def check(self) -> None:
        """Raises InvalidAcl."""
        _reject_if(self.resource_type, (AclResourceType.UNKNOWN, AclResourceType.ANY), "resourceType")
        if self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise InvalidAcl(f"Invalid patternType {self.pattern_type.name}")
        _reject_if(self.operation, (AclOperation.UNKNOWN, AclOperation.ANY), "operation")
        _reject_if(self.permission, (AclPermissionType.UNKNOWN, AclPermissionType.ANY), "permissionType")
        if not self.resource_name:
            raise InvalidAcl("Resource name should not be empty")
        if ":" not in self.principal:
            raise InvalidAcl(
                f"Could not parse principal from `{self.principal[:MAX_TEXT_CHARACTERS]}` (no colon is "
                "present separating the principal type from the principal name)"
            )
        if len(self.resource_name) + len(self.principal) + len(self.host) > MAX_TEXT_CHARACTERS:
            raise InvalidAcl(f"An ACL has at most {MAX_TEXT_CHARACTERS} characters")
        HostPattern(self.host)


class HostPattern:
    """The addresses that the host of an ACL means. Raises InvalidAcl.

    An address of IPv6 is the same in each of its spellings; Kafka compares its own long one.
    """

    __slots__ = ("_network",)

    def __init__(self, text: str) -> None:
        self._network: _Network | None = None
        """None for all addresses."""
        if text == WILDCARD:
            return
        if not text:
            raise InvalidAcl("Host pattern cannot be null or empty")
        address, slash, prefix_length = text.partition("/")
        try:
            if slash and not (prefix_length.isascii() and prefix_length.isdecimal()):
                raise ValueError(f"Could not parse [{text}]")
            self._network = ipaddress.ip_network(
                text if slash else ipaddress.ip_address(address), strict=False
            )
        except ValueError as error:
            if slash:
                raise InvalidAcl(f"Invalid CIDR notation '{text}': {error}") from None
            raise InvalidAcl(f"the host '{text}' is neither an IP address nor a CIDR network nor *") from None

    def covers(self, host: Host | None) -> bool:
        """True for a client at an address that is meant; None is an address that is not known."""
        network = self._network
        return network is None or (host is not None and host in network)


def parse_host(text: str) -> Host | None:
    """The address of a client; of an IPv4 client on a listener of both, its IPv4 address. None for another
    text."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped


class AclBindingFilter(NamedTuple):
    """The ACLs that DescribeAcls and DeleteAcls are about; None is any text."""

    resource_type: AclResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermissionType

    @classmethod
    def of(cls, parts: Sequence[Any]) -> AclBindingFilter:
        """The filter of its parts as numbers and texts, as `AclBinding.of`."""
        return cls(*AclBinding.of(parts))

    @property
    def is_unknown(self) -> bool:
        """True if a part of it is of a kind that this version does not know."""
        return 0 in (self.resource_type, self.pattern_type, self.operation, self.permission)

    def matches(self, acl: AclBinding) -> bool:
        """True if the ACL is one of those that are meant."""
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermissionType.ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        name = self.resource_name
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None or name == acl.resource_name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD


def member_of(kind: type[Code], number: int) -> Code:
    """The member of an enumeration of `acl_codes`; UNKNOWN for a number that it does not have."""
    return kind(number if number in kind.__members__.values() else 0)


def _reject_if(
    kind: AclResourceType | AclOperation | AclPermissionType, rejected: Collection[int], words: str
) -> None:
    if kind in rejected:
        raise InvalidAcl(f"Invalid {words} {kind.name}")
