"""ApiVersions, called without a broker: the table of APIs, the features, and the target of KIP-1242."""

from __future__ import annotations

import pytest

from lockstep.broker.metadata.api.api_versions import FEATURES_EPOCH, NO_NODE, ApiVersions
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.fakes import CLUSTER_ID, FakeMetadata, client, header
from tests.broker.served import served_versions

ADVERTISED = {18: (0, 5), 0: (3, 13)}


def handler() -> ApiVersions:
    metadata = FakeMetadata((1,))
    return ApiVersions(metadata.cluster, metadata.nodes, ADVERTISED)


def call(
    version: int,
    name: str = "a-client",
    release: str = "1.0",
    cluster_id: str | None = None,
    node_id: int = NO_NODE,
) -> ApiVersionsResponse:
    request = ApiVersionsRequest(
        client_software_name=name, client_software_version=release, cluster_id=cluster_id, node_id=node_id
    )
    return handler().handle(client(), header(version), request)


@pytest.mark.parametrize("version", range(6))
def test_every_version_gets_the_whole_table_in_order(version: int) -> None:
    response = call(version)
    assert response.error_code == ErrorCode.NONE
    assert [(each.api_key, each.min_version, each.max_version) for each in response.api_keys] == [
        (0, 3, 13),
        (18, 0, 5),
    ]


@pytest.mark.parametrize("version", range(6))
def test_features_come_since_version_3_and_with_a_level_of_0_since_4(version: int) -> None:
    response = call(version)
    assert [each.name for each in response.finalized_features][:1] == ["transaction.version"][: version > 2]
    assert response.finalized_features_epoch == (FEATURES_EPOCH if version >= 3 else -1)
    supported = {each.name for each in response.supported_features}
    assert ("transaction.version" in supported, "lockstep.locks" in supported) == (version >= 4, version >= 3)


@pytest.mark.parametrize(("name", "release"), [("", "1.0"), ("a client", "1.0"), ("a-client", "-1")])
def test_a_name_that_is_none_is_rejected_since_version_3(name: str, release: str) -> None:
    assert call(2, name, release).error_code == ErrorCode.NONE
    response = call(3, name, release)
    assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        (None, -1, ErrorCode.NONE),
        (CLUSTER_ID, 1, ErrorCode.NONE),
        (CLUSTER_ID, 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (CLUSTER_ID, -1, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_request_for_another_cluster_or_node_is_rejected_since_version_5(
    cluster_id: str | None, node_id: int, error: ErrorCode
) -> None:
    assert call(4, cluster_id=cluster_id, node_id=node_id).error_code == ErrorCode.NONE
    assert call(5, cluster_id=cluster_id, node_id=node_id).error_code == error


def test_a_version_above_ours_gets_the_versions_of_this_api() -> None:
    response = handler().unknown_version()
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version, each.max_version) for each in response.api_keys] == [(18, 0, 5)]


def test_apis_by_which_tools_guess_a_version_are_listed_whatever_their_features() -> None:
    """AlterReplicaLogDirs, SaslAuthenticate, delegation tokens, AlterUserScramCredentials, UpdateFeatures and
    UnregisterBroker are listed since Kafka 1.0 to 2.8: without one a tool reports an older version."""
    assert {34, 36, 38, 39, 40, 41, 51, 57, 64} <= served_versions().keys()
