"""The handlers of broker/controller/api on metadata of their own, called without a broker."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from lockstep.broker.controller import api
from lockstep.broker.controller.alter_configs_shared import ConfigAlteration
from lockstep.broker.controller.cluster_status import GroupReports
from lockstep.broker.controller.config_changes import ConfigChanges
from lockstep.broker.controller.damage_reports import DamageReports
from lockstep.broker.controller.forwarder import ControllerForwarder
from lockstep.broker.controller.partition_commands import PartitionCommands
from lockstep.broker.controller.topics import Topics
from lockstep.broker.controller.transfer_requests import TransferRequests
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, Topic
from lockstep.broker.metadata.metadata_image import Command, delete_command, grow_command, grown_command
from lockstep.broker.metadata.topic_validation import TopicPlan
from lockstep.broker.quotas.quota_manager import NO_QUOTAS
from lockstep.broker.requests.errors import RequestError
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.types import StorageFull
from tests.broker.fakes import Caller, FakeMetadata, forget_nothing

NOW_MS = 1_000_000


class FakeTopics(Topics):
    """Checks topics as the controller does, and records them at once: no partition is opened."""

    def __init__(self, metadata: FakeMetadata) -> None:
        commands = PartitionCommands(metadata.cluster, None, forget_nothing)
        super().__init__(metadata.cluster, commands, metadata.nodes.metadata_versions)
        self.metadata = metadata
        self.is_controller = True
        self.failure: RequestError | None = None
        """Fails each creation, growth and deletion."""
        self._room: float = math.inf

    @property
    def leads(self) -> bool:
        return self.is_controller

    async def record(
        self, commands: Sequence[Command], controller_epoch: int | None = None, *, reserved: bool = True
    ) -> None:
        self._room -= 1
        if self._room < 0:
            raise StorageFull("planted")
        self.metadata.record(*commands)

    def fail_after(self, count: int) -> None:
        """Has so many records room, and none then."""
        self._room = count

    async def create(self, plan: TopicPlan) -> Topic:
        self._check_failure()
        return self.add(plan.name, plan.partition_count, plan.overrides)

    def add(self, name: str, partitions: int, overrides: Mapping[str, str] | None = None) -> Topic:
        """Record a topic in group 1."""
        self._reservations.reserve_name(name)
        return self.metadata.add_topic(name, (1,) * partitions, overrides)

    async def grow(self, topic: Topic, partition_count: int) -> None:
        self._check_failure()
        added = [1] * (partition_count - len(topic.partitions))
        self.metadata.record(grow_command(topic.topic_id, added), grown_command(topic.topic_id))

    async def delete(self, topic: Topic) -> None:
        self._check_failure()
        self.metadata.record(delete_command(topic.topic_id))

    def _check_failure(self) -> None:
        if self.failure is not None:
            raise self.failure


class FakeTransfers(TransferRequests):
    """Notes each transfer, (log group, node); fails those to `unwilling` nodes."""

    def __init__(self) -> None:
        super().__init__(None)
        self.begun: list[tuple[int, int]] = []
        self.unwilling: set[int] = set()

    async def begin(self, group_id: int, node_id: int) -> None:
        self.begun.append((group_id, node_id))
        if node_id in self.unwilling:
            raise PeerError("it is not in sync")


class ControllerCaller(Caller):
    """Node 1, the controller, which leads groups 0 and 1, and its handlers."""

    def __init__(self, node_ids: tuple[int, ...] = (1,), **settings: object) -> None:
        if len(node_ids) > 1:
            settings["lockstep_peers"] = tuple(f"{each}@host-{each}:9093" for each in node_ids)
        self.metadata = metadata = FakeMetadata(node_ids, **settings)
        metadata.lead_here(METADATA_GROUP)
        metadata.lead_here(1)
        self.topics, self.transfers = FakeTopics(metadata), FakeTransfers()
        cluster, nodes = metadata.cluster, metadata.nodes
        changes = ConfigChanges(cluster, nodes, self.topics)
        alteration = ConfigAlteration(1, ControllerForwarder(cluster, self.topics, None), changes)
        reports, damage_reports = GroupReports(cluster, None), DamageReports(cluster, nodes, None)
        super().__init__(
            *api.build_handlers(cluster, nodes, self.topics, alteration, NO_QUOTAS),
            *api.build_cluster_handlers(
                cluster, nodes, metadata.endpoints, self.topics, reports, damage_reports,
                cast(TransferRequests, self.transfers), None, lambda: NOW_MS,
            ),
        )  # fmt: skip

    async def create(self, name: str, partitions: int = 1) -> bytes:
        """Record a topic in group 1; returns its id."""
        return self.topics.add(name, partitions).topic_id


@pytest.fixture
def caller() -> ControllerCaller:
    return ControllerCaller()
