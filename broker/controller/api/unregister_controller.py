"""UnregisterController: a registered node is not removed in this way (Kafka 4.4).

Every node is broker and controller; it leaves with `lockstep cluster remove`. Kafka rejects the active
controller with the same error.
"""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.controller.api.unregister_broker import REMOVE_NODE
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


class UnregisterController(RequestHandler):
    """See the module."""

    api_key = ApiKey.UNREGISTER_CONTROLLER
    versions = (0, 0)

    def __init__(self, nodes: NodeRegistry, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._nodes = nodes

    def handle(
        self, client: ClientContext, header: RequestHeader, request: UnregisterControllerRequest
    ) -> HandlerResponse:
        """CONTROLLER_ID_NOT_REGISTERED for an unknown id, else INVALID_REQUEST."""
        if not self._access.allows_on_cluster(client, AclOperation.ALTER):
            denied = cluster_denial(AclOperation.ALTER)
            return UnregisterControllerResponse(error_code=denied.error, error_message=denied.message)
        nodes, controller_id = self._nodes, request.controller_id
        if controller_id not in nodes.registered_ids():
            return UnregisterControllerResponse(
                error_code=ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
                error_message=f"Controller ID {controller_id} is not currently registered.",
            )
        is_active = controller_id == nodes.live_leader_of(METADATA_GROUP)
        return UnregisterControllerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="Controller cannot unregister itself while it is active."
            if is_active
            else REMOVE_NODE,
        )
