"""LockstepCluster, called without a broker: the status, and commands that cannot be served."""

from __future__ import annotations

import json

from lockstep.broker.controller.api.lockstep_cluster import LockstepCluster
from lockstep.protocol.cluster_messages import LockstepClusterRequest, LockstepClusterResponse
from lockstep.protocol.errors import ErrorCode
from tests.broker.controller.api.conftest import ControllerCaller
from tests.broker.fakes import client
from tests.support.cases import each_case


async def execute(caller: ControllerCaller, body: bytes) -> LockstepClusterResponse:
    response: LockstepClusterResponse = await caller.call(LockstepClusterRequest(body=body), 0)
    return response


async def test_the_status_names_nodes_and_groups() -> None:
    caller = ControllerCaller((1, 2))
    caller.metadata.cluster.groups.clear()
    caller.metadata.report(2, {0: 3, 1: 3})
    response = await execute(caller, b'{"do": "status"}')
    status = json.loads(bytes(response.body))
    assert (response.error_code, status["answered_by"], status["controller"]) == (0, 1, 2)
    assert [(each["node"], each["alive"]) for each in status["nodes"]] == [(1, True), (2, True)]
    assert [(each["group"], each["leader"], each["term"]) for each in status["groups"]] == [
        (0, 2, 3),
        (1, 2, 3),
    ]
    assert not status["healthy"], "no leader confirms its group"


@each_case(
    ("body", "error"),
    [
        (b'{"do": "status", "more": 1}', ErrorCode.INVALID_REQUEST),
        (b'{"do": "add", "node": "1"}', ErrorCode.INVALID_REQUEST),
        (b"[]", ErrorCode.INVALID_REQUEST),
        (b"no json", ErrorCode.INVALID_REQUEST),
        (b" " * 1001, ErrorCode.INVALID_REQUEST),
        (b'{"do": "give_up", "topic": "no", "partition": 0}', ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (b'{"do": "add", "node": 2}', ErrorCode.INVALID_REQUEST),
        (b'{"do": "remove", "node": 2}', ErrorCode.INVALID_REQUEST),
        (b'{"do": "transfer", "group": 1, "node": 1}', ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_command_that_a_single_node_cannot_serve(
    caller: ControllerCaller, body: bytes, error: ErrorCode
) -> None:
    response = await execute(caller, body)
    assert response.error_code == error and response.error_message
    assert bytes(response.body) == b""


async def test_another_node_than_the_controller_changes_nothing() -> None:
    caller = ControllerCaller((1, 2))
    caller.topics.is_controller = False
    response = await execute(caller, b'{"do": "remove", "node": 2}')
    assert response.error_code == ErrorCode.NOT_CONTROLLER


def test_any_node_serves_the_status_and_gives_up_ranges(caller: ControllerCaller) -> None:
    handler = next(each for each in caller.handlers if isinstance(each, LockstepCluster))

    def is_local(body: bytes) -> bool:
        return handler.is_local(client(), LockstepClusterRequest(body=body))

    assert is_local(b'{"do": "status"}') and is_local(b'{"do": "give_up", "topic": "t"}')
    assert is_local(b"no json"), "it is rejected where it arrives"
    assert not is_local(b'{"do": "add", "node": 2}')
