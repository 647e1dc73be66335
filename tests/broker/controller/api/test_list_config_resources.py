"""ListConfigResources, and the APIs of quotas and SCRAM credentials, of which there are none."""

from __future__ import annotations

import pytest

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from lockstep.protocol.messages.alter_client_quotas_request import EntityData, EntryData, OpData
from lockstep.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from lockstep.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from lockstep.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.controller.api.configs import GROUP, SET, alter
from tests.broker.wire import Client


async def listed(client: Client, *types: int, version: int = 1) -> list[tuple[str, int]]:
    response = await client.call(ListConfigResourcesRequest(resource_types=list(types)), version)
    assert response.error_code == 0
    return [(each.resource_name, each.resource_type) for each in response.config_resources]


async def test_each_type(client: Client) -> None:
    await client.create("a")
    await alter(client, (GROUP, "g"), ("consumer.session.timeout.ms", SET, "50000"))
    assert await listed(client) == [("g", 32), ("1", 8), ("1", 4), ("a", 2)]
    assert await listed(client, 2, 2) == [("a", 2)]
    assert await listed(client, 4, 32) == [("g", 32), ("1", 4)]
    assert await listed(client, 16) == []
    assert await listed(client, version=0) == []


@pytest.mark.parametrize("types", [[1], [99], [0], [2, 64]])
async def test_a_type_that_is_none(client: Client, types: list[int]) -> None:
    response = await client.call(ListConfigResourcesRequest(resource_types=types), 1)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


@pytest.mark.parametrize("version", [0, 1])
async def test_there_are_no_quotas(client: Client, version: int) -> None:
    for components in ([], [ComponentData(entity_type="user", match_type=2, match=None)]):
        response = await client.call(DescribeClientQuotasRequest(components=components), version)
        assert (response.error_code, response.entries) == (0, [])


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("foo", 0, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 7, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "x")], ErrorCode.INVALID_REQUEST),
        ([("", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("client-id", 2, None)], ErrorCode.NONE),
        ([("x" * 32_000, 2, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_a_filter_of_quotas(
    client: Client, components: list[tuple[str, int, str | None]], error: ErrorCode
) -> None:
    wanted = [ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components]
    response = await client.call(DescribeClientQuotasRequest(components=wanted), 0)
    assert (response.error_code, response.entries) == (error, None if error else [])


async def test_no_quota_is_taken(client: Client) -> None:
    def entry(remove: bool) -> EntryData:
        entity = [EntityData(entity_type="user", entity_name=None)]
        return EntryData(entity=entity, ops=[OpData(key="consumer_byte_rate", value=1.0, remove=remove)])

    response = await client.call(AlterClientQuotasRequest(entries=[entry(True), entry(False)]), 1)
    assert [each.error_code for each in response.entries] == [0, ErrorCode.INVALID_REQUEST]
    assert [each.entity_name for each in response.entries[1].entity] == [None]


async def test_nobody_has_a_scram_credential(client: Client) -> None:
    nobody: tuple[list[UserName] | None, ...] = (None, [])
    for users in nobody:
        response = await client.call(DescribeUserScramCredentialsRequest(users=users), 0)
        assert (response.error_code, response.results) == (0, [])
    named = [UserName(name=name) for name in ("a", "b", "a")]
    response = await client.call(DescribeUserScramCredentialsRequest(users=named), 0)
    assert [(each.user, each.error_code) for each in response.results] == [
        ("a", ErrorCode.DUPLICATE_RESOURCE),
        ("b", ErrorCode.RESOURCE_NOT_FOUND),
    ]
