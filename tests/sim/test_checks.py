"""Each check that no plant trips first is shown what it must report; and what is right passes."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, NoReturn, cast
from unittest import mock

import pytest

from lockstep.broker.groups.group_records import CommittedOffset, offset_record
from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS_TOPIC_ID
from lockstep.protocol.records.batch import patch_whole, read_header
from lockstep.protocol.records.record import BatchBuilder, key_value_batch
from lockstep.storage.log.format import encode_frame_head
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import HeartbeatResponse, VoteResponse
from lockstep.storage.raft.settings import RaftSettings
from lockstep.storage.raft.transitions import Role
from lockstep.storage.types import DirectoryEntry, Frame, FrameKind, HardState
from tests.sim import rot
from tests.sim.checks import durability
from tests.sim.checks.clients import VALUE_MARK, Clients
from tests.sim.checks.elections import Elections
from tests.sim.checks.history import Entry, History
from tests.sim.checks.machines import kept_epochs
from tests.sim.checks.membership import allowed
from tests.sim.checks.readers import Readers
from tests.sim.faces import Violation
from tests.sim.loop import new_loop
from tests.sim.workloads.groups import RETENTION_MS, TOPIC_ID, Offsets
from tests.support.cases import each_case


class StubWorld:
    """As much of a world as these checks ask for."""

    current = None

    def __init__(self) -> None:
        self.shared: dict[str, object] = {}

    def violate(self, rule: str, text: str) -> NoReturn:
        raise Violation(rule, text)


class StubNode:
    """A node that has committed nothing of its own."""

    damaged = False
    member_id = 2

    def __init__(self) -> None:
        self.group = SimpleNamespace(failed=None, raft=SimpleNamespace(commit_index=0), applied_index=0)


class Story:
    """A history, written entry by entry as a node would commit it."""

    def __init__(self) -> None:
        world: Any = StubWorld()
        self.history = History.of(world)
        self.clients = Clients(world)
        self.readers = Readers(world, self.clients)
        self.world = world
        self._chain = self.history.chain_at(0)
        self._ends: dict[int, int] = {}
        self.lsn = 1
        self.node: Any = StubNode()

    def batch(self, name: str, count: int = 1, **producer: int) -> bytes:
        builder = BatchBuilder(**cast(Any, producer))
        for place in range(count):
            builder.append(timestamp_ms=5, key=None, value=VALUE_MARK + f"{name}.{place}".encode())
        return bytes(builder.build())

    def commit(self, data: bytes, number: int = 1, term: int = 1, lsn: int = 0, base: int = -1) -> None:
        header = read_header(data)
        base_offset = base if base >= 0 else self._ends.get(number, 0)
        placed = bytearray(data)
        patch_whole(placed, base_offset, term)
        entry = DirectoryEntry(
            number, base_offset, header.record_count, len(data), header.crc, term, header.max_timestamp
        )
        index = self.history.last_index + 1
        count = header.record_count
        frame = Frame(FrameKind.DATA, term, index, lsn or self.lsn, 5, [entry], [placed], count)
        self._chain = encode_frame_head(frame, self._chain)[1]
        log = SimpleNamespace(chain_at=lambda _: self._chain)
        group = SimpleNamespace(log=log, raft=SimpleNamespace(term=term))
        self.history._take(cast(Any, SimpleNamespace(group=group)), frame)
        self.lsn += count
        self._ends[number] = base_offset + count


def broken(rule: str) -> Any:
    return pytest.raises(Violation, match=f"^{rule}")


def test_what_is_right_passes() -> None:
    story = Story()
    one, two = story.batch("a", 2), story.batch("b")
    writes = [story.clients.begin(each, VALUE_MARK + name) for each, name in ((one, b"a.0"), (two, b"b.0"))]
    story.commit(one)
    story.commit(two)
    story.clients.acknowledged(writes[0], 1, 0)
    story.clients.acknowledged(writes[1], 1, 2)
    data = [each.data for each in story.history.batches[1]]
    assert story.readers.fetched(story.node, 1, 1, data) == 3
    story.readers.latest(story.node, 1, 3)


def test_lsns_and_offsets_are_dense_and_terms_rise() -> None:
    for rule, how in (
        ("LSNs are dense", {"lsn": 7}),
        ("offsets are dense", {"base": 9}),
        ("terms go back", {"term": 1}),
    ):
        story = Story()
        for name in ("a", "b"):
            story.clients.begin(story.batch(name), VALUE_MARK + name.encode() + b".0")
        story.commit(story.batch("a"), term=2)
        with broken(rule):
            story.commit(story.batch("b"), **{"term": 2, **how})


def test_a_batch_nobody_sent_and_one_sent_once_committed_twice() -> None:
    story = Story()
    with broken("bytes"):
        story.commit(story.batch("stranger"))
    story = Story()
    data = story.batch("a")
    story.clients.begin(data, VALUE_MARK + b"a.0")
    story.commit(data)
    with broken("duplicate"):
        story.commit(data)


def test_acknowledgements() -> None:
    story = Story()
    data = story.batch("a")
    write = story.clients.begin(data, VALUE_MARK + b"a.0")
    with broken("acknowledged, not committed"):
        story.clients.acknowledged(write, 1, 0)
    story.commit(data)
    with broken("acknowledged at another offset"):
        story.clients.acknowledged(write, 1, 4)


def test_a_refused_write_is_visible_before_or_after_the_refusal() -> None:
    story = Story()
    data = story.batch("a")
    write = story.clients.begin(data, VALUE_MARK + b"a.0")
    story.commit(data)
    with broken("a refused write is visible"):
        story.clients.refused(write)
    story = Story()
    write = story.clients.begin(data, VALUE_MARK + b"a.0")
    story.clients.refused(write)
    with broken("a refused write is visible"):
        story.commit(data)
    story = Story()
    write = story.clients.begin(data, VALUE_MARK + b"a.0")
    write.doubtful = True
    story.clients.refused(write)
    story.commit(data)


def test_sequences() -> None:
    story = Story()
    batches = [
        story.batch(name, producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        for name, epoch, sequence in (("a", 0, 0), ("b", 0, 1), ("c", 1, 0), ("d", 1, 3))
    ]
    for name, data in zip("abcd", batches, strict=True):
        story.clients.begin(data, VALUE_MARK + f"{name}.0".encode())
    for data in batches[:3]:
        story.commit(data)
    with broken("sequences"):
        story.commit(batches[3])


def test_reads() -> None:
    story = Story()
    for name in ("a", "b", "c"):
        data = story.batch(name)
        story.clients.begin(data, VALUE_MARK + name.encode() + b".0")
        story.commit(data)
    first, second, third = (each.data for each in story.history.batches[1])
    with broken("offsets skip or go back"):
        story.readers.fetched(story.node, 1, 0, [first, third])
    with broken("offsets skip or go back"):
        story.readers.fetched(story.node, 1, 1, [first])
    with broken("wrong bytes read"):
        story.readers.fetched(story.node, 1, 1, [second[:-1] + b"?"])
    dirty = bytearray(third)
    patch_whole(dirty, 3, 1)
    with broken("uncommitted bytes read"):
        story.readers.fetched(story.node, 1, 2, [third, dirty])


def test_the_first_batch_by_time() -> None:
    story = Story()
    for name in ("a", "b", "c", "d"):
        data = story.batch(name)
        story.clients.begin(data, VALUE_MARK + name.encode() + b".0")
        story.commit(data)
    first_at = story.history.first_at
    assert (first_at(1, 5, 0, 4), first_at(1, 5, 2, 4), first_at(1, 6, 0, 4)) == (0, 2, None)


def test_ends() -> None:
    story = Story()
    data = story.batch("a", 3)
    write = story.clients.begin(data, VALUE_MARK + b"a.0")
    story.commit(data)
    with broken("an end that is not committed"):
        story.readers.showed_end(story.node, 1, 4)
    story.readers.showed_end(story.node, 1, 3)
    with broken("high watermark goes back"):
        story.readers.showed_end(story.node, 1, 2)
    story.clients.acknowledged(write, 1, 0)
    other: Any = StubNode()
    with broken("stale read under a lease"):
        story.readers.latest(other, 1, 0)


def test_a_listener_may_look_at_who_leads() -> None:
    """As it does where it opens a node's log: a leader that is new then is held against the history."""
    story = Story()
    terms = SimpleNamespace(term=3, commit_index=0, last_index=1, role=Role.LEADER, member_id=2)
    log = SimpleNamespace(chain_at=lambda _: story.history.entries[0].chain)
    leader: Any = StubNode()
    leader.group = SimpleNamespace(failed=None, raft=terms, log=log)
    elections = Elections(cast(Any, story.world))
    story.history.listeners.append(lambda _: elections.changed(leader))
    data = story.batch("a")
    story.clients.begin(data, VALUE_MARK + b"a.0")
    story.commit(data, term=2)
    assert (story.history.committed_in, elections.leaders) == ([2], {3: 2})


