"""The cluster image: replay, snapshots, and commands it must not guess at."""

from __future__ import annotations

import json

import pytest

from broker.cluster_image import (
    ClusterImage,
    Command,
    TopicEntry,
    TopicState,
    cluster_command,
    configs_command,
    create_command,
    delete_command,
    deleted_command,
    producer_ids_command,
    ready_command,
    topic_configs_command,
)
from protocol.records.record import BatchBuilder
from storage.control_partition import ControlPartition
from storage.types import CorruptLog, DirectoryEntry, NewerFormat

ENTRY = DirectoryEntry(1, 0, 1, 1, 0, 1, 0)
ID = bytes(range(16))


def replay(image: ClusterImage, *commands: Command) -> None:
    building = BatchBuilder()
    for command in commands:
        building.append(json.dumps(command).encode(), timestamp_ms=1)
    image.replay(ENTRY, building.build(), 1)


def entry() -> TopicEntry:
    return TopicEntry("t", ID, [1, 2], {"retention.ms": "5"}, TopicState.CREATING)


def test_a_topics_life() -> None:
    image = ClusterImage()
    replay(image, cluster_command("abc"), create_command(entry()))
    made = image.topics[ID]

    def state() -> TopicState:
        return image.topics[ID].state

    assert (made.name, made.groups, made.overrides) == ("t", [1, 2], {"retention.ms": "5"})
    assert state() is TopicState.CREATING
    replay(image, ready_command(ID))
    assert state() is TopicState.READY
    replay(image, delete_command(ID))
    assert state() is TopicState.DELETING
    replay(image, deleted_command(ID))
    assert image.topics == {}


def test_the_cluster_id_never_changes_and_producer_ids_never_go_back() -> None:
    image = ClusterImage()
    replay(image, cluster_command("abc"), cluster_command("xyz"))
    assert image.cluster_id == "abc"
    replay(image, producer_ids_command(2000), producer_ids_command(1000))
    assert image.next_producer_id == 2000


def test_snapshot_and_restore() -> None:
    image = ClusterImage()
    replay(image, cluster_command("abc"), create_command(entry()), ready_command(ID), producer_ids_command(9))
    copy = ClusterImage()
    copy.restore(image.snapshot(1))
    assert copy.snapshot(2) == image.snapshot(1)
    assert copy.topics[ID].state is TopicState.READY
    copy.restore(b"")
    assert (copy.cluster_id, copy.topics, copy.next_producer_id) == (None, {}, 0)


@pytest.mark.parametrize(
    "command",
    [
        {"do": "frobnicate"},
        {},
        {"do": "create", "topic": "t", "id": "00", "groups": ["x"], "configs": {}},
        {"do": "create", "topic": "t", "id": "00", "groups": [1], "configs": {"a": 1}},
    ],
)
def test_what_it_does_not_understand_stops_it(command: Command) -> None:
    with pytest.raises(CorruptLog):
        replay(ClusterImage(), command)


def test_configurations_are_replaced_as_a_whole() -> None:
    image = ClusterImage()
    replay(image, create_command(entry()), topic_configs_command(ID, {"retention.bytes": "7"}))
    assert image.topics[ID].overrides == {"retention.bytes": "7"}
    replay(image, configs_command("broker", "", {"log.retention.ms": "5"}))
    replay(image, configs_command("broker", "1", {"max.connections": "9"}))
    replay(image, configs_command("group", "g", {"consumer.session.timeout.ms": "50000"}))
    restored = ClusterImage()
    restored.restore(image.snapshot(0))
    assert restored.configs == image.configs
    assert restored.topics[ID].overrides == {"retention.bytes": "7"}
    replay(restored, configs_command("broker", "", {"log.retention.bytes": "1"}))
    replay(restored, configs_command("broker", "1", {}), configs_command("group", "g", {}))
    assert restored.configs == {("broker", ""): {"log.retention.bytes": "1"}}
    restored.restore(b"")
    assert restored.configs == {}


def test_a_configuration_that_comes_after_its_topic_went_is_nobodys() -> None:
    image = ClusterImage()
    replay(image, create_command(entry()), delete_command(ID), deleted_command(ID))
    replay(image, topic_configs_command(ID, {"retention.bytes": "7"}))
    assert image.topics == {}


def test_a_state_of_the_first_version_has_no_configurations() -> None:
    image = ClusterImage()
    replay(image, cluster_command("abc"), create_command(entry()))
    state = json.loads(image.snapshot(0))
    del state["configs"]
    image.restore(json.dumps(state | {"version": 1}).encode())
    assert (image.cluster_id, image.configs, len(image.topics)) == ("abc", {}, 1)


def test_a_state_of_a_newer_version_is_refused_by_name() -> None:
    for machine in (ClusterImage(), ControlPartition()):
        state = json.loads(machine.snapshot(0)) | {"version": 99}
        with pytest.raises(NewerFormat, match="version 99"):
            machine.restore(json.dumps(state).encode())
