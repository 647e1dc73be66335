"""ElectLeaders: no election where the preferred node leads; else its leader hands over."""

from __future__ import annotations

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tests.broker.controller.api.conftest import ControllerCaller
from tests.support.cases import each_case


async def elect(
    caller: ControllerCaller, wanted: list[tuple[str, list[int]]] | None, version: int = 2, kind: int = 0
) -> tuple[int, list[tuple[str, int, int]]]:
    topics = None
    if wanted is not None:
        topics = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in wanted]
    request = ElectLeadersRequest(topic_partitions=topics, timeout_ms=1000)
    if version >= 1:
        request.election_type = kind
    response: ElectLeadersResponse = await caller.call(request, version)
    results = response.replica_election_results
    if wanted is None:
        assert all(each.partition_result == [] for each in results)
        return response.error_code, [(each.topic, -1, 0) for each in results]
    return response.error_code, [
        (topic.topic, each.partition_id, each.error_code)
        for topic in results
        for each in topic.partition_result
    ]


@each_case("version", range(3))
async def test_in_every_version(caller: ControllerCaller, version: int) -> None:
    await caller.create("t", 2)
    needless, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wanted = [("t", [0, 1, 1, 2, -1]), ("no", [0]), ("", [0]), ("t", [0])]
    assert await elect(caller, wanted, version) == (
        0,
        [
            ("t", 0, needless),
            ("t", 1, needless),
            ("t", 1, needless),
            ("t", 2, unknown),
            ("t", -1, unknown),
            ("no", 0, unknown),
            ("", 0, unknown),
            ("t", 0, needless),
        ],
    )
    assert await elect(caller, None, version) == (0, [("t", -1, 0)])
    assert await elect(caller, [], version) == (0, [])


async def test_kinds(caller: ControllerCaller) -> None:
    await caller.create("t")
    assert await elect(caller, [("t", [0])], kind=1) == (0, [("t", 0, ErrorCode.ELECTION_NOT_NEEDED)])
    invalid = ErrorCode.INVALID_REQUEST
    assert await elect(caller, [("t", [0])], kind=7) == (invalid, [("t", 0, invalid)])
    assert await elect(caller, None, kind=7) == (invalid, [])
    assert await elect(caller, [], kind=7) == (0, [])


async def test_a_leader_hands_over_to_the_preferred_node() -> None:
    caller = ControllerCaller((2, 1))
    await caller.create("t")
    unavailable = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert await elect(caller, [("t", [0])]) == (0, [("t", 0, unavailable)]), "node 2 is not alive"
    caller.metadata.report(2)
    assert await elect(caller, [("t", [0])]) == (0, [("t", 0, 0)])
    assert caller.transfers.begun == [(1, 2)]
    caller.transfers.unwilling = {2}
    assert await elect(caller, [("t", [0])]) == (0, [("t", 0, unavailable)])


async def test_an_unclean_election_needs_any_leader() -> None:
    caller = ControllerCaller((2, 1))
    await caller.create("t")
    assert await elect(caller, [("t", [0])], kind=1) == (0, [("t", 0, ErrorCode.ELECTION_NOT_NEEDED)])
    caller.metadata.cluster.groups.clear()
    unavailable = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert await elect(caller, [("t", [0])], kind=1) == (0, [("t", 0, unavailable)])
    assert caller.transfers.begun == []
