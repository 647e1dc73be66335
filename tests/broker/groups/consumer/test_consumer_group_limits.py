"""The memory that members of consumer groups may take, and the time that they may take at once."""

from __future__ import annotations

import pytest

from lockstep.broker.groups.consumer import subscribed_regex
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.groups.consumer.fakes import ConsumerWorld, FakeTopics, outcome

E = ErrorCode
NAMES = [f"{number:0100}" for number in range(100)]


def test_a_member_grows_within_the_memory_of_all_groups_and_a_quarter_more() -> None:
    world = ConsumerWorld(lockstep_groups_max_bytes="60000")
    epochs = [outcome(world.join(member))[1] for member in ("a", "b")]
    assert outcome(world.beat("a", epochs[0], subscribed_topic_names=NAMES))[0] == E.NONE
    rejected = world.beat("b", epochs[1], subscribed_topic_names=NAMES)
    assert outcome(rejected)[0] == E.COORDINATOR_NOT_AVAILABLE
    assert world.group().members["b"].topics == ("t",)
    assert world.coordinator.memory_bytes <= 75_000
    assert outcome(world.beat("b", epochs[1]))[0] == E.NONE
    assert outcome(world.beat("b", epochs[1], subscribed_topic_names=["t", "u"]))[0] == E.NONE
    epoch = world.group().current_of("a").member_epoch
    assert outcome(world.beat("a", epoch, subscribed_topic_names=["t"]))[0] == E.NONE
    epoch = world.group().current_of("b").member_epoch
    assert outcome(world.beat("b", epoch, subscribed_topic_names=NAMES))[0] == E.NONE


def test_a_regex_counts_where_it_is_changed() -> None:
    world = ConsumerWorld(lockstep_groups_max_bytes="60000")
    epoch = outcome(world.join("a"))[1]
    response = world.beat("a", epoch, subscribed_topic_regex="x" * 30_000)
    assert outcome(response)[0] == E.COORDINATOR_NOT_AVAILABLE
    assert outcome(world.join("b", None, regex="x" * 30_000))[0] == E.COORDINATOR_NOT_AVAILABLE
    assert outcome(world.beat("a", epoch, subscribed_topic_regex="x"))[0] == E.NONE


def test_names_count_with_their_objects() -> None:
    world = ConsumerWorld()
    before = world.coordinator.memory_bytes
    world.join("a", [f"{number}" for number in range(1_000)])
    assert world.coordinator.memory_bytes - before > 100_000


# --- regular expressions ------------------------------------------------------------------------------------


@pytest.fixture
def matching(monkeypatch: pytest.MonkeyPatch) -> ConsumerWorld:
    """Ten topics of which one is matched at a time, and a member whose expression is being evaluated."""
    monkeypatch.setattr(subscribed_regex, "MATCHES_AT_ONCE", 1)
    world = ConsumerWorld(FakeTopics(**{f"t{number}": 1 for number in range(10)}))
    world.send(
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="a",
            rebalance_timeout_ms=1,
            subscribed_topic_regex=".*",
            topic_partitions=[],
        )
    )
    return world


def test_others_are_served_while_expressions_are_evaluated(matching: ConsumerWorld) -> None:
    turns = []

    def serve() -> None:
        found = matching.coordinator.consumer.group("g")
        turns.append(found is not None and bool(found.members))
        if found is None or not found.regexes:
            matching.loop.call_soon(serve)

    serve()
    matching.loop.turn()
    assert turns.count(True) > 10
    assert matching.group().regexes[".*"].topics == tuple(f"t{number}" for number in range(10))
    matching.check_replay()


def test_an_evaluation_ends_with_the_leadership_and_the_next_leader_makes_it(matching: ConsumerWorld) -> None:
    resigned = []

    def serve() -> None:
        found = matching.coordinator.consumer.group("g")
        if found is None or not found.members:
            matching.loop.call_soon(serve)
            return
        resigned.append(matching.writes())
        matching.coordinator.resign()

    serve()
    matching.loop.turn()
    assert resigned == [matching.writes()]
    assert not matching.group().regexes
    matching.start()
    epoch = matching.group().current_of("a").member_epoch
    assert outcome(matching.beat("a", epoch))[0] == E.NONE
    assert len(matching.group().regexes[".*"].topics) == 10
