"""broker/authorization/acl.py: which ACLs may be created, and which ones a filter means."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.authorization.acl import (
    MAX_TEXT_CHARACTERS,
    AclBinding,
    AclBindingFilter,
    HostPattern,
    InvalidAcl,
    parse_host,
)
from lockstep.protocol.acl_codes import AclOperation, AclPermissionType, AclResourceType, PatternType
from tests.support.cases import each_case

ACL = AclBinding(
    AclResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
ANY = AclBindingFilter(
    AclResourceType.ANY, None, PatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


@each_case(
    "changed",
    [
        {},
        {"host": "10.1.2.3"},
        {"host": "10.1.2.3/8"},
        {"host": "::1"},
        {"host": "2001:db8::/32"},
        {"principal": "Role:x:y"},
        {"resource_name": "*", "operation": AclOperation.ALL, "permission": AclPermissionType.DENY},
        {"resource_name": "x" * 4_000, "pattern_type": PatternType.PREFIXED},
    ],
)
def test_an_acl_that_may_be_created(changed: dict[str, Any]) -> None:
    ACL._replace(**changed).check()


@each_case(
    "changed, text",
    [
        ({"resource_type": AclResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": AclResourceType.UNKNOWN}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": AclOperation.ANY}, "Invalid operation ANY"),
        ({"permission": AclPermissionType.UNKNOWN}, "Invalid permissionType UNKNOWN"),
        ({"resource_name": ""}, "Resource name should not be empty"),
        ({"principal": "alice"}, "Could not parse principal from `alice`"),
        ({"host": ""}, "Host pattern cannot be null or empty"),
        ({"host": "10.0.0.0/33"}, "Invalid CIDR notation '10.0.0.0/33'"),
        ({"host": "10.0.0.0/255.0.0.0"}, "Invalid CIDR notation"),
        ({"host": "10.0.0.0/"}, "Invalid CIDR notation"),
        ({"host": "somewhere/8"}, "Invalid CIDR notation"),
        ({"host": "example.org"}, "neither an IP address nor a CIDR network"),
        ({"resource_name": "x" * MAX_TEXT_CHARACTERS}, "at most 4096 characters"),
    ],
)
def test_an_acl_that_may_not(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidAcl, match=text.replace("(", r"\(")):
        ACL._replace(**changed).check()


@each_case(
    "pattern, inside, outside",
    [
        ("10.0.0.1", ["10.0.0.1", "::ffff:10.0.0.1"], ["10.0.0.2", "::1"]),
        ("10.1.2.3/8", ["10.0.0.0", "10.255.255.255"], ["11.0.0.0", "::1"]),
        ("0:0:0:0:0:0:0:1", ["::1"], ["::2", "127.0.0.1", "nowhere"]),
        ("2001:db8::/32", ["2001:db8:1::5"], ["2001:db9::"]),
        ("*", ["10.0.0.1", "::1", "nowhere"], []),
    ],
)
def test_the_addresses_of_a_host(pattern: str, inside: list[str], outside: list[str]) -> None:
    host = HostPattern(pattern)
    assert all(host.covers(parse_host(each)) for each in inside)
    assert not any(host.covers(parse_host(each)) for each in outside)


@each_case(
    "changed, matches",
    [
        ({}, True),
        ({"resource_type": AclResourceType.TOPIC}, True),
        ({"resource_type": AclResourceType.GROUP}, False),
        ({"resource_name": "orders"}, True),
        ({"resource_name": "orders-2"}, False),
        ({"pattern_type": PatternType.LITERAL}, True),
        ({"pattern_type": PatternType.PREFIXED}, False),
        ({"principal": "User:alice"}, True),
        ({"principal": "User:*"}, False),
        ({"host": "*"}, True),
        ({"host": "10.0.0.1"}, False),
        ({"operation": AclOperation.READ}, True),
        ({"operation": AclOperation.ALL}, False),
        ({"permission": AclPermissionType.ALLOW}, True),
        ({"permission": AclPermissionType.DENY}, False),
    ],
)
def test_a_filter(changed: dict[str, Any], matches: bool) -> None:
    assert ANY._replace(**changed).matches(ACL) is matches


@each_case(
    "acl_name, acl_pattern, matches",
    [
        ("orders", PatternType.LITERAL, True),
        ("*", PatternType.LITERAL, True),
        ("other", PatternType.LITERAL, False),
        ("ord", PatternType.PREFIXED, True),
        ("orders", PatternType.PREFIXED, True),
        ("orders-", PatternType.PREFIXED, False),
        ("*", PatternType.PREFIXED, False),
    ],
)
def test_a_filter_of_what_applies_to_a_resource(
    acl_name: str, acl_pattern: PatternType, matches: bool
) -> None:
    found = ANY._replace(resource_name="orders", pattern_type=PatternType.MATCH)
    assert found.matches(ACL._replace(resource_name=acl_name, pattern_type=acl_pattern)) is matches
    assert ANY._replace(pattern_type=PatternType.MATCH).matches(ACL)


def test_a_filter_of_unknown_kinds() -> None:
    assert not ANY.is_unknown
    assert ANY._replace(operation=AclOperation.UNKNOWN).is_unknown


def test_the_numbers_of_the_wire() -> None:
    assert AclBinding.of((2, "orders", 3, "User:alice", "*", 3, 3)) == ACL
    assert AclBindingFilter.of((1, None, 1, None, None, 1, 1)) == ANY
    assert AclBinding.of((99, "orders", 3, "User:alice", "*", 99, 3)) == ACL._replace(
        resource_type=AclResourceType.UNKNOWN, operation=AclOperation.UNKNOWN
    )


def test_an_acl_as_the_log_has_it() -> None:
    assert str(ACL) == "ALLOW READ on LITERAL TOPIC orders to User:alice from *"
