"""Random histories of consumer groups: after each step the log replays to the same state, and no partition
has two owners; when the members go on, all of them get what they are to have."""

from __future__ import annotations

import random

import pytest

from lockstep.protocol.errors import ErrorCode
from tests.broker.groups.consumer.fakes import ConsumerWorld, FakeTopics, outcome

MEMBERS = ("a", "b", "c", "d", "e")
NAMES = ("t", "u", "v")
REGEXES = ("t|u", ".*", "v")
STEPS = 120


class Member:
    """A client that behaves: it keeps its epoch and what it was given, and gives up after a while."""

    def __init__(self, name: str, instance: str | None) -> None:
        self.name = name
        self.instance = instance
        self.epoch = 0
        self.owned: dict[str, list[int]] = {}
        self.is_in = False


class History:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = ConsumerWorld(
            FakeTopics(t=4, u=3), group_consumer_assignment_interval_ms=self.random.choice(("0", "1000"))
        )
        self.members = {
            name: Member(name, f"i{name}" if number < 2 else None) for number, name in enumerate(MEMBERS)
        }

    def step(self) -> None:
        choice = self.random.random()
        member = self.members[self.random.choice(MEMBERS)]
        if choice < 0.1:
            self.change_topics()
        elif choice < 0.15:
            self.world.coordinator.resign()
            self.world.start()
        elif choice < 0.3:
            self.world.advance(self.random.choice((10, 1_000, 12_000)))
        elif not member.is_in:
            self.join(member)
        elif choice < 0.36:
            self.leave(member)
        else:
            self.beat(member)
        self.check()

    def change_topics(self) -> None:
        topics, name = self.world.topics, self.random.choice(NAMES)
        topic = topics.topic(name)
        if topic is None:
            topics.create(name, self.random.randint(1, 4))
        elif self.random.random() < 0.5:
            topics.grow(name, len(topic.partitions) + 1)
        else:
            topics.delete(name)
            for each in self.members.values():
                each.owned.pop(name, None)

    def join(self, member: Member) -> None:
        by_name = self.random.random() < 0.7
        response = self.world.join(
            member.name,
            self.random.sample(NAMES, self.random.randint(0, 3)) if by_name else None,
            regex=None if by_name else self.random.choice(REGEXES),
            instance_id=member.instance,
        )
        if response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            return
        assert outcome(response)[0] == ErrorCode.NONE
        member.is_in, member.epoch = True, response.member_epoch
        member.owned = self.world.assigned(response) or {}

    def leave(self, member: Member) -> None:
        epoch = -2 if member.instance is not None and self.random.random() < 0.5 else -1
        response = self.world.beat(member.name, epoch, instance_id=member.instance)
        assert response.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
        member.is_in, member.owned = False, {}

    def beat(self, member: Member) -> None:
        names = None
        if self.random.random() < 0.1:
            names = self.random.sample(NAMES, self.random.randint(0, 3))
        owned = member.owned if self.random.random() < 0.7 else None
        response = self.world.beat(
            member.name, member.epoch, owned, instance_id=member.instance, subscribed_topic_names=names
        )
        if response.error_code:
            assert response.error_code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_ID_NOT_FOUND,
            )
            member.is_in, member.owned = False, {}
            return
        assert response.member_epoch >= member.epoch
        member.epoch = response.member_epoch
        assigned = self.world.assigned(response)
        if assigned is not None:
            member.owned = {name: indexes for name, indexes in assigned.items() if name in NAMES}

    def check(self) -> None:
        group = self.world.coordinator.consumer.group("g")
        if group is None:
            return
        seen: set[tuple[bytes, int]] = set()
        for member_id in group.members:
            current = group.current_of(member_id)
            for partitions in (current.assigned, current.revoked):
                for topic_id, epochs in partitions.items():
                    for index, epoch in epochs.items():
                        assert (topic_id, index) not in seen, f"{index} has two owners"
                        assert epoch <= group.assignment_epoch
                        seen.add((topic_id, index))
        owned = {(topic_id, index) for topic_id, owners in group.owners.items() for index in owners}
        assert owned == seen

    def settle(self) -> None:
        """All members come and stay, and report what they have: the group becomes stable."""
        group = self.world.coordinator.consumer.group("g")
        for _ in range(30):
            self.world.advance(1_500)
            for member in self.members.values():
                if member.is_in:
                    self.beat_well(member)
                else:
                    self.join(member)
            group = self.world.coordinator.consumer.group("g")
            if group is not None and group.state.value == "Stable":
                break
        assert group is not None and group.state.value == "Stable"
        wanted = {
            (topic.topic_id, index)
            for topic in self.world.topics.topics()
            if any(_subscribes(self.world, each, topic.name) for each in group.members)
            for index in topic.partitions
        }
        owned = {(topic_id, index) for topic_id, owners in group.owners.items() for index in owners}
        assert owned == wanted

    def beat_well(self, member: Member) -> None:
        response = self.world.beat(member.name, member.epoch, member.owned, instance_id=member.instance)
        if response.error_code:
            member.is_in, member.owned = False, {}
            return
        member.epoch = response.member_epoch
        assigned = self.world.assigned(response)
        if assigned is not None:
            member.owned = {name: indexes for name, indexes in assigned.items() if name in NAMES}


def _subscribes(world: ConsumerWorld, member_id: str, name: str) -> bool:
    group = world.group()
    member = group.members[member_id]
    resolved = group.regexes.get(member.regex) if member.regex else None
    return name in member.topics or (resolved is not None and name in resolved.topics)


@pytest.mark.parametrize("seed", range(25))
def test_random_histories(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    history.settle()
