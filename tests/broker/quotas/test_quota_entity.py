"""Which entities and values a quota can have, the canonical form of an address, and names of any length."""

from __future__ import annotations

import math

import pytest

from lockstep.broker.quotas.quota_entity import (
    CONNECTION_CREATION_RATE,
    MAX_NAME_CHARACTERS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    bounded_name,
    canonical_entity,
    check_value,
    entity_of,
    normal_address,
)
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from tests.support.cases import each_case

ALICE: QuotaEntity = (("user", "alice"),)
ADDRESS: QuotaEntity = (("ip", "192.0.2.1"),)
TOO_LARGE = "Proposed value for connection_creation_rate is too large for an INT."
Parts = tuple[tuple[str, str | None], ...]


@each_case(
    ("parts", "entity"),
    [
        ((("client-id", None), ("user", "a")), (("user", "a"), ("client-id", None))),
        ((("ip", None),), (("ip", None),)),
        ((("ip", "2001:DB8:0::1"),), (("ip", "2001:db8::1"),)),
        ((("ip", "::ffff:192.0.2.1"),), ADDRESS),
        ((("user", "x" * MAX_NAME_CHARACTERS),), (("user", "x" * MAX_NAME_CHARACTERS),)),
    ],
)
def test_an_entity(parts: Parts, entity: QuotaEntity) -> None:
    assert entity_of(parts) == entity


@each_case(
    ("parts", "problem"),
    [
        ((), "Invalid empty client quota entity"),
        ((("zone", "a"),), "Unhandled client quota entity type: zone"),
        ((("z" * 300, "a"),), f"Unhandled client quota entity type: {'z' * 250}"),
        ((("user", ""),), "Empty user not supported"),
        ((("user", "x" * 1001),), "The name of a quota entity has 1001 characters"),
        (
            (("ip", "192.0.2.1"), ("user", "a")),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ((("ip", "host"),), "host is not a valid IP or resolvable host."),
    ],
)
def test_what_is_no_entity(parts: Parts, problem: str) -> None:
    with pytest.raises(RequestError) as rejected:
        entity_of(parts)
    assert (rejected.value.error, rejected.value.message) == (ErrorCode.INVALID_REQUEST, problem)


@each_case(
    ("entity", "key", "value", "problem"),
    [
        (ALICE, "no_such_key", 1, "Invalid configuration key no_such_key"),
        (ALICE, CONNECTION_CREATION_RATE, 1, f"Invalid configuration key {CONNECTION_CREATION_RATE}"),
        (ADDRESS, PRODUCER_BYTE_RATE, 1, f"Invalid configuration key {PRODUCER_BYTE_RATE}"),
        (ALICE, PRODUCER_BYTE_RATE, math.nan, "Quota producer_byte_rate must be a finite number"),
        (ALICE, PRODUCER_BYTE_RATE, 0, "Quota producer_byte_rate must be greater than 0"),
        (ALICE, PRODUCER_BYTE_RATE, 0.5, "producer_byte_rate cannot be a fractional value."),
        (ALICE, PRODUCER_BYTE_RATE, 1e19, "Proposed value for producer_byte_rate is too large for a LONG."),
        (ADDRESS, CONNECTION_CREATION_RATE, 2**31, TOO_LARGE),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_that_a_quota_cannot_have(entity: QuotaEntity, key: str, value: float, problem: str) -> None:
    with pytest.raises(RequestError) as rejected:
        check_value(entity, key, value)
    assert (rejected.value.error, rejected.value.message) == (ErrorCode.INVALID_REQUEST, problem)


@each_case(
    ("entity", "key", "value"),
    [
        (ALICE, PRODUCER_BYTE_RATE, 2.0**63),
        (ALICE, REQUEST_PERCENTAGE, 0.001),
        (ADDRESS, CONNECTION_CREATION_RATE, 2**31 - 1),
    ],
    ids=str,
)
def test_a_value_that_a_quota_can_have(entity: QuotaEntity, key: str, value: float) -> None:
    check_value(entity, key, value)


def test_what_is_no_address_has_its_own_form() -> None:
    assert canonical_entity({"ip": "host", "zone": "a"}) == (("ip", "host"),)
    assert canonical_entity({"user": "192.0.2.01"}) == (("user", "192.0.2.01"),)


@each_case(
    ("host", "normal"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("host", None),
        ("", None),
    ],
)
def test_the_one_form_of_an_address(host: str, normal: str | None) -> None:
    assert normal_address(host) == normal


def test_a_long_name_is_counted_by_its_digest() -> None:
    longest = "x" * MAX_NAME_CHARACTERS
    assert bounded_name(longest) == longest
    digest = bounded_name(longest + "x")
    assert len(digest) == 65 and digest != bounded_name(longest + "y")
    assert bounded_name(digest) == digest
    with pytest.raises(UnicodeEncodeError):
        digest.encode()
