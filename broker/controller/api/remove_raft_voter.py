"""RemoveRaftVoter: rejected as by a Kafka whose kraft.version is 0 (KIP-853)."""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.controller.raft_voters import voter_change_error
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


class RemoveRaftVoter(RequestHandler):
    """See the module."""

    api_key = ApiKey.REMOVE_RAFT_VOTER
    versions = (0, 0)

    def __init__(self, cluster: MetadataCache, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster

    def handle(
        self, client: ClientContext, header: RequestHeader, request: RemoveRaftVoterRequest
    ) -> HandlerResponse:
        """The reason why the voters stay as they are."""
        if not self._access.allows_on_cluster(client, AclOperation.ALTER):
            denied = cluster_denial(AclOperation.ALTER)
            return RemoveRaftVoterResponse(error_code=denied.error, error_message=denied.message)
        error, text = voter_change_error(
            self._cluster.cluster_id,
            "remov",
            request.cluster_id,
            request.voter_id,
            request.voter_directory_id,
        )
        return RemoveRaftVoterResponse(error_code=error, error_message=text)