def test_which_configuration_may_follow_which() -> None:
    three, two = Configuration((1, 2, 3)), Configuration((1, 2))
    joint = Configuration((1, 2), (1, 2, 3))
    assert allowed(three, joint) and allowed(joint, two)
    assert allowed(three, Configuration((1, 2, 3), (), (4,)))
    assert not allowed(three, two)
    assert not allowed(joint, three)
    assert not allowed(two, Configuration((1,), (1, 2, 3)))


def committed(said: tuple[int, int], incarnation: int, ends: dict[int, int]) -> None:
    """Entry 5 of term 2 is committed by three voters whose disks end there; node 1, of that incarnation, has
    said (term, index) as member 1."""
    world: Any = StubWorld()
    world.random = Random
    raft = SimpleNamespace(configuration=Configuration((1, 2, 3)))
    world.nodes = {
        number: SimpleNamespace(
            node_id=number,
            member_id=number | (incarnation if number == 1 else 0) << 32,
            damaged=False,
            group=SimpleNamespace(raft=raft),
        )
        for number in ends
    }
    world.leader = lambda: world.nodes[2]
    check = durability.Durability(world)
    term, index = said
    check.sent(world.nodes[1], HeartbeatResponse(1, 2, term, index, 0))
    entry = cast(Entry, SimpleNamespace(frame=SimpleNamespace(index=5), chain=7, term=2))
    with (
        mock.patch.object(durability, "ONE_IN", 1),
        mock.patch.object(durability, "durable_end", lambda node, _: (ends[node.node_id], 7)),
        mock.patch.object(
            durability,
            "durable_hard_state",
            lambda node: HardState(2, 2, node.member_id >> 32) if ends[node.node_id] else None,
        ),
    ):
        check._committed(entry)


