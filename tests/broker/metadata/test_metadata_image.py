"""The cluster image: replay, snapshots, and commands it must not guess at."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lockstep.broker.authorization.acl import AclBinding
from lockstep.broker.metadata.metadata_image import (
    Changed,
    Command,
    MetadataImage,
    NodeEntry,
    TopicEntry,
    TopicState,
    acl_command,
    cluster_command,
    configs_command,
    create_command,
    delete_command,
    deleted_command,
    finish_reassignment_command,
    grow_command,
    grown_command,
    node_command,
    parse_node,
    place_command,
    producer_ids_command,
    ready_command,
    remove_acl_command,
    remove_node_command,
    scram_command,
    start_reassignment_command,
    topic_configs_command,
)
from lockstep.broker.metadata.metadata_version import LATEST_VERSION, metadata_version_command
from lockstep.broker.metadata.quota_commands import quota_command
from lockstep.broker.metadata.token_commands import token_command
from lockstep.broker.requests.kafka_principal import KafkaPrincipal
from lockstep.broker.security.delegation_tokens import DelegationToken, NewExpiry, Removal, TokenChange
from lockstep.broker.security.scram import Credential
from lockstep.broker.security.scram_users import ScramChange
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.control_partition import ControlPartition
from lockstep.storage.types import CorruptLog, DirectoryEntry, NewerFormat
from tests.support.cases import each_case

ENTRY = DirectoryEntry(1, 0, 1, 1, 0, 1, 0)
ID = bytes(range(16))
NODE = NodeEntry(2, {"PLAINTEXT": ("two", 9092), "LAN": ("10.0.0.2", 9093)}, ("two", 19092), "rack-b")


def replay(image: MetadataImage, *commands: Command) -> None:
    building = BatchBuilder()
    for command in commands:
        building.append(json.dumps(command).encode(), timestamp_ms=1)
    image.replay(ENTRY, building.build(), 1)


def entry() -> TopicEntry:
    return TopicEntry("t", ID, [1, 2], {"retention.ms": "5"}, TopicState.CREATING)


def test_a_topics_life() -> None:
    image = MetadataImage()
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
    image = MetadataImage()
    replay(image, cluster_command("abc"), cluster_command("xyz"))
    assert image.cluster_id == "abc"
    replay(image, producer_ids_command(2000), producer_ids_command(1000))
    assert image.next_producer_id == 2000


def test_snapshot_and_restore() -> None:
    image = MetadataImage()
    replay(image, cluster_command("abc"), create_command(entry()), ready_command(ID), producer_ids_command(9))
    copy = MetadataImage()
    copy.restore(image.snapshot(1))
    assert copy.snapshot(2) == image.snapshot(1)
    assert copy.topics[ID].state is TopicState.READY
    copy.restore(b"")
    assert (copy.cluster_id, copy.topics, copy.next_producer_id) == (None, {}, 0)


@each_case(
    "command",
    [
        {"do": "frobnicate"},
        {},
        {"do": "create", "topic": "t", "id": "00", "groups": ["x"], "configs": {}},
        {"do": "create", "topic": "t", "id": "00", "groups": [1], "configs": {"a": 1}},
        {"do": "place", "groups": {"1": ["x"]}},
        {"do": "node", "node": 2},
        {"do": "node", "node": "2"},
        {"do": "move", "groups": [1]},
        {"do": "moved", "groups": ["1"]},
        {"do": "frobnicate", "id": ID.hex()},
    ],
)
def test_what_it_does_not_understand_stops_it(command: Command) -> None:
    image = MetadataImage()
    replay(image, create_command(entry()))
    with pytest.raises(CorruptLog):
        replay(image, command)


def test_nodes_come_move_and_go_and_groups_are_placed_on_them() -> None:
    image = MetadataImage()
    replay(image, node_command(NodeEntry(1)), node_command(NODE), place_command({0: (1, 2), 1: (1, 2)}))
    assert image.nodes == {1: NodeEntry(1), 2: NODE}
    replay(image, node_command(NodeEntry(2, peer=("elsewhere", 1))), place_command({1: (2, 1)}))
    assert image.nodes[2].peer == ("elsewhere", 1)
    assert image.placement == {0: (1, 2), 1: (2, 1)}
    replay(image, remove_node_command(2), remove_node_command(9))
    assert list(image.nodes) == [1]


def test_groups_that_move_are_known_by_where_they_come_from() -> None:
    image, copy = MetadataImage(), MetadataImage()
    replay(image, place_command({1: (1, 2), 2: (1, 2)}), start_reassignment_command({1: (2, 3), 2: (2, 1)}))
    assert (image.placement, image.moving) == ({1: (2, 3), 2: (2, 1)}, {1: (1, 2)})
    replay(
        image,
        start_reassignment_command({1: (4, 3)}),
        place_command({1: (3, 4)}),
        finish_reassignment_command([2]),
    )
    assert (image.placement[1], image.moving) == ((3, 4), {1: (1, 2)})
    copy.restore(image.snapshot(1))
    assert copy.moving == image.moving
    replay(copy, finish_reassignment_command([1]))
    assert (copy.placement[1], copy.moving) == ((3, 4), {})
    replay(image, place_command({1: (1, 2)}))  # the cluster, or who cancels, knows better
    assert image.moving == {}
    replay(image, start_reassignment_command({1: (3, 4)}), start_reassignment_command({1: (2, 1)}))
    assert (image.placement[1], image.moving) == ((2, 1), {})


def test_nodes_and_placement_outlive_a_snapshot() -> None:
    image, copy = MetadataImage(), MetadataImage()
    replay(image, node_command(NODE), place_command({0: (2,), 1: (2, 3)}))
    copy.restore(image.snapshot(0))
    assert (copy.nodes, copy.placement) == ({2: NODE}, {0: (2,), 1: (2, 3)})
    copy.restore(b"")
    assert (copy.nodes, copy.placement) == ({}, {})


def test_partitions_are_promised_before_they_are_there() -> None:
    image, copy = MetadataImage(), MetadataImage()
    replay(image, create_command(entry()), grow_command(ID, [2, 1]))
    copy.restore(image.snapshot(0))
    for each in (image, copy):
        assert (each.topics[ID].groups, each.topics[ID].growing) == ([1, 2], [2, 1])
        replay(each, grown_command(ID))
        assert (each.topics[ID].groups, each.topics[ID].growing) == ([1, 2, 2, 1], [])


def test_listeners_are_called_with_the_changes() -> None:
    image = MetadataImage()
    told: list[tuple[Changed, bytes]] = []
    image.changed = lambda what, topic_id: told.append((what, topic_id))
    replay(image, cluster_command("abc"), producer_ids_command(9), create_command(entry()), ready_command(ID))
    replay(
        image,
        configs_command("broker", "", {}),
        node_command(NODE),
        remove_node_command(2),
        place_command({}),
    )
    replay(image, deleted_command(ID))
    image.restore(b"")
    topic, nodes = (Changed.TOPIC, ID), (Changed.NODES, b"")
    assert told == [
        *(topic, topic),
        *((Changed.CONFIGS, b""), nodes, nodes, nodes),
        *(topic, (Changed.EVERYTHING, b"")),
    ]


def test_configurations_are_replaced_as_a_whole() -> None:
    image = MetadataImage()
    replay(image, create_command(entry()), topic_configs_command(ID, {"retention.bytes": "7"}))
    assert image.topics[ID].overrides == {"retention.bytes": "7"}
    replay(image, configs_command("broker", "", {"log.retention.ms": "5"}))
    replay(image, configs_command("broker", "1", {"max.connections": "9"}))
    replay(image, configs_command("group", "g", {"consumer.session.timeout.ms": "50000"}))
    restored = MetadataImage()
    restored.restore(image.snapshot(0))
    assert restored.configs == image.configs
    assert restored.topics[ID].overrides == {"retention.bytes": "7"}
    replay(restored, configs_command("broker", "", {"log.retention.bytes": "1"}))
    replay(restored, configs_command("broker", "1", {}), configs_command("group", "g", {}))
    assert restored.configs == {("broker", ""): {"log.retention.bytes": "1"}}
    restored.restore(b"")
    assert restored.configs == {}


def test_a_configuration_that_comes_after_its_topic_went_is_nobodys() -> None:
    image = MetadataImage()
    replay(image, create_command(entry()), delete_command(ID), deleted_command(ID))
    replay(image, topic_configs_command(ID, {"retention.bytes": "7"}))
    assert image.topics == {}


def test_scram_users_are_set_replaced_and_deleted() -> None:
    image, copy = MetadataImage(), MetadataImage()
    told: list[Changed] = []
    image.changed = lambda change, topic_id: told.append(change)
    first, second = Credential(b"s", b"k", b"v", 4096), Credential(b"", b"l", b"w", 8192)
    before = image.snapshot(0)
    assert json.loads(before)["version"] == 4, "an earlier Lockstep reads it"
    replay(image, scram_command(ScramChange("SCRAM-SHA-256", "a", first)))
    replay(image, scram_command(ScramChange("SCRAM-SHA-512", "a", first)))
    replay(image, scram_command(ScramChange("SCRAM-SHA-256", "a", second)))
    replay(image, scram_command(ScramChange("SCRAM-SHA-256", "nobody", None)))
    assert image.scram == {("SCRAM-SHA-256", "a"): second, ("SCRAM-SHA-512", "a"): first}
    assert told == [Changed.SCRAM] * 4
    copy.restore(image.snapshot(0))
    assert copy.scram == image.scram and json.loads(copy.snapshot(0))["version"] == 5
    replay(copy, scram_command(ScramChange("SCRAM-SHA-512", "a", None)))
    replay(copy, scram_command(ScramChange("SCRAM-SHA-256", "a", None)))
    assert copy.scram == {} and copy.snapshot(0) == before
    with pytest.raises(CorruptLog, match="a SCRAM credential without its parts"):
        replay(copy, {"do": "scram", "mechanism": "SCRAM-SHA-256", "user": "a", "salt": "00"})


def test_the_secret_of_unknown_users_is_the_last_one_recorded() -> None:
    image, copy = MetadataImage(), MetadataImage()
    change = ScramChange("SCRAM-SHA-256", "a", Credential(b"s", b"k", b"v", 4096))
    replay(image, scram_command(change), scram_command(change, b"one"), scram_command(change, b"two"))
    replay(image, scram_command(change), scram_command(ScramChange("SCRAM-SHA-256", "a", None)))
    assert image.scram == {} and image.scram.secret == b"two"
    copy.restore(image.snapshot(0))
    assert copy.scram.secret == b"two" and json.loads(copy.snapshot(0))["version"] == 4
    copy.restore(b"")
    assert copy.scram.secret == b""


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ({"do": "scram", "mechanism": 5, "user": "a", "salt": "00", "stored_key": "c0ffee"}, "scram"),
        ({"do": "node", "node": "c0ffee"}, "node"),
        ({"do": "quota", "entity": "c0ffee"}, "quota"),
        ({"do": "token", "token": "c0ffee"}, "token"),
        ({"do": "c0ffee" * 9}, "c0ffee" * 6 + "c0ff"),
        ({"do": ["c0ffee"]}, "list"),
        ({"of": "c0ffee"}, "NoneType"),
        (["c0ffee"], "list"),
        ("c0ffee", "str"),
    ],
)
def test_the_error_of_an_unknown_command_has_its_kind_and_nothing_secret(
    command: dict[str, object], kind: str
) -> None:
    with pytest.raises(CorruptLog) as failed:
        replay(MetadataImage(), command)
    assert str(failed.value) == f"unknown metadata command: {kind}"


def test_the_error_of_configurations_has_nothing_secret() -> None:
    broken: dict[str, object] = {"do": "configs", "of": "broker", "name": "", "configs": {"p": ["c0ffee"]}}
    with pytest.raises(CorruptLog, match=r"not a table of texts in a metadata command: dict$"):
        replay(MetadataImage(), broken)


def test_delegation_tokens_are_part_of_the_state() -> None:
    image, copy = MetadataImage(), MetadataImage()
    told: list[Changed] = []
    image.changed = lambda change, topic_id: told.append(change)
    alice, bob = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")
    first = DelegationToken("one", alice, bob, (bob, KafkaPrincipal("User", "c")), 1, 30, 20)
    second = DelegationToken("two", bob, bob, (), 2, 30, 20)
    before = image.snapshot(0)
    assert json.loads(before)["version"] == 4, "an earlier Lockstep reads it"
    changes: list[TokenChange] = [
        first, second, NewExpiry("one", 25), NewExpiry("three", 25), Removal("two"), Removal("three"),
    ]  # fmt: skip
    replay(image, *map(token_command, changes))
    assert image.tokens == {"one": replace(first, expiry_ms=25)} and told == [Changed.TOKENS] * 6
    copy.restore(image.snapshot(0))
    assert copy.tokens == image.tokens and json.loads(copy.snapshot(0))["version"] == 7
    replay(copy, token_command(Removal("one")))
    assert copy.snapshot(0) == before
    copy.restore(image.snapshot(0))
    copy.restore(b"")
    assert copy.tokens == {}


@each_case(
    "changed",
    [
        {"token": 5},
        {"owner": ["User"]},
        {"renewers": [["User", 5]]},
        {"renewers": ["User:alice"]},
        {"expires": "tomorrow"},
        {"do": "token_expiry", "expires": None},
    ],
    ids=repr,
)
def test_a_delegation_token_without_its_parts_is_corruption(changed: dict[str, object]) -> None:
    alice = KafkaPrincipal("User", "alice")
    command = token_command(DelegationToken("one", alice, alice, (alice,), 1, 3, 2))
    replay(MetadataImage(), command)
    with pytest.raises(CorruptLog, match=r"in a metadata command|unknown metadata command"):
        replay(MetadataImage(), command | changed)


def test_quotas_are_part_of_the_state() -> None:
    image, copy = MetadataImage(), MetadataImage()
    told: list[Changed] = []
    image.changed = lambda change, topic_id: told.append(change)
    both, default, address = (("user", "a"), ("client-id", None)), (("user", None),), (("ip", "192.0.2.1"),)
    before = image.snapshot(0)
    assert json.loads(before)["version"] == 4, "an earlier Lockstep reads it"
    replay(
        image,
        quota_command(both, "producer_byte_rate", 1024.0),
        quota_command(default, "request_percentage", 0.5),
    )
    replay(image, quota_command(address, "connection_creation_rate", 5.0))
    replay(image, quota_command(both, "producer_byte_rate", 2.0**63))
    replay(image, quota_command(default, "request_percentage", None), quota_command(default, "absent", None))
    assert dict(image.quotas.items()) == {
        both: {"producer_byte_rate": 2.0**63}, address: {"connection_creation_rate": 5.0}
    } and told == [Changed.QUOTAS] * 4, "once for a batch"  # fmt: skip
    copy.restore(image.snapshot(0))
    assert dict(copy.quotas.items()) == dict(image.quotas.items())
    assert json.loads(copy.snapshot(0))["version"] == 8
    replay(copy, quota_command(both, "producer_byte_rate", None))
    replay(copy, quota_command(address, "connection_creation_rate", None))
    assert copy.snapshot(0) == before
    copy.restore(image.snapshot(0))
    copy.restore(b"")
    assert len(copy.quotas) == 0


@each_case(
    "changed",
    [
        {"entity": []},
        {"entity": [["zone", "a"]]},
        {"entity": [["user"]]},
        {"entity": [["user", 5]]},
        {"entity": "user"},
        {"key": 5},
    ],
    ids=repr,
)
def test_a_quota_without_its_parts_is_corruption(changed: dict[str, object]) -> None:
    command = quota_command((("user", "a"),), "producer_byte_rate", 1.0)
    replay(MetadataImage(), command)
    with pytest.raises(CorruptLog, match="metadata command"):
        replay(MetadataImage(), command | changed)


def test_a_state_of_the_first_version_has_no_configurations() -> None:
    image = MetadataImage()
    replay(image, cluster_command("abc"), create_command(entry()))
    state = json.loads(image.snapshot(0))
    for later in ("configs", "growing", "nodes", "placement"):
        del state[later]
    image.restore(json.dumps(state | {"version": 1}).encode())
    assert (image.cluster_id, image.configs, len(image.topics)) == ("abc", {}, 1)


def acl(name: str, host: str = "*") -> AclBinding:
    return AclBinding.of((2, name, 3, "User:a", host, 3, 3))


def test_acls_are_part_of_the_state() -> None:
    image = MetadataImage()
    changes: list[Changed] = []
    image.changed = lambda change, topic_id: changes.append(change)
    replay(image, acl_command(acl("t")), acl_command(acl("u", "10.0.0.0/8")), acl_command(acl("t")))
    replay(image, remove_acl_command(acl("t")), remove_acl_command(acl("nobody's")))
    assert list(image.acls) == [acl("u", "10.0.0.0/8")]
    assert set(changes) == {Changed.ACLS}
    restored = MetadataImage()
    replay(restored, acl_command(acl("v")))
    restored.restore(image.snapshot(0))
    assert list(restored.acls) == [acl("u", "10.0.0.0/8")]
    restored.restore(b"")
    assert not list(restored.acls)


def test_an_earlier_version_reads_a_state_without_acls_alone() -> None:
    image = MetadataImage()
    state = json.loads(image.snapshot(0))
    assert (state["version"], "acls" in state) == (4, False)
    replay(image, acl_command(acl("t")))
    assert json.loads(image.snapshot(0))["version"] == 6


@each_case(
    "parts",
    [
        [2, "t", 3, "User:a", "nowhere", 3, 3],
        [2, "t", 3, "User:a", "*", 99, 3],
        [2, "t", 3, "User:a", "*", 3],
        [2, 5, 3, "User:a", "*", 3, 3],
    ],
    ids=repr,
)
def test_an_acl_that_is_not_known_is_corruption(parts: list[object]) -> None:
    with pytest.raises(CorruptLog, match="not an ACL"):
        replay(MetadataImage(), {"do": "acl", "acl": parts})


def test_a_command_about_access_without_its_parts() -> None:
    with pytest.raises(CorruptLog, match="unknown metadata command"):
        replay(MetadataImage(), {"do": "acl"})


def test_a_state_of_a_newer_version_is_refused_by_name() -> None:
    for machine in (MetadataImage(), ControlPartition()):
        state = json.loads(machine.snapshot(0)) | {"version": 99}
        with pytest.raises(NewerFormat, match="version 99"):
            machine.restore(json.dumps(state).encode())


def test_a_metadata_version_is_recorded_for_ever_and_is_that_of_the_state() -> None:
    image, copy = MetadataImage(), MetadataImage()
    changes: list[Changed] = []
    image.changed = lambda change, topic_id: changes.append(change)
    assert (image.recorded_version, image.metadata_version) == (0, 4)
    replay(image, metadata_version_command(LATEST_VERSION), metadata_version_command(LATEST_VERSION - 1))
    assert (image.recorded_version, image.metadata_version) == (LATEST_VERSION, LATEST_VERSION)
    assert changes == [Changed.NODES] * 2
    assert json.loads(image.snapshot(0))["version"] == LATEST_VERSION
    copy.restore(image.snapshot(0))
    assert (copy.recorded_version, copy.snapshot(0)) == (LATEST_VERSION, image.snapshot(0))
    copy.restore(b"")
    assert copy.recorded_version == 0


def test_a_log_of_an_earlier_lockstep_has_the_version_of_what_it_holds() -> None:
    image = MetadataImage()
    quota = (("user", "a"),), "producer_byte_rate"
    for command, version in (
        (scram_command(ScramChange("SCRAM-SHA-256", "a", Credential(b"s", b"k", b"v", 4096))), 5),
        (acl_command(acl("t")), 6),
        (
            token_command(
                DelegationToken("one", KafkaPrincipal("User", "a"), KafkaPrincipal("User", "a"), (), 1, 3, 2)
            ),
            7,
        ),
        (quota_command(*quota, 1.0), 8),
    ):
        replay(image, command)
        assert (image.metadata_version, image.recorded_version) == (version, 0)
        copy = MetadataImage()
        copy.restore(image.snapshot(0))
        assert (copy.metadata_version, copy.recorded_version) == (version, 0)
    replay(image, quota_command(*quota, None))
    assert image.metadata_version == 7


def test_a_node_of_an_earlier_version_reports_that_in_one_line() -> None:
    older, image = MetadataImage(), MetadataImage()
    older.supported_version = 8
    replay(image, metadata_version_command(9))
    words = r"^the cluster's metadata have version 9, .* up to 8: start a newer"
    with pytest.raises(NewerFormat, match=words):
        replay(older, metadata_version_command(9))
    with pytest.raises(NewerFormat, match=words):
        older.restore(image.snapshot(0))


def test_a_node_entry_is_validated() -> None:
    node = NodeEntry(3, {"PLAINTEXT": ("here", 9092)}, ("here", 19092), "r1")
    assert parse_node(node_command(node)) == node
    nonsense: list[object] = [
        None,
        [],
        {},
        {"do": "gone", "node": 3},
        {"do": "node", "node": "three"},
        {**node_command(node), "listeners": {"PLAINTEXT": ["here"]}},
        {**node_command(node), "listeners": {"PLAINTEXT": ["here", 65536]}},
        {**node_command(node), "peer": ["here", 0]},
    ]
    for command in nonsense:
        with pytest.raises(ValueError, match=r"node|port"):
            parse_node(command)
