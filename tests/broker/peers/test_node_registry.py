"""Who is there and who leads, by what nodes say of themselves and what this one knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.metadata.metadata_image import MetadataImage, NodeEntry
from lockstep.broker.peers.node_registry import (
    ALIVE_SECONDS,
    LISTED_SECONDS,
    RECONNECT_SECONDS,
    REPAIR_SECONDS,
    NodeRegistry,
)
from lockstep.broker.peers.node_status import Status
from lockstep.broker.requests.endpoint import Endpoint
from lockstep.build_info import build
from lockstep.storage.log.damage import DamagedRange
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import NO_PARTITION, NO_SEGMENT

GROUP = 1


class World:
    """Node 1 and its clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.image = MetadataImage()
        self.nodes = NodeRegistry(1, self.image, {}, lambda: self.now)

    def has_group(self, leader_id: int, term: int) -> None:
        group = SimpleNamespace(leader_id=leader_id, term=term)
        self.nodes.groups = {GROUP: cast(LogGroup, group)}

    def has_connection_from(self, node_id: int, term: int | None) -> None:
        self.nodes.on_status(node_id, Status(leads={} if term is None else {GROUP: term}))


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("disk_full", "is_out_of_space", "is_full"),
    [(False, False, False), (True, False, True), (False, True, True)],
)
def test_whose_disk_is_full(world: World, disk_full: bool, is_out_of_space: bool, is_full: bool) -> None:
    well = SimpleNamespace(
        log=SimpleNamespace(disk_full=False), installer=SimpleNamespace(is_out_of_space=False)
    )
    other = SimpleNamespace(
        log=SimpleNamespace(disk_full=disk_full), installer=SimpleNamespace(is_out_of_space=is_out_of_space)
    )
    world.nodes.groups = {GROUP: cast(LogGroup, well), GROUP + 1: cast(LogGroup, other)}
    world.nodes.on_status(2, Status(disk_full=True))
    world.nodes.on_status(3, Status(disk_full=False))
    world.nodes.on_status(4, Status())
    assert world.nodes.disks_full() == {1: is_full, 2: True, 3: False}


@pytest.mark.parametrize("error", ["", "7.segment: [Errno 5] Input/output error"])
def test_a_node_whose_writes_fail_has_no_full_disk_and_should_not_lead(world: World, error: str) -> None:
    group = SimpleNamespace(
        log=SimpleNamespace(disk_full=False, write_error=error),
        installer=SimpleNamespace(is_out_of_space=False),
    )
    world.nodes.groups = {GROUP: cast(LogGroup, group)}
    world.nodes.on_status(2, Status(disk_full=False, write_failed=True))
    world.nodes.on_status(3, Status(disk_full=True, write_failed=False))
    world.nodes.on_status(4, Status(disk_full=False))
    assert world.nodes.disks_full() == {1: False, 2: False, 3: True, 4: False}
    assert world.nodes.failed_writes() == {1: bool(error), 2: True, 3: False}
    assert world.nodes.unwritable() == {1: bool(error), 2: True, 3: True, 4: False}


@pytest.mark.parametrize("given_up", [False, True])
def test_a_node_that_misses_records_serves_no_consumer_of_their_log_group(
    world: World, given_up: bool
) -> None:
    missing = DamagedRange(0, NO_SEGMENT, 5, 0, 9, "gone", given_up)
    group = SimpleNamespace(
        log=SimpleNamespace(
            damage=SimpleNamespace(missing={5: [missing]}, known=list), first_offset=lambda _: 9
        ),
        control=SimpleNamespace(partitions={5: PartitionLog(5, bytes(16), 0)}),
    )
    world.nodes.groups = {GROUP: cast(LogGroup, group)}
    world.nodes.on_status(2, Status(incomplete=(GROUP, 9)))
    world.nodes.on_status(3, Status(incomplete=(9,)))
    own = set() if given_up else {world.nodes.node_id}
    assert world.nodes.incomplete_local_groups() == (() if given_up else (GROUP,))
    assert world.nodes.incomplete(GROUP) == own | {2}
    assert world.nodes.incomplete(9) == {2, 3}
    assert [world.nodes.may_serve(each, GROUP) for each in (2, 3)] == [False, True]
    assert world.nodes.may_serve(world.nodes.node_id, GROUP) == given_up


