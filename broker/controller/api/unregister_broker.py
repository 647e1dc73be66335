"""UnregisterBroker: a registered node is not removed in this way (KIP-631).

Kafka removes a broker from the metadata at once, a live one, too. Here a node's replicas move first, which
`lockstep cluster remove` does, so the request is rejected with the name of that command.
"""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

REMOVE_NODE = "A node leaves the cluster with `lockstep cluster remove`, which moves its replicas first."


class UnregisterBroker(RequestHandler):
    """See the module."""

    api_key = ApiKey.UNREGISTER_BROKER
    versions = (0, 0)

    def __init__(self, nodes: NodeRegistry, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._nodes = nodes

    def handle(
        self, client: ClientContext, header: RequestHeader, request: UnregisterBrokerRequest
    ) -> HandlerResponse:
        """BROKER_ID_NOT_REGISTERED for an unknown id, else INVALID_REQUEST."""
        if not self._access.allows_on_cluster(client, AclOperation.ALTER):
            denied = cluster_denial(AclOperation.ALTER)
            return UnregisterBrokerResponse(error_code=denied.error, error_message=denied.message)
        if request.broker_id in self._nodes.registered_ids():
            return UnregisterBrokerResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=REMOVE_NODE)
        return UnregisterBrokerResponse(
            error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
            error_message=f"Broker ID {request.broker_id} is not currently registered",
        )
