"""ConsumerGroupDescribe: consumer groups with their members, what these have and are to have (KIP-848).

A group with partitions of a topic that the client may not describe is an error, as in Kafka.
Source: Kafka's KafkaApis.handleConsumerGroupDescribe.
"""

from __future__ import annotations

from collections.abc import Collection

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.groups.consumer.consumer_group_description import described_topics
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.broker.requests.sliced_response import respond_in_slices
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

DENIED_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


class ConsumerGroupDescribe(RequestHandler):
    """See the module."""

    api_key = ApiKey.CONSUMER_GROUP_DESCRIBE
    versions = (0, 1)
    needs = Needs.COORDINATOR

    def __init__(
        self, groups: GroupCoordinators, time_slicer: TimeSlicer, authorizer: Authorizer = ALLOW_ALL
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._groups = groups
        self._time_slicer = time_slicer

    def lapsed_leaderships(self, request: ConsumerGroupDescribeRequest) -> Collection[Leadership]:
        return self._groups.lapsed_shards()

    def handle(
        self, client: ClientContext, header: RequestHeader, request: ConsumerGroupDescribeRequest
    ) -> HandlerResponse:
        """Serves one ConsumerGroupDescribe."""

        def describe(group_id: str) -> DescribedGroup:
            if not self._groups.has_consumer_protocol:
                return _error(group_id, ErrorCode.UNSUPPORTED_VERSION)
            if not self._access.allows(client, AclOperation.DESCRIBE, AclResourceType.GROUP, group_id):
                return _error(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            group = self._describe(client, group_id)
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = self._access.authorized_operations(
                    client, AclResourceType.GROUP, group_id
                )
            return group

        return respond_in_slices(
            self._time_slicer,
            dict.fromkeys(request.group_ids),
            describe,
            lambda groups: ConsumerGroupDescribeResponse(groups=groups),
        )

    def _describe(self, client: ClientContext, group_id: str) -> DescribedGroup:
        try:
            _, coordinator = self._groups.of(group_id)
        except RequestError as rejection:
            return _error(group_id, rejection.error)
        group = coordinator.consumer.group(group_id)
        if group is None:
            problem = "is not a consumer group" if coordinator.exists(group_id) else "not found"
            return _error(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {problem}.")
        described = coordinator.consumer.describe(group)
        if self._access.is_checked and not all(
            self._access.allows(client, AclOperation.DESCRIBE, AclResourceType.TOPIC, name)
            for name in sorted(described_topics(described))
        ):
            return _error(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, DENIED_TOPICS)
        return described


def _error(group_id: str, error: ErrorCode, text: str | None = None) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error, error_message=text)