def test_a_node_with_damaged_records_serves_no_consumer_unless_they_are_repaired_soon(world: World) -> None:
    ranges = [DamagedRange(0, 4, 5, 3, 9, "gone", False)]
    group = SimpleNamespace(
        log=SimpleNamespace(damage=SimpleNamespace(missing={}, known=lambda: ranges)),
        control=SimpleNamespace(partitions={5: PartitionLog(5, bytes(16), 0)}),
    )
    world.nodes.groups = {GROUP: cast(LogGroup, group)}
    assert world.nodes.incomplete_local_groups() == (GROUP,), "it is known since the start"
    damaged, ranges = ranges, []
    assert world.nodes.incomplete_local_groups() == ()
    ranges = damaged
    assert world.nodes.incomplete_local_groups() == (), "a repair takes a moment"
    world.now += REPAIR_SECONDS
    assert world.nodes.incomplete_local_groups() == (GROUP,)
    for each in (
        DamagedRange(0, 4, 5, 3, 9, "gone", True),
        DamagedRange(0, 4, 6, 3, 9, "of a deleted topic", False),
        DamagedRange(0, 4, NO_PARTITION, 3, 9, "frames, whose records can be read", False),
    ):
        ranges = [each]
        assert world.nodes.incomplete_local_groups() == ()


def test_how_far_a_node_has_followed_the_metadata(world: World) -> None:
    assert not world.nodes.has_followed(2, 1), "it has not been heard"
    world.nodes.on_status(2, Status(applied=7))
    assert world.nodes.has_followed(2, 7) and not world.nodes.has_followed(2, 8)
    assert world.nodes.has_followed(1, 8), "this node looks at what it has"


def test_nobody_is_known_to_lead(world: World) -> None:
    assert world.nodes.leader_of(GROUP) == (-1, 0)
    assert world.nodes.live_leader_of(GROUP) == -1


def test_the_leader_is_the_one_of_the_highest_reported_term(world: World) -> None:
    world.has_connection_from(2, 5)
    world.has_connection_from(3, 4)
    assert world.nodes.leader_of(GROUP) == (2, 5)
    world.has_connection_from(2, None)
    assert world.nodes.leader_of(GROUP) == (-1, 5)


def test_this_node_knows_its_own_group_better(world: World) -> None:
    world.has_connection_from(2, 5)
    world.has_group(3, 5)
    assert world.nodes.leader_of(GROUP) == (3, 5)
    world.has_group(3, 6)
    assert world.nodes.leader_of(GROUP) == (3, 6)


def test_a_group_without_contact_uses_other_nodes_reports(world: World) -> None:
    world.has_connection_from(2, 5)
    for leader_id, term in ((-1, 0), (3, 4), (-1, 5)):
        world.has_group(leader_id, term)
        assert world.nodes.leader_of(GROUP) == (2, 5)
    world.has_group(-1, 6)
    assert world.nodes.leader_of(GROUP) == (-1, 6)


def test_the_last_word_of_a_dead_node_is_not_taken_for_an_election_to_come(world: World) -> None:
    world.has_connection_from(2, 5)
    world.has_group(-1, 5)
    world.now += ALIVE_SECONDS
    assert world.nodes.leader_of(GROUP) == (-1, 5)


def test_listeners_are_called_for_each_status(world: World) -> None:
    leaders: list[tuple[int, int]] = []
    world.nodes.on_notification[lambda: leaders.append(world.nodes.leader_of(GROUP))] = None
    world.has_connection_from(2, 5)
    assert leaders == [(2, 5)], "after the status is taken in"


