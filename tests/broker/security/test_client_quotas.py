"""DescribeClientQuotas and AlterClientQuotas: quotas that are set, matched by filters, and removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from lockstep.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.broker.fakes import Caller
from tests.support.cases import each_case

EXACT, DEFAULT, SPECIFIED = range(3)
Filter = tuple[str, int, str | None]
INVALID: tuple[tuple[list[Filter], ErrorCode, str], ...] = (
    ([("", EXACT, "a")], ErrorCode.INVALID_REQUEST, "empty entity type"),
    ([("user", EXACT, "a"), ("user", EXACT, "b")], ErrorCode.INVALID_REQUEST, "more than once"),
    ([("zone", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type zone"),
    ([("x" * 32_000, SPECIFIED, None)], ErrorCode.UNSUPPORTED_VERSION, "xxx"),
    ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST, "set match string to null"),
    ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_DEFAULT"),
    ([("user", SPECIFIED, "a")], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_SPECIFIED"),
    ([("user", 9, None)], ErrorCode.INVALID_REQUEST, "Unknown match type 9"),
    ([("ip", EXACT, "1.1.1.1"), ("user", EXACT, "a")], ErrorCode.INVALID_REQUEST, "IP filter component"),
)


def described(components: list[Filter]) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ]
    )


@each_case("version", [0, 1])
async def test_no_entity_has_a_quota(caller: Caller, version: int) -> None:
    pair: list[Filter] = [("user", EXACT, "a"), ("client-id", DEFAULT, None)]
    valid: list[list[Filter]] = [[], pair, [("ip", SPECIFIED, None)]]
    for components in valid:
        response = await caller.call(described(components), version)
        assert (response.error_code, response.entries) == (ErrorCode.NONE, [])


@each_case(("components", "error", "text"), INVALID)
async def test_an_invalid_filter_is_rejected(
    caller: Caller, components: list[Filter], error: ErrorCode, text: str
) -> None:
    response = await caller.call(described(components), 1)
    assert (response.error_code, response.entries) == (error, None)
    assert text in response.error_message


def altered(*entries: tuple[Mapping[str, str | None], Mapping[str, float | None]], **more: Any) -> Any:
    return AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=each, entity_name=name) for each, name in entity.items()],
                ops=[
                    OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()
                ],
            )
            for entity, values in entries
        ],
        **more,
    )


async def described_now(caller: Caller, components: list[Filter], **more: Any) -> list[Any]:
    request = described(components)
    request.strict = more.get("strict", False)
    response = await caller.call(request, 1)
    assert response.error_code == 0
    return [
        (
            {part.entity_type: part.entity_name for part in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in response.entries
    ]


@each_case("version", [0, 1])
async def test_quotas_are_set_described_and_removed(caller: Caller, version: int) -> None:
    alice: dict[str, str | None] = {"user": "alice"}
    both: dict[str, str | None] = {"user": "alice", "client-id": None}
    request = altered(
        (alice, {"producer_byte_rate": 1024.0, "request_percentage": 0.5}),
        (both, {"consumer_byte_rate": 5.0}),
    )
    response = await caller.call(request, version)
    assert [(each.error_code, each.error_message) for each in response.entries] == [(0, None)] * 2
    first, second = (
        (alice, {"producer_byte_rate": 1024.0, "request_percentage": 0.5}),
        (both, {"consumer_byte_rate": 5.0}),
    )
    assert await described_now(caller, []) == [first, second]
    assert await described_now(caller, [("user", EXACT, "alice")], strict=True) == [first]
    assert await described_now(caller, [("client-id", DEFAULT, None)]) == [second]
    assert await described_now(caller, [("user", SPECIFIED, None), ("client-id", SPECIFIED, None)]) == [
        second
    ]
    assert await described_now(caller, [("user", EXACT, "bob")]) == []
    await caller.call(
        altered((alice, {"producer_byte_rate": None}), (both, {"consumer_byte_rate": None})), version
    )
    assert await described_now(caller, []) == [(alice, {"request_percentage": 0.5})]
    await caller.call(altered((alice, {"request_percentage": None})), version)
    assert await described_now(caller, []) == []


async def test_each_entity_has_its_own_error(caller: Caller) -> None:
    bad, good = {"user": "a", "ip": "192.0.2.1"}, {"ip": None}
    request = altered((bad, {"producer_byte_rate": 1.0}), (good, {"connection_creation_rate": 1.0}))
    rejected, accepted = (await caller.call(request, 1)).entries
    assert (rejected.error_code, accepted.error_code) == (ErrorCode.INVALID_REQUEST, 0)
    assert {each.entity_type: each.entity_name for each in rejected.entity} == bad
    assert await described_now(caller, []) == [(good, {"connection_creation_rate": 1.0})]


async def test_validation_alone_changes_nothing(caller: Caller) -> None:
    response = await caller.call(altered(({"user": "a"}, {"producer_byte_rate": 1.0}), validate_only=True), 1)
    assert [each.error_code for each in response.entries] == [0] and await described_now(caller, []) == []
