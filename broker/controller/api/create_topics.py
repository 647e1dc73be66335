"""CreateTopics: each topic is created or rejected on its own (KIP-4, KIP-464, KIP-525).

The response waits until a topic can be written to. `configs` is never null: Java's admin client and Kafka
Connect would fail on it. Source: Kafka's ReplicationControlManager for the errors.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.controller.replica_assignment import check_assignments, check_groups
from lockstep.broker.controller.topics import Topics
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.topic_validation import TopicPlan
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.quotas.quota_manager import NO_QUOTAS, QuotaManager
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, Needs, RequestHandler
from lockstep.broker.settings.described_config import describe_topic
from lockstep.broker.settings.topic_config import TopicConfig
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

FIRST_GROUP: Final = 1
"""The first log group that holds topics."""
NOT_RECORDED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
"""Rejections that change nothing: the next client may create the topic, or this one later."""
STRICT_QUOTA_MIN_VERSION: Final = 6
"""The first version with the error of a quota that is used up (KIP-599)."""
TOPICS_AT_ONCE: Final = 100
"""The topics that share their commits; other requests are served in between: ten thousand at once took
seconds."""


ConfigsByOverrides = dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]]
"""The configurations in a response, once for topics of the same overrides: ten thousand times they were 40
MB."""


class CreateTopics(RequestHandler):
    """See the module."""

    api_key = ApiKey.CREATE_TOPICS
    versions = (2, 7)
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
        self, client: ClientContext, header: RequestHeader, request: CreateTopicsRequest
    ) -> CreateTopicsResponse:
        """Create the valid topics."""
        counts = Counter(topic.name for topic in request.topics)
        quota = self._quotas.mutation_of(
            client, header.client_id, header.api_version >= STRICT_QUOTA_MIN_VERSION
        )
        results: dict[str, CreatableTopicResult] = {}
        plans: list[TopicPlan] = []
        partitions = 0
        limit = self._cluster.settings.lockstep_max_partitions_per_request
        may_create_all = client.is_node or self._access.allows_on_cluster(
            client, AclOperation.CREATE, is_requested=False
        )
        for count, topic in enumerate(request.topics, 1):
            if count % TOPICS_AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                if counts[topic.name] > 1:
                    raise RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                self._check_client(client, topic.name, may_create_all)
                plan = self._plan(topic)
                if partitions + plan.partition_count > limit:
                    raise RequestError(
                        ErrorCode.POLICY_VIOLATION,
                        f"Excessively large number of partitions per request: at most {limit}.",
                    )
                quota.record(plan.partition_count)
                partitions += plan.partition_count
                plans.append(plan)
            except RequestError as rejection:
                results[topic.name] = _error_result(topic.name, rejection)
                if topic.configs and not request.validate_only and rejection.error not in NOT_RECORDED:
                    self._topics.rejected_creations.record(topic.name, rejection)
        configs_by_overrides: ConfigsByOverrides = {}
        if request.validate_only:
            for plan in plans:
                replicas = len(self._cluster.nodes_of(plan.config.lockstep_group or FIRST_GROUP))
                result = self._success(
                    plan.name,
                    bytes(16),
                    plan.partition_count,
                    replicas,
                    plan.config,
                    configs_by_overrides,
                )
                results[plan.name] = result
        else:
            for first in range(0, len(plans), TOPICS_AT_ONCE):
                chunk = plans[first : first + TOPICS_AT_ONCE]
                created = await asyncio.gather(*(self._create(plan, configs_by_overrides) for plan in chunk))
                results.update(zip((plan.name for plan in chunk), created, strict=True))
        if self._access.is_checked and not client.is_node:
            self._hide_configs(client, results.values())
        return CreateTopicsResponse(
            throttle_time_ms=quota.throttle_ms(), topics=[results[name] for name in counts]
        )

    def _check_client(self, client: ClientContext, name: str, may_create_all: bool) -> None:
        """Raises RequestError for a client that may not create the topic, or a node that has tried to."""
        if client.is_node:
            self._topics.rejected_creations.check(name)
        elif not may_create_all and not self._access.allows(
            client, AclOperation.CREATE, AclResourceType.TOPIC, name
        ):
            raise RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")

    def _hide_configs(self, client: ClientContext, results: Iterable[CreatableTopicResult]) -> None:
        """Leave out the configurations that the client may not describe; their own error is the reason."""
        for result in results:
            if result.error_code == ErrorCode.NONE and not self._access.allows(
                client, AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, result.name, is_requested=False
            ):
                result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                result.configs = None
                result.num_partitions = result.replication_factor = -1

    def _plan(self, topic: CreatableTopic) -> TopicPlan:
        self._topics.check_leads()
        overrides: dict[str, str] = {}
        for config in topic.configs:
            if config.value is None:
                raise RequestError(
                    ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {config.name}"
                )
            overrides[config.name] = config.value
        partition_count = topic.num_partitions
        replication_factor = topic.replication_factor
        if topic.assignments:
            if partition_count != -1:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST,
                    "A manual partition assignment was specified, but numPartitions was not set to -1.",
                )
            if replication_factor != -1:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST,
                    "A manual partition assignment was specified, but replication factor was not set to -1.",
                )
            assignments = {each.partition_index: each.broker_ids for each in topic.assignments}
            if len(assignments) != len(topic.assignments):
                raise RequestError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    "Found multiple manual assignments for one partition.",
                )
            self._check_assignments(assignments, overrides)
            partition_count = len(assignments)
        return self._topics.plan(topic.name, partition_count, replication_factor, overrides)

    def _check_assignments(self, assignments: dict[int, list[int]], overrides: dict[str, str]) -> None:
        """Replicas are a log group's: a partition can only be where one of them is. Raises RequestError."""
        check_assignments(assignments, self._nodes.registered_ids())
        pinned_group = overrides.get("lockstep.group", "")
        group_ids = (
            [int(pinned_group)]
            if pinned_group.isdecimal()
            else range(FIRST_GROUP, self._cluster.data_groups + 1)
        )
        replica_sets = [set(self._cluster.nodes_of(group_id)) for group_id in group_ids]
        check_groups(assignments.values(), replica_sets)

    async def _create(
        self, plan: TopicPlan, configs_by_overrides: ConfigsByOverrides
    ) -> CreatableTopicResult:
        try:
            topic = await self._topics.create(plan)
        except RequestError as rejection:
            if plan.overrides:
                self._topics.rejected_creations.record(plan.name, rejection)
            return _error_result(plan.name, rejection)
        replicas = len(self._cluster.nodes_of(topic.partitions[0].group.group_id))
        return self._success(
            topic.name,
            topic.topic_id,
            len(topic.partitions),
            replicas,
            topic.config,
            configs_by_overrides,
        )

    def _success(
        self,
        name: str,
        topic_id: bytes,
        partition_count: int,
        replication_factor: int,
        config: TopicConfig,
        configs_by_overrides: ConfigsByOverrides,
    ) -> CreatableTopicResult:
        overrides = tuple(sorted(config.overrides.items()))
        configs = configs_by_overrides.get(overrides)
        if configs is None:
            configs = configs_by_overrides[overrides] = self._described_configs(config)
        return CreatableTopicResult(
            name=name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=partition_count,
            replication_factor=replication_factor,
            configs=configs,
        )

    def _described_configs(self, config: TopicConfig) -> list[CreatableTopicConfigs]:
        return [
            CreatableTopicConfigs(
                name=each.declared.name,
                value=each.value,
                read_only=each.read_only,
                config_source=each.source,
                is_sensitive=False,
            )
            for each in describe_topic(config, self._cluster.settings)
        ]


def _error_result(name: str, rejection: RequestError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=rejection.error, error_message=rejection.message or None
    )
