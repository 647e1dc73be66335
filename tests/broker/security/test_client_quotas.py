"""DescribeClientQuotas and AlterClientQuotas: there are no quotas, and none can be set."""

from __future__ import annotations

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


@each_case("version", [0, 1])
async def test_a_quota_is_rejected_and_removing_none_succeeds(caller: Caller, version: int) -> None:
    def entry(name: str, remove: bool) -> EntryData:
        return EntryData(
            entity=[EntityData(entity_type="user", entity_name=name)],
            ops=[OpData(key="producer_byte_rate", value=1.0, remove=remove)],
        )

    request = AlterClientQuotasRequest(entries=[entry("a", False), entry("b", True)])
    rejected, removed = (await caller.call(request, version)).entries
    assert (rejected.error_code, rejected.entity[0].entity_name) == (ErrorCode.INVALID_REQUEST, "a")
    assert "not enforced" in rejected.error_message
    assert (removed.error_code, removed.error_message) == (ErrorCode.NONE, None)