def test_out_of_sync_nodes_are_those_of_the_last_leaders_last_report(world: World) -> None:
    assert world.nodes.out_of_sync(GROUP) == ()
    world.nodes.on_status(2, Status(leads={GROUP: 5}, out_of_sync={GROUP: (3,)}))
    world.nodes.on_status(3, Status(leads={GROUP: 4}, out_of_sync={GROUP: (1, 2)}))
    assert world.nodes.out_of_sync(GROUP) == (3,), "one that leads no more has not heard of it"
    world.nodes.on_status(2, Status())
    world.nodes.on_process_stopped(2)
    assert world.nodes.out_of_sync(GROUP) == (3,), "without a leader nobody catches up"
    before = world.nodes.client_view()
    world.nodes.set_out_of_sync(GROUP, 6, (2, 3))
    assert world.nodes.out_of_sync(GROUP) == (2, 3), "this node leads"
    after = world.nodes.client_view()
    world.nodes.set_out_of_sync(GROUP, 6, (2,))
    assert world.nodes.out_of_sync(GROUP) == (2,)
    assert len({before, after, world.nodes.client_view()}) == 3, "each time clients are told something else"


# --- who is there -------------------------------------------------------------------------------------------


def test_a_node_that_is_silent_for_long_counts_as_dead(world: World) -> None:
    world.image.nodes = {1: NodeEntry(1), 2: NodeEntry(2), 3: NodeEntry(3)}
    assert world.nodes.alive() == {1}, "this one lives, whoever has been heard"
    world.has_connection_from(2, None)
    world.has_connection_from(9, None)
    assert world.nodes.alive() == {1, 2}, "one that is not recorded does not count"
    before = world.nodes.client_view()
    world.now += ALIVE_SECONDS
    assert world.nodes.alive() == {1}
    assert world.nodes.client_view() != before


def test_a_disconnected_node_counts_as_dead_sooner(world: World) -> None:
    world.nodes.on_connection_lost(2)
    assert not world.nodes.is_alive(2), "nothing was ever heard of it"
    world.has_connection_from(2, None)
    world.nodes.on_connection_lost(2)
    assert world.nodes.is_alive(2)
    world.now += RECONNECT_SECONDS
    assert not world.nodes.is_alive(2)
    world.nodes.on_connection_lost(2)
    assert not world.nodes.is_alive(2), "a second loss does not make it live longer"


def test_whose_process_has_ended_is_dead_at_once(world: World) -> None:
    world.has_connection_from(2, 5)
    world.nodes.on_process_stopped(2)
    assert not world.nodes.is_alive(2)
    assert (world.nodes.leader_of(GROUP), world.nodes.live_leader_of(GROUP)) == ((2, 5), -1)


def test_every_node_is_registered_or_this_one_is_all_there_is(world: World) -> None:
    assert (world.nodes.registered_ids(), world.nodes.entry_of(2)) == ([1], None)
    world.image.nodes = {2: NodeEntry(2), 1: NodeEntry(1)}
    assert (world.nodes.registered_ids(), world.nodes.entry_of(2)) == ([1, 2], NodeEntry(2))


def test_clients_see_nodes_that_are_alive_and_have_their_listener(world: World) -> None:
    here = Endpoint(1, "asked", 1)
    world.image.nodes = {
        1: NodeEntry(1, {"LAN": ("recorded", 11)}),
        2: NodeEntry(2, {"LAN": ("two", 12)}, rack="b"),
        3: NodeEntry(3, {"LAN": ("three", 13)}),
        4: NodeEntry(4, {"WAN": ("four", 14)}),
    }
    world.now += LISTED_SECONDS
    for node_id in (4, 2):
        world.has_connection_from(node_id, None)
    found = world.nodes.endpoints("LAN", here)
    assert found[0] is here, "where this client reached it, whatever is recorded"
    assert [(each.node_id, each.host, each.port, each.rack) for each in found[1:]] == [(2, "two", 12, "b")]
    assert world.nodes.endpoint(1, "LAN", here) is here
    dead = world.nodes.endpoint(3, "LAN", here)
    assert dead is not None and dead.host == "three"
    assert world.nodes.endpoint(4, "LAN", here) is None
    assert world.nodes.endpoint(9, "LAN", here) is None


