"""A cluster's topics, and one coordinator of consumer groups on virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lockstep.broker.groups.consumer.cluster_context import ClusterContext
from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup
from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.groups.group_state import GroupsState
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.consumer_group_describe import DescribedGroup
from lockstep.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.broker.groups.fakes import FakeLoop, FakeStore

Assigned = dict[str, list[int]]
"""Topic -> partitions."""
REBALANCE_MS = 60_000


class FakeTopic:
    def __init__(self, name: str, topic_id: bytes, count: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = range(count)


class FakeTopics:
    """Topics that come, grow and go."""

    def __init__(self, **counts: int) -> None:
        self.changes = 0
        self._by_name: dict[str, FakeTopic] = {}
        self._made = 0
        for name, count in counts.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        self._made += 1
        self.changes += 1
        self._by_name[name] = FakeTopic(name, self._made.to_bytes(16, "big"), count)

    def grow(self, name: str, count: int) -> None:
        self.changes += 1
        self._by_name[name].partitions = range(count)

    def delete(self, name: str) -> None:
        self.changes += 1
        del self._by_name[name]

    def topic(self, name: str | None) -> FakeTopic | None:
        return self._by_name.get(name or "")

    def topic_by_id(self, topic_id: bytes) -> FakeTopic | None:
        return next((each for each in self._by_name.values() if each.topic_id == topic_id), None)

    def topics(self) -> list[FakeTopic]:
        return [self._by_name[name] for name in sorted(self._by_name)]


class ConsumerWorld:
    """One coordinator, its store, and short ways to ask it. After each answer the log is replayed into
    another state, which must come to the same."""

    def __init__(self, topics: FakeTopics | None = None, **settings: str) -> None:
        self.topics = FakeTopics(t=4) if topics is None else topics
        self.configs: dict[str, dict[str, str]] = {}
        self.loop = FakeLoop()
        self.store = FakeStore(self.loop)
        self.settings = from_texts({name.replace("_", "."): text for name, text in settings.items()})
        self.denied: set[str] = set()
        """Topics that the clients may not describe."""
        self._replayed = FakeStore(self.loop)
        self._checked = 0
        self.coordinator = self.start()

    def cluster_context(self) -> ClusterContext:
        return ClusterContext(
            self.topics,
            lambda: self.settings,
            lambda group_id: self.configs.get(group_id, {}),
            lambda: self.topics.changes,
            lambda: self.topics.changes,
        )

    def start(self) -> GroupCoordinator:
        """A new coordinator on the same committed state, as after a restart."""
        store: Any = self.store
        loop: Any = self.loop
        limit = self.settings.message_max_bytes
        self.coordinator = GroupCoordinator(store, self.settings, loop, lambda: limit, self.cluster_context())
        self.coordinator.load()
        return self.coordinator

    # --- requests -----------------------------------------------------------------------------------------

    def send(self, request: ConsumerGroupHeartbeatRequest) -> Any:
        """A heartbeat whose response may still be pending."""
        return self.coordinator.consumer.heartbeat(
            request, "client", "/127.0.0.1", lambda name: name not in self.denied
        )

    def call(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        pending = self.send(request)
        self.loop.turn()
        self.check_replay()
        assert pending.done, "there is no response yet"
        response: ConsumerGroupHeartbeatResponse = pending.response
        return response

    def join(
        self,
        member: str,
        names: Sequence[str] | None = ("t",),
        *,
        group: str = "g",
        regex: str | None = None,
        **more: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        return self.call(
            ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                member_epoch=0,
                rebalance_timeout_ms=more.pop("rebalance_ms", REBALANCE_MS),
                subscribed_topic_names=None if names is None else list(names),
                subscribed_topic_regex=regex,
                topic_partitions=[],
                **more,
            )
        )

    def beat(
        self, member: str, epoch: int, owned: Mapping[str, Iterable[int]] | None = None, **more: Any
    ) -> ConsumerGroupHeartbeatResponse:
        return self.call(
            ConsumerGroupHeartbeatRequest(
                group_id=more.pop("group", "g"),
                member_id=member,
                member_epoch=epoch,
                topic_partitions=None if owned is None else self.owned(owned),
                **more,
            )
        )

    def owned(self, partitions: Mapping[str, Iterable[int]]) -> list[TopicPartitions]:
        found = []
        for name, indexes in partitions.items():
            topic = self.topics.topic(name)
            assert topic is not None
            found.append(TopicPartitions(topic_id=topic.topic_id, partitions=list(indexes)))
        return found

    # --- what is there --------------------------------------------------------------------------------------

    def group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.coordinator.consumer.group(group_id)
        assert group is not None
        return group

    def describe(self, group_id: str = "g") -> DescribedGroup:
        return self.coordinator.consumer.describe(self.group(group_id))

    def state(self, group_id: str = "g") -> tuple[str, int, int]:
        """State, group epoch and assignment epoch."""
        found = self.describe(group_id)
        return found.group_state, found.group_epoch, found.assignment_epoch

    def assigned(self, response: ConsumerGroupHeartbeatResponse) -> Assigned | None:
        """The partitions of a response by topic; None where it has none."""
        if response.assignment is None:
            return None
        return {
            self.name_of(each.topic_id): list(each.partitions)
            for each in response.assignment.topic_partitions
        }

    def has(self, member: str, group_id: str = "g") -> Assigned:
        """What a member has, as committed."""
        found = self.group(group_id).current_of(member).assigned
        return {self.name_of(topic_id): sorted(epochs) for topic_id, epochs in found.items()}

    def name_of(self, topic_id: bytes) -> str:
        topic = self.topics.topic_by_id(topic_id)
        return topic_id.hex() if topic is None else topic.name

    def writes(self) -> int:
        """The number of writes so far."""
        return len(self.store.written)

    def advance(self, ms: float) -> None:
        self.loop.advance(ms)
        self.check_replay()

    def settle(self, *members: str, rounds: int = 20) -> None:
        """Members send heartbeats with what they have until all have what they are to have."""
        for _ in range(rounds):
            self.advance(1_000)
            for member in members:
                found = self.group().current_of(member)
                self.beat(member, found.member_epoch, self.has(member))
            if self.state()[0] == "Stable":
                return
        raise AssertionError(f"the group is {self.state()}")

    def check_replay(self) -> None:
        """The log comes to the same state, and so does a snapshot of it."""
        written = self.store.written
        for _, records in written[self._checked :]:
            self._replayed.apply(records)
        self._checked = len(written)
        assert self._replayed.state == self.store.state
        copy = GroupsState()
        copy.restore(self.store.state.snapshot(0))
        assert copy == self.store.state
        assert copy.consumer_groups.memory_bytes == self.store.state.consumer_groups.memory_bytes


def outcome(response: ConsumerGroupHeartbeatResponse) -> tuple[ErrorCode, int]:
    """Error and member epoch."""
    return ErrorCode(response.error_code), response.member_epoch
