"""ConsumerGroupHeartbeat: a member of a consumer group joins, stays, learns its partitions, leaves (KIP-848).

A malformed request is rejected before the group is looked for, as in Kafka. The response waits for the commit
of what the heartbeat changes; most change nothing. Source: Kafka's KafkaApis.handleConsumerGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Collection

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.groups.api.join_group import client_host
from lockstep.broker.groups.consumer.consumer_group_coordinator import heartbeat_error
from lockstep.broker.groups.consumer.request_checks import check_heartbeat
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


class ConsumerGroupHeartbeat(RequestHandler):
    """See the module."""

    api_key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    versions = (0, 1)
    needs = Needs.COORDINATOR

    def __init__(self, groups: GroupCoordinators, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._groups = groups

    def lapsed_leaderships(self, request: ConsumerGroupHeartbeatRequest) -> Collection[Leadership]:
        return self._groups.lapsed_shards([request.group_id])

    def handle(
        self, client: ClientContext, header: RequestHeader, request: ConsumerGroupHeartbeatRequest
    ) -> HandlerResponse:
        """Serve one heartbeat."""
        error = self._denial(client, request)
        if error is not ErrorCode.NONE:
            return ConsumerGroupHeartbeatResponse(error_code=error)
        try:
            check_heartbeat(request, header.api_version, self._groups.cluster_context.assignors)
            _, coordinator = self._groups.of(request.group_id)
        except RequestError as rejection:
            return heartbeat_error(rejection)
        return coordinator.consumer.heartbeat(
            request,
            header.client_id or "",
            client_host(client),
            lambda name: self._may_describe(client, name, is_requested=False),
        )

    def _denial(self, client: ClientContext, request: ConsumerGroupHeartbeatRequest) -> ErrorCode:
        """The error of a client that may not join, or where the protocol is not served; NONE for none."""
        if not self._groups.has_consumer_protocol:
            return ErrorCode.UNSUPPORTED_VERSION
        if not self._access.allows(client, AclOperation.READ, AclResourceType.GROUP, request.group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        if self._access.is_checked and not all(
            self._may_describe(client, name, is_requested=True)
            for name in request.subscribed_topic_names or ()
        ):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.NONE

    def _may_describe(self, client: ClientContext, name: str, *, is_requested: bool) -> bool:
        return self._access.allows(
            client, AclOperation.DESCRIBE, AclResourceType.TOPIC, name, is_requested=is_requested
        )
