"""ListConfigResources: topics, brokers, and the groups that configure anything."""

from __future__ import annotations

from lockstep.broker.metadata.metadata_image import GROUP_CONFIGS, configs_command
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.controller.api.conftest import ControllerCaller
from tests.support.cases import each_case


async def listed(caller: ControllerCaller, *types: int, version: int = 1) -> list[tuple[str, int]]:
    response = await caller.call(ListConfigResourcesRequest(resource_types=list(types)), version)
    assert response.error_code == 0
    return [(each.resource_name, each.resource_type) for each in response.config_resources]


async def test_each_type(caller: ControllerCaller) -> None:
    await caller.create("a")
    caller.metadata.record(configs_command(GROUP_CONFIGS, "g", {"consumer.session.timeout.ms": "50000"}))
    assert await listed(caller) == [("g", 32), ("1", 8), ("1", 4), ("a", 2)]
    assert await listed(caller, 2, 2) == [("a", 2)]
    assert await listed(caller, 4, 32) == [("g", 32), ("1", 4)]
    assert await listed(caller, 16) == []
    assert await listed(caller, version=0) == []


@each_case("types", [[1], [99], [0], [2, 64]])
async def test_a_type_that_is_none(caller: ControllerCaller, types: list[int]) -> None:
    response = await caller.call(ListConfigResourcesRequest(resource_types=types), 1)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
