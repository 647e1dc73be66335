"""Asking for and changing configurations over the wire, for the tests of those APIs."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.protocol.messages import alter_configs, incremental_alter_configs
from lockstep.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from tests.broker.wire import Client

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

Outcome = tuple[int, str | None]
"""Error code and message."""
Resource = tuple[int, str]
"""Type and name."""
Edits = list[tuple[str, int, str | None]]
"""Name, operation, value."""


async def alter(
    client: Client,
    resource: Resource,
    *edits: tuple[str, int, str | None],
    validate_only: bool = False,
    version: int = 1,
) -> Outcome:
    """IncrementalAlterConfigs of one resource."""
    (outcome,) = await alter_all(
        client, (resource, list(edits)), validate_only=validate_only, version=version
    )
    return outcome


async def alter_all(
    client: Client, *changes: tuple[Resource, Edits], validate_only: bool = False, version: int = 1
) -> list[Outcome]:
    """IncrementalAlterConfigs."""
    resources = [
        incremental_alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in edits
            ],
        )
        for (kind, name), edits in changes
    ]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=resources, validate_only=validate_only
    )
    response = await client.call(request, version)
    assert [(each.resource_type, each.resource_name) for each in response.responses] == [
        resource for resource, _ in changes
    ]
    return [(each.error_code, each.error_message) for each in response.responses]


async def replace(
    client: Client,
    resource: Resource,
    configs: Mapping[str, str | None],
    *,
    validate_only: bool = False,
    version: int = 2,
) -> Outcome:
    """AlterConfigs of one resource."""
    request = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configs=[
                    alter_configs.AlterableConfig(name=name, value=value) for name, value in configs.items()
                ],
            )
        ],
        validate_only=validate_only,
    )
    (result,) = (await client.call(request, version)).responses
    return result.error_code, result.error_message


async def describe(
    client: Client, resource: Resource, keys: list[str] | None = None
) -> DescribeConfigsResult:
    """DescribeConfigs of one resource, synonyms included."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource[0], resource_name=resource[1], configuration_keys=keys
            )
        ],
        include_synonyms=True,
    )
    result: DescribeConfigsResult = (await client.call(request, 4)).results[0]
    return result


async def described(client: Client, resource: Resource) -> dict[str, DescribeConfigsResourceResult]:
    """The same, which must be possible, by name."""
    result = await describe(client, resource)
    assert result.error_code == 0, result.error_message
    return {each.name: each for each in result.configs}


async def value(client: Client, resource: Resource, name: str) -> tuple[str | None, int]:
    """The value of one configuration, and its source."""
    found = (await described(client, resource))[name]
    return found.value, found.config_source
