"""DescribeCluster: the listed nodes, the controller, and the error of another endpoint type."""

from __future__ import annotations

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_cluster import DescribeClusterRequest
from tests.broker.fakes import CLUSTER_ID, PORT, client
from tests.broker.metadata.api.conftest import MetadataCaller
from tests.support.cases import each_case

NOT_REQUESTED = -(2**31)


@each_case("version", range(3))
async def test_the_cluster(caller: MetadataCaller, version: int) -> None:
    response = await caller.call(DescribeClusterRequest(), version)
    assert (response.error_code, response.controller_id, response.cluster_id) == (0, 1, CLUSTER_ID)
    assert [(node.broker_id, node.host, node.port) for node in response.brokers] == [(1, "127.0.0.1", PORT)]
    assert response.cluster_authorized_operations == NOT_REQUESTED


@each_case(
    ("endpoint_type", "error"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_another_endpoint_type_is_rejected(
    caller: MetadataCaller, endpoint_type: int, error: ErrorCode
) -> None:
    response = await caller.call(DescribeClusterRequest(endpoint_type=endpoint_type), 2)
    assert (response.error_code, response.brokers) == (error, [])


async def test_operations_are_named_where_they_are_requested(caller: MetadataCaller) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert (await caller.call(request, 0)).cluster_authorized_operations == 0b1_1111_1010_0000


async def test_nodes_that_are_not_listed_are_fenced_on_request() -> None:
    caller = MetadataCaller((1, 2))
    caller.metadata.now += 3600

    async def brokers(fenced: bool) -> list[tuple[int, bool]]:
        response = await caller.call(DescribeClusterRequest(include_fenced_brokers=fenced), 2)
        return [(each.broker_id, each.is_fenced) for each in response.brokers]

    assert await brokers(True) == [(1, False), (2, True)]
    assert await brokers(False) == [(1, False)]
    caller.metadata.report(2)
    assert await brokers(True) == [(1, False), (2, False)]
    caller.metadata.now += 3600
    caller.client = client("ANOTHER")
    assert await brokers(True) == [(1, False)], "none of its listeners is this client's"
