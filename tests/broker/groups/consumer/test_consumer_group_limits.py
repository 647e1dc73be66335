"""The memory that members of consumer groups may take."""

from __future__ import annotations

from lockstep.protocol.errors import ErrorCode
from tests.broker.groups.consumer.fakes import ConsumerWorld, outcome

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