def test_clients_see_a_dead_node_for_a_while(world: World) -> None:
    world.image.nodes = {n: NodeEntry(n, {"LAN": (str(n), n)}) for n in (1, 2, 3)}
    assert world.nodes.listed() == {1, 2, 3}, "who has just started has heard nobody yet"
    world.now += LISTED_SECONDS
    assert world.nodes.listed() == {1}
    world.has_connection_from(2, None)
    world.has_connection_from(9, None)
    before = world.nodes.client_view()
    world.nodes.on_process_stopped(2)
    world.now += LISTED_SECONDS - 0.5
    assert world.nodes.alive() == {1}
    assert world.nodes.listed() == {1, 2}, "and none that is not recorded"
    assert [each.node_id for each in world.nodes.endpoints("LAN", Endpoint(1, "here", 1))] == [1, 2]
    dead = world.nodes.client_view()
    world.now += 0.5
    assert world.nodes.listed() == {1}
    assert len({before, dead, world.nodes.client_view()}) == 3, "each time clients are told something else"


def test_which_member_each_node_is(world: World) -> None:
    world.nodes.on_status(2, Status(members={GROUP: 1002}))
    world.nodes.on_status(3, Status(members={7: 3}))
    assert world.nodes.member_of(GROUP) == {2: 1002}
    world.nodes.groups = {GROUP: cast(LogGroup, SimpleNamespace(raft=SimpleNamespace(member_id=1)))}
    assert world.nodes.member_of(GROUP) == {1: 1, 2: 1002}


def test_this_node_is_informed_once_it_knows_what_it_knew(world: World) -> None:
    assert not world.nodes.has_replayed_metadata
    group = SimpleNamespace(applied_index=5, recovered_index=6)
    world.nodes.groups = {METADATA_GROUP: cast(LogGroup, group)}
    assert not world.nodes.has_replayed_metadata, "no record of the cluster"
    world.image.cluster_id = "abc"
    assert not world.nodes.has_replayed_metadata
    group.applied_index = 6
    assert world.nodes.has_replayed_metadata
    world.nodes.groups = {}
    assert world.nodes.has_replayed_metadata, "and stays so"


@pytest.mark.parametrize(
    ("status", "misses"),
    [
        (Status(cluster_id="abc", registered=(2, 3), applied=8), True),
        (Status(cluster_id="abc", registered=(1, 2), applied=8), False),
        (Status(cluster_id="abc", registered=(2, 3), applied=7), False),
        (Status(cluster_id="abc", applied=8), False),
        (Status(cluster_id="xyz", registered=(2, 3), applied=8), False),
    ],
)
def test_this_node_is_missed_where_one_of_its_cluster_knows_more(
    world: World, status: Status, misses: bool
) -> None:
    world.image.cluster_id = "abc"
    world.nodes.on_status(2, status)
    assert world.nodes.is_removed_for_peers(7) is misses
    world.now += ALIVE_SECONDS
    assert not world.nodes.is_removed_for_peers(7), "the dead may be out of date"


def test_this_node_counts_where_a_live_node_reports_it(world: World) -> None:
    assert not world.nodes.is_registered_for_peers
    world.nodes.on_status(2, Status(registered=(2, 3)))
    assert not world.nodes.is_registered_for_peers
    world.nodes.on_status(3, Status(registered=(1, 2, 3)))
    assert world.nodes.is_registered_for_peers
    world.now += ALIVE_SECONDS
    assert not world.nodes.is_registered_for_peers


def test_builds_of_the_nodes_that_report_one(world: World) -> None:
    world.nodes.on_status(2, Status(build="0.2.0 abc"))
    world.nodes.on_status(3, Status())
    assert world.nodes.builds() == {1: build(), 2: "0.2.0 abc"}