def test_a_majority_of_disks_has_what_is_committed() -> None:
    committed((2, 0), 0, {1: 0, 2: 5, 3: 6})
    rule = "committed without a majority of disks"
    with broken(rule):
        committed((2, 5), 0, {1: 4, 2: 5, 3: 4})  # its disk is there, and has less than was said
    for said, passes in (((2, 5), True), ((2, 4), False), ((1, 5), False)):
        if passes:
            committed(said, 1, {1: 0, 2: 5, 3: 4})  # the disk of member 1 is gone
        else:
            with broken(rule):
                committed(said, 1, {1: 0, 2: 5, 3: 4})


def elected(heard_for_ms: int, after_ms: int, held_up_ms: int = 0, pre: bool = False) -> None:
    """Node 1 answers member 2's heartbeat after so long in one turn, and would elect member 3 in a turn that
    begins `after_ms` after that one did, and is held up as well. The election timeout is 500 ms."""
    world: Any = StubWorld()
    world.now_us, world.push = 7_000_000, lambda *_: None
    raft = SimpleNamespace(leader_id=2, settings=RaftSettings(election_timeout_ms=500))
    check = Elections(world)

    def says(message: object, election_stagger_ms: int) -> None:
        loop = new_loop(world)  # a new life's: where the first turn is killed, it has kept the old one busy
        loop.charge(election_stagger_ms * 1000)
        node: Any = SimpleNamespace(node_id=1, loop=loop, group=SimpleNamespace(raft=raft))
        check.sent(node, message)

    says(HeartbeatResponse(1, 2, 6, 0, 0), heard_for_ms)
    world.now_us += after_ms * 1000
    says(VoteResponse(1, 3, 7, pre, True), held_up_ms)


