"""FindCoordinator without a broker: the node of a key, and the creation of the coordinators' topic."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

from lockstep.broker.coordination.api.find_coordinator import FindCoordinator, Registry
from lockstep.broker.coordination.coordinator_registry import TopicCreator
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.fakes import PORT, FakeMetadata, client, header
from tests.support.cases import each_case

E = ErrorCode
GROUP, TRANSACTION, SHARE = 0, 1, 2


class FakeRegistry:
    """Each key has a node; `error`: its topic cannot be created."""

    def __init__(self, is_ready: bool = True, error: ErrorCode = E.NONE) -> None:
        self.is_ready = is_ready
        self.creations = 0
        self._error = error

    async def create_topic(self, topic_creator: TopicCreator) -> None:
        self.creations += 1
        if self._error is not E.NONE:
            raise RequestError(self._error, "no room")

    def coordinator_node(self, key: str) -> int:
        return {"here": 1, "there": 2}.get(key, -1)


async def find(
    groups: FakeRegistry, *keys: str, kind: int = GROUP, version: int = 6
) -> list[tuple[int, int, str, int, str | None]]:
    """(error, node, host, port, text) of each key."""
    request = FindCoordinatorRequest(key=keys[0], key_type=kind, coordinator_keys=list(keys))
    metadata = FakeMetadata((1, 2))
    transactions = FakeRegistry()
    handler = FindCoordinator(
        cast(Registry, groups),
        cast(Registry, transactions),
        cast(TopicCreator, None),
        metadata.endpoints,
        TimeSlicer(lambda _: None),
    )
    response: Any = handler.handle(client(), header(version), request)
    if isinstance(response, Awaitable):
        response = await response
    found = response.coordinators if version >= 4 else [response]
    return [(each.error_code, each.node_id, each.host, each.port, each.error_message) for each in found]


HERE = (E.NONE, 1, "127.0.0.1", PORT, "")
NOWHERE = (E.COORDINATOR_NOT_AVAILABLE, -1, "", -1, E.COORDINATOR_NOT_AVAILABLE.message)


@each_case("kind", [GROUP, TRANSACTION])
async def test_the_node_of_each_key(kind: int) -> None:
    groups = FakeRegistry()
    there = (E.NONE, 2, "host-2", PORT, "")
    assert await find(groups, "here", "there", "x", kind=kind) == [HERE, there, NOWHERE]
    assert groups.creations == 0


async def test_the_node_of_one_key() -> None:
    assert await find(FakeRegistry(), "here", version=3) == [(*HERE[:-1], "NONE")]
    assert await find(FakeRegistry(), "x", version=3) == [NOWHERE]


async def test_the_first_request_creates_the_topic() -> None:
    groups = FakeRegistry(is_ready=False)
    assert await find(groups, "here") == [HERE]
    assert groups.creations == 1


@each_case("version", [3, 4])
async def test_a_topic_that_cannot_be_created(version: int) -> None:
    groups = FakeRegistry(is_ready=False, error=E.POLICY_VIOLATION)
    assert await find(groups, "here", version=version) == [
        (E.COORDINATOR_NOT_AVAILABLE, -1, "", -1, "no room")
    ]


@each_case("version", range(1, 7))
@each_case("kind", [SHARE, 3, -1])
async def test_share_groups_have_none(version: int, kind: int) -> None:
    groups = FakeRegistry(is_ready=False)
    text = f"Unknown coordinator type {kind}."
    assert await find(groups, "here", kind=kind, version=version) == [(E.INVALID_REQUEST, -1, "", -1, text)]
    assert groups.creations == 0
