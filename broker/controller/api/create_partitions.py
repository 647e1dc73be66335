"""CreatePartitions: each topic grows or is rejected on its own (KIP-195).

The response waits until the new partitions accept writes. For a topic with locks its text is a warning: a key
may be in another partition from now on, and its locks are not.
Source: Kafka's ControllerApis.createPartitions and ReplicationControlManager for the errors.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.controller.api.create_topics import FIRST_GROUP, TOPICS_AT_ONCE
from lockstep.broker.controller.replica_assignment import check_groups, check_replicas
from lockstep.broker.controller.topics import Topics
from lockstep.broker.metadata.metadata_cache import MetadataCache, Topic
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.quotas.quota_manager import NO_QUOTAS, QuotaManager
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, Needs, RequestHandler
from lockstep.broker.settings.topic_config import LOCKS_KEPT
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

SPLIT_LOCKS: Final = (
    "The topic has locks: keys may be in other partitions from now on, raised locks are not; and "
    "stop every writer that knows of fewer partitions, or two may hold the same lock."
)

STRICT_QUOTA_MIN_VERSION: Final = 3
"""The first version with the error of a quota that is used up (KIP-599)."""

Growth = tuple[Topic, int]
"""A topic and its new partition count."""


class CreatePartitions(RequestHandler):
    """See the module."""

    api_key = ApiKey.CREATE_PARTITIONS
    versions = (0, 3)
    needs = Needs.CONTROLLER

    def __init__(
        self,
        cluster: MetadataCache,
        nodes: NodeRegistry,
        topics: Topics,
        quotas: QuotaManager = NO_QUOTAS,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._quotas = quotas
        self._cluster = cluster
        self._nodes = nodes
        self._topics = topics

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: CreatePartitionsRequest
    ) -> CreatePartitionsResponse:
        """Grow the valid topics."""
        counts = Counter(topic.name for topic in request.topics)
        quota = self._quotas.mutation_of(
            client, header.client_id, header.api_version >= STRICT_QUOTA_MIN_VERSION
        )
        results: dict[str, CreatePartitionsTopicResult] = {}
        growing: list[Growth] = []
        partitions = 0
        limit = self._cluster.settings.lockstep_max_partitions_per_request
        for requested in request.topics:
            try:
                if counts[requested.name] > 1:
                    raise RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                self._check_access(client, requested.name)
                topic, added = self._validate(requested)
                if partitions + added > limit:
                    raise RequestError(
                        ErrorCode.POLICY_VIOLATION,
                        f"Excessively large number of partitions per request: at most {limit}.",
                    )
                quota.record(added)
                partitions += added
                results[requested.name] = CreatePartitionsTopicResult(name=requested.name)
                growing.append((topic, requested.count))
            except RequestError as rejection:
                results[requested.name] = _error_result(requested.name, rejection)
        if not request.validate_only:
            for first in range(0, len(growing), TOPICS_AT_ONCE):
                chunk = growing[first : first + TOPICS_AT_ONCE]
                for result in await asyncio.gather(*(self._grow(each) for each in chunk)):
                    results[result.name] = result
        return CreatePartitionsResponse(
            throttle_time_ms=quota.throttle_ms(), results=[results[name] for name in counts]
        )

    def _check_access(self, client: ClientContext, name: str) -> None:
        """Raises RequestError."""
        if not self._access.allows(client, AclOperation.ALTER, AclResourceType.TOPIC, name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            raise RequestError(error, error.message)

    def _validate(self, requested: CreatePartitionsTopic) -> tuple[Topic, int]:
        """The topic, and the number of partitions to add. Raises RequestError."""
        self._topics.check_leads()
        topic = self._cluster.topic(requested.name)
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise RequestError(error, error.message)
        added = self._topics.check_growth(topic, requested.count)
        if requested.assignments is not None:
            assignment_count = len(requested.assignments)
            if assignment_count != added:
                raise RequestError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Attempted to add {added} additional partition(s), but only {assignment_count} "
                    "assignment(s) were specified.",
                )
            for each in requested.assignments:
                check_replicas(each.broker_ids, self._nodes.registered_ids())
            pinned_group = topic.config.lockstep_group
            group_ids = (
                range(FIRST_GROUP, self._cluster.data_groups + 1) if pinned_group is None else [pinned_group]
            )
            replica_sets = [set(self._cluster.nodes_of(group_id)) for group_id in group_ids]
            check_groups((each.broker_ids for each in requested.assignments), replica_sets)
        return topic, added

    async def _grow(self, growth: Growth) -> CreatePartitionsTopicResult:
        topic, partition_count = growth
        try:
            await self._topics.grow(topic, partition_count)
        except RequestError as rejection:
            return _error_result(topic.name, rejection)
        warning = SPLIT_LOCKS if topic.config.lockstep_locks == LOCKS_KEPT else None
        return CreatePartitionsTopicResult(name=topic.name, error_message=warning)


def _error_result(name: str, rejection: RequestError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name, error_code=rejection.error, error_message=rejection.message or None
    )
