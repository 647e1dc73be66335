"""AddRaftVoter: rejected as by a Kafka whose kraft.version is 0 (KIP-853)."""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.controller.raft_voters import voter_change_error
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


class AddRaftVoter(RequestHandler):
    """See the module."""

    api_key = ApiKey.ADD_RAFT_VOTER
    versions = (0, 1)

    def __init__(self, cluster: MetadataCache, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster

    def handle(
        self, client: ClientContext, header: RequestHeader, request: AddRaftVoterRequest
    ) -> HandlerResponse:
        """The reason why the voters stay as they are."""
        if not self._access.allows_on_cluster(client, AclOperation.ALTER):
            denied = cluster_denial(AclOperation.ALTER)
            return AddRaftVoterResponse(error_code=denied.error, error_message=denied.message)
        error, text = voter_change_error(
            self._cluster.cluster_id, "add", request.cluster_id, request.voter_id, request.voter_directory_id
        )
        return AddRaftVoterResponse(error_code=error, error_message=text)