@each_case("pre", [False, True])
def test_a_leader_is_in_contact_when_its_heartbeat_arrives(pre: bool) -> None:
    """Not when the disk lets the answer leave; and who votes then does so when asked."""
    elected(0, 500, pre=pre)
    elected(4000, 4000, pre=pre)
    for heard_for_ms, after_ms, held_up_ms in ((0, 490, 0), (0, 490, 4000), (400, 490, 0), (4000, 300, 0)):
        with broken("a vote while a leader is heard"):
            elected(heard_for_ms, after_ms, held_up_ms, pre)


def test_an_offset_goes_when_it_is_old_by_the_time_of_its_tombstone() -> None:
    """The frame of a `Story` is as old as one can be, as if it had been open for long."""

    def gone(tombstone_ms: int, clock_ms: int = 90_000) -> None:
        story = Story()
        offsets = Offsets(story.world)
        story.history.topic_ids[1] = CONSUMER_OFFSETS_TOPIC_ID
        offsets.clock_of(cast(Any, SimpleNamespace(clock_ms=lambda: clock_ms)))()
        place = "commits-0-0", "orders", 1
        value = CommittedOffset(7, 0, "m1", 40_000, topic_id=TOPIC_ID)
        for record, time_ms in (
            (offset_record(*place, value), 40_000),
            (offset_record(*place, None), tombstone_ms),
        ):
            story.commit(bytes(key_value_batch([record], time_ms)[0]))
        assert [told for _, told in offsets.values[place]] == [value, None]

    gone(40_000 + RETENTION_MS)
    with broken("a young offset expires"):
        gone(40_000 + RETENTION_MS - 1)
    with broken("a time no clock has told"):
        gone(40_000 + RETENTION_MS, clock_ms=40_000 + RETENTION_MS - 1)


def test_what_is_corrupt_is_waited_for() -> None:
    def looked(
        damaged: bool, rotten: dict[int, bool], is_open: bool = True, others_from: int = 1
    ) -> bool | None:
        log = SimpleNamespace(
            segments=lambda: [SimpleNamespace(sequence=number, first_index=number) for number in (1, 2, 3)],
            scrub=lambda sequence: (1, 2) if sequence in rotten else None,
            rewritable=lambda sequence, later: rotten[sequence] and not (later and sequence == 2),
            oldest_index=1,
        )
        node = SimpleNamespace(damaged=damaged, group=SimpleNamespace(log=log) if is_open else None)
        other = SimpleNamespace(oldest_index=others_from)
        peer = SimpleNamespace(damaged=False, group=SimpleNamespace(log=other))
        return rot.unrepaired(cast(Any, SimpleNamespace(nodes={1: node, 2: peer})))

    assert looked(False, {1: False}) is None
    assert looked(True, {}) is None
    assert looked(True, {}, is_open=False) is False
    assert looked(True, {1: True}) is False
    assert looked(True, {1: True, 2: False}) is True
    # What begins before all others begin must do without that, and needs both checkpoints beyond it.
    assert looked(True, {2: True}, others_from=2) is False
    assert looked(True, {2: True}, others_from=3) is True
    assert looked(True, {1: True}, others_from=3) is False


def test_epochs_that_ended_below_a_log_start_may_be_forgotten_and_no_others() -> None:
    everything = [(1, 0), (4, 10), (7, 20)]
    assert kept_epochs([], 30) == []
    for start, may_go in ((0, 0), (10, 0), (11, 1), (20, 1), (21, 2), (1 << 63, 2)):
        for forgotten in range(len(everything) + 1):
            is_right = kept_epochs(everything[forgotten:], start) == kept_epochs(everything, start)
            assert is_right == (forgotten <= may_go)
