"""UpdateFeatures: every feature stays at its level (KIP-584, KIP-778).

The checks and their texts are Kafka's; a valid change of a level is rejected as well. As in Kafka one error
rejects the whole request. Source: Kafka's FeatureControlManager.updateFeature.
"""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.metadata.api.api_versions import FEATURE_LEVELS
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
UPGRADE_TYPE_MIN_VERSION = 1


class UpdateFeatures(RequestHandler):
    """See the module."""

    api_key = ApiKey.UPDATE_FEATURES
    versions = (0, 2)

    def __init__(self, nodes: NodeRegistry, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._nodes = nodes

    def handle(
        self, client: ClientContext, header: RequestHeader, request: UpdateFeaturesRequest
    ) -> HandlerResponse:
        """NONE where every feature has the requested level already, else INVALID_UPDATE_VERSION."""
        if not self._access.allows_on_cluster(client, AclOperation.ALTER):
            denied = cluster_denial(AclOperation.ALTER)
            return UpdateFeaturesResponse(error_code=denied.error, error_message=denied.message)
        for each in request.feature_updates:
            upgrade_type = each.upgrade_type
            if header.api_version < UPGRADE_TYPE_MIN_VERSION:
                upgrade_type = SAFE_DOWNGRADE if each.allow_downgrade else UPGRADE
            if reason := _update_error(self._nodes.node_id, each, upgrade_type):
                return UpdateFeaturesResponse(
                    error_code=ErrorCode.INVALID_UPDATE_VERSION,
                    error_message="The update failed for all features since the following feature had an "
                    "error: "
                    f"Invalid update version {each.max_version_level} for feature {each.feature}. {reason}",
                )
        return UpdateFeaturesResponse(
            error_message=None,
            results=[
                UpdatableFeatureResult(feature=each.feature, error_message="NONE")
                for each in request.feature_updates
            ],
        )


def _update_error(node_id: int, update: FeatureUpdateKey, upgrade_type: int) -> str:
    """The reason for which the level is not the requested one; empty if it is."""
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    requested, levels = update.max_version_level, FEATURE_LEVELS.get(update.feature)
    if requested < 0:
        return "A feature version cannot be less than 0."
    if levels is None:
        if requested == 0:
            return f"Feature {update.feature} not found."
        return f"Local controller {node_id} does not support this feature."
    lowest, highest, level = levels
    if not lowest <= requested <= highest:
        return f"Local controller {node_id} only supports versions {lowest}-{highest}"
    if requested < level and upgrade_type == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    return "" if requested == level else f"The level of this feature is fixed at {level}."
