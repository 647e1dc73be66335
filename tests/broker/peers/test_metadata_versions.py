"""What nodes support: what a version waits for, which node is rejected, and what people read."""

from __future__ import annotations

import json

from lockstep.broker.metadata.metadata_image import (
    Command,
    MetadataImage,
    NodeEntry,
    node_command,
    place_command,
    remove_node_command,
)
from lockstep.broker.metadata.metadata_version import metadata_version_command
from lockstep.broker.metadata.quota_commands import quota_command
from lockstep.broker.peers.metadata_versions import MAX_REJECTED, TOO_OLD, MetadataVersions
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.types import DirectoryEntry

OLD, NEW = 4, 9
QUOTA = quota_command((("user", "a"),), "producer_byte_rate", 1.0)


class World:
    """Node 1, its metadata, and the nodes that are connected to it."""

    def __init__(self, *node_ids: int, supported: int = NEW) -> None:
        self.image = MetadataImage()
        self.image.supported_version = supported
        self.versions = MetadataVersions(1, self.image)
        self.connected: set[int] = set()
        self.versions.is_connected = self.connected.__contains__
        for node_id in node_ids:
            self.replay(node_command(NodeEntry(node_id)))

    def replay(self, *commands: Command) -> None:
        building = BatchBuilder()
        for command in commands:
            building.append(json.dumps(command).encode(), timestamp_ms=1)
        self.image.replay(DirectoryEntry(1, 0, 1, 1, 0, 1, 0), building.build(), 1)

    def connect(self, node_id: int, supported: int) -> str | None:
        rejection = self.versions.report(node_id, supported)
        if rejection is None:
            self.connected.add(node_id)
        return rejection


def test_a_node_alone_needs_no_waiting() -> None:
    world = World()
    assert not MetadataVersions(1, world.image).is_connected(2)
    assert (world.versions.version_to_found(), world.versions.version_to_record()) == (NEW, NEW)
    world.replay(metadata_version_command(NEW))
    assert world.versions.in_force == NEW
    assert (world.versions.version_to_record(), world.versions.version_to_found()) == (None, None)
    assert world.versions.document() == {
        "version": NEW, "latest": NEW, "features_to_come": [], "waits_for": []
    }  # fmt: skip


def test_a_version_waits_for_every_node_and_one_that_is_down_supports_nothing() -> None:
    world = World(1, 2, 3)
    versions = world.versions
    world.replay(place_command({0: (1, 2, 3), 1: (2, 3, 5)}))
    assert versions.nodes() == [1, 2, 3, 5], "a voter that has not registered yet gets the log, too"
    for node_id in (2, 5):
        assert world.connect(node_id, NEW) is None
    assert versions.version_to_record() is None
    assert versions.find_unsupporting(8) == {3: None}
    assert world.connect(3, OLD) is None
    assert versions.version_to_record() is None
    assert versions.find_unsupporting(8) == {3: OLD} and not versions.find_unsupporting(OLD)
    assert world.connect(3, NEW) is None
    assert versions.version_to_record() == NEW
    world.connected.discard(3)
    assert versions.version_to_record() is None, "it may come back with an earlier Lockstep"
    world.replay(place_command({1: (1, 2, 5)}), remove_node_command(3), place_command({0: (1, 2, 5)}))
    assert versions.version_to_record() == NEW, "it was removed"


def test_a_later_version_rises_to_what_all_support() -> None:
    world = World(1, 2, 3, supported=12)
    world.connect(2, 10)
    world.connect(3, 11)
    assert world.versions.version_to_record() == 10
    assert world.versions.document()["latest"] == 12


def test_a_cluster_is_founded_with_what_is_there_and_waits_for_no_other() -> None:
    world = World()
    world.connect(2, NEW)
    assert world.versions.version_to_found() == NEW
    world.connect(3, OLD)
    assert world.versions.version_to_found() is None
    world.connected.discard(3)
    assert world.versions.version_to_found() == NEW


def test_a_node_that_is_too_old_for_what_is_recorded_is_rejected_and_gets_nothing() -> None:
    world = World(1, 2, 3)
    versions = world.versions
    assert world.connect(2, OLD) is None and versions.may_get_entries(2)
    assert versions.may_get_entries(3), "nothing is recorded that it could not read"
    world.connect(2, NEW)
    world.connect(3, NEW)
    world.replay(metadata_version_command(NEW))
    world.connected.discard(3)
    assert versions.may_get_entries(2) and not versions.may_get_entries(3)
    text = world.connect(3, OLD)
    assert text == versions.rejection_text(3)
    assert text is not None and TOO_OLD in text and "node 3" in text and "9, only up to 4" in text
    assert not versions.may_get_entries(3) and versions.rejection_text(2) is None
    assert versions.document()["waits_for"] == [{"node": 3, "supports": OLD}]
    assert world.connect(3, NEW) is None and versions.rejection_text(3) is None
    assert versions.document()["waits_for"] == []


def test_a_version_counts_while_it_is_appended_and_before_it_is_replayed_again() -> None:
    for name, in_force in (("version_being_appended", OLD), ("version_at_last_stop", NEW)):
        world = World(1, 2)
        setattr(world.versions, name, NEW)
        assert world.connect(2, OLD) is not None
        assert not world.versions.may_get_entries(2)
        assert world.versions.in_force == in_force, "commands of a version come behind its record"


def test_rejected_nodes_that_are_remembered_are_few() -> None:
    world = World(1)
    world.replay(metadata_version_command(NEW))
    for node_id in range(10, 10 + MAX_REJECTED + 5):
        assert world.connect(node_id, OLD)
    assert world.versions.rejection_text(10 + MAX_REJECTED - 1)
    assert world.versions.rejection_text(10 + MAX_REJECTED) is None


def test_the_versions_that_may_join_the_cluster() -> None:
    world = World(1, 2)
    versions = world.versions
    world.connect(2, OLD)
    world.connect(3, OLD)
    assert versions.registration_error(3) is None
    world.replay(QUOTA)  # an earlier Lockstep recorded no version
    assert versions.in_force == 8
    assert versions.registration_error(2) is None, "it has the log already"
    error = versions.registration_error(3)
    assert error is not None and "node 3" in error and "8, only up to 4" in error
    world.connected.discard(3)
    assert versions.registration_error(3) == error, "its request came before its connection was lost"
    assert versions.registration_error(1) is None
    assert versions.registration_error(4), "of a node without a report"
    world.replay(metadata_version_command(NEW))
    assert versions.registration_error(2)


def test_what_people_read() -> None:
    world = World(1, 2, 3)
    world.connect(2, OLD)
    assert world.versions.unsupported_text(8) == (
        "metadata version 8 is needed, the cluster has 4, as node 2 supports up to 4, node 3 is not "
        "connected: start each with the newest Lockstep; `lockstep cluster remove` removes one that is gone"
    )
    assert world.versions.document() == {
        "version": OLD,
        "latest": NEW,
        "features_to_come": ["SCRAM users", "ACLs", "delegation tokens", "client quotas"],
        "waits_for": [{"node": 2, "supports": OLD}, {"node": 3, "supports": None}],
    }
    world.connect(2, NEW)
    world.connect(3, NEW)
    assert world.versions.unsupported_text(8).endswith("which the controller is about to raise: try again")
