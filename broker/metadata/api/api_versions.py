"""ApiVersions: the served APIs, computed from the handlers (KIP-511).

The router responds to an unknown version of this request, which cannot be decoded.

A feature is a promise, and its level is fixed (`broker/controller/api/update_features.py`).
transaction.version 2 makes clients leave out requests that a broker with it does not need (KIP-890); its
lowest version of 0 is reported from version 4 on: it breaks Java clients before 3.9 (KAFKA-17011).
lockstep.locks, lockstep.atomic and lockstep.staged show our clients that lock headers, atomic and staged
appends are not silently ignored here. group.version 1 is the consumer protocol (KIP-848); the features of the
share and streams protocols name APIs that are not here; metadata.version counts Kafka's own records.

From version 5 on a client names the cluster and the node that it means to reach, as it read them in metadata
(KIP-1242). One that reaches another, by a reused address or a wrong route, gets REBOOTSTRAP_REQUIRED and
writes nothing here. Its connection stays open, as in Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.node_view import NodeView
from lockstep.broker.requests.request_context import ClientContext, RequestHandler
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from lockstep.protocol.staged_messages import STAGED_FEATURE

SOFTWARE_NAME_MIN_VERSION = 3
FEATURES_MIN_VERSION = 3
LEVEL_ZERO_MIN_VERSION = 4
TARGET_MIN_VERSION = 5
FEATURE_LEVELS: Final[Mapping[str, tuple[int, int, int]]] = {
    "transaction.version": (0, 2, 2),
    "group.version": (0, 1, 1),
    "lockstep.atomic": (1, 1, 1),
    "lockstep.locks": (1, 1, 1),
    STAGED_FEATURE: (1, 1, 1),
}
"""Each feature's lowest supported level, its highest, and the finalized one."""
NO_NODE = -1
FEATURES_EPOCH = 4
"""Raise it with each change of the features: clients keep those of the highest epoch that they have seen."""
_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersions(RequestHandler):
    """See the module. Args: advertised: API key -> first and last version advertised."""

    api_key = ApiKey.API_VERSIONS
    versions = (0, 5)

    def __init__(
        self, cluster: MetadataCache, nodes: NodeView, advertised: Mapping[int, tuple[int, int]]
    ) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._advertised = advertised

    def handle(
        self, client: ClientContext, header: RequestHeader, request: ApiVersionsRequest
    ) -> ApiVersionsResponse:
        """The whole table; INVALID_REQUEST where the client's name or version is no name (KIP-511)."""
        error = self._error(header.api_version, request)
        if error is not ErrorCode.NONE:
            return ApiVersionsResponse(error_code=error)
        response = ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, (first, last) in sorted(self._advertised.items())
            ]
        )
        if header.api_version >= FEATURES_MIN_VERSION:
            response.finalized_features_epoch = FEATURES_EPOCH
            response.finalized_features = [
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, (_, _, level) in FEATURE_LEVELS.items()
            ]
            response.supported_features = [
                SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
                for name, (lowest, highest, _) in FEATURE_LEVELS.items()
                if lowest > 0 or header.api_version >= LEVEL_ZERO_MIN_VERSION
            ]
        return response

    def unknown_version(self) -> ApiVersionsResponse:
        """For a version above ours, encoded as version 0: the client tries again with what it reads."""
        first, last = self.versions
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=self.api_key, min_version=first, max_version=last)],
        )

    def _error(self, api_version: int, request: ApiVersionsRequest) -> ErrorCode:
        """The error of the request. Source: Kafka's KafkaApis.handleApiVersionsRequest."""
        if api_version < SOFTWARE_NAME_MIN_VERSION:
            return ErrorCode.NONE
        has_valid_names = _NAME.fullmatch(request.client_software_name) and _NAME.fullmatch(
            request.client_software_version
        )
        if not has_valid_names:
            return ErrorCode.INVALID_REQUEST
        if api_version < TARGET_MIN_VERSION:
            return ErrorCode.NONE
        has_cluster, has_node = request.cluster_id is not None, request.node_id != NO_NODE
        if has_cluster != has_node:
            return ErrorCode.INVALID_REQUEST
        target = request.cluster_id, request.node_id
        if has_cluster and target != (self._cluster.cluster_id, self._nodes.node_id):
            return ErrorCode.REBOOTSTRAP_REQUIRED
        return ErrorCode.NONE
