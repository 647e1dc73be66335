"""Logs of different lengths, some of them out of reach: what comes of them, in the cases of Waltz's recovery.

The cases are those of its RecoveryManagerTest, by name, with its numbers: a log is (session, last transaction
id), a session is a term, and the newest begins where `begins` says. Two of Waltz's bounds are not ours: where
its votes are recorded in ZooKeeper a majority of the logs need not have what is committed, here it must; and
what was written but not acknowledged may be kept here as well as cut.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.settings import RaftSettings
from lockstep.storage.types import HardState
from tests.storage.raft.planted_faults import FAULTS
from tests.storage.raft.world import Entry, Node, World
from tests.support.cases import each_case

OLD, NEW = 997, 998
Log = tuple[int, int]


class Case(NamedTuple):
    logs: Sequence[Log]
    kept: int
    """The highest transaction id that a majority holds."""
    down: Sequence[int] = ()
    """Members that are not reached at first."""
    added: Sequence[int] = ()
    removed: Sequence[int] = ()
    begins: int = 110


FIVE = [(NEW, 120), (NEW, 120), (NEW, 120), (OLD, 115), (OLD, 115)]
ALL_NEW = [(NEW, 125), (NEW, 125), (NEW, 120), (NEW, 115), (NEW, 115)]
TWO_BEHIND = [(NEW, 120), (NEW, 120), (NEW, 120), (OLD, 105), (OLD, 105)]
THREE = [(NEW, 120), (NEW, 120), (OLD, 115)]

CASES = {
    "testBasic1": Case([(0, 0)] * 5, 0),
    "testBasic2": Case(ALL_NEW, 120),
    "testBasic3": Case(ALL_NEW, 120),
    "testBasic4": Case(TWO_BEHIND, 120),
    "testBasic5": Case(TWO_BEHIND, 120),
    "testBasic6": Case([*TWO_BEHIND[:2], (NEW, 130), *TWO_BEHIND[3:]], 120),
    "testCatchUpReplicas": Case([(NEW, 120)] * 3 + [(OLD, 110), (OLD, 100)], 120, (1, 2), begins=120),
    "testInconsistentStorage1": Case([(NEW, 125), (NEW, 120), *[(OLD, 115)] * 3], 110),
    "testInconsistentStorage2": Case([(NEW, 125), (NEW, 120), (OLD, 130), *[(OLD, 115)] * 2], 110),
    "testReplicaUnavailable1": Case(FIVE, 120, (3,)),
    "testReplicaUnavailable2": Case(FIVE, 120, (3, 4)),
    "testReplicaUnavailable3": Case(
        [(NEW, 120), (NEW, 120), (NEW, 115), (NEW, 115), (NEW, 110)], 115, (1, 5)
    ),
    "testReplicaUnavailable4": Case([(NEW, 120)] * 3 + [(NEW, 115)] * 2, 120, (1, 2)),
    "testReplicaAdded1": Case(THREE, 120, added=(4,)),
    "testReplicaAdded2": Case(THREE, 120, added=(4, 5)),
    "testReplicaAdded3": Case(THREE, 120, (1,), added=(4,)),
    "testReplicaRemoved1": Case(THREE, 120, (1,), removed=(1,)),
    "testReplicaRemoved2": Case(FIVE, 120, (1, 2), removed=(1, 2)),
    "testReplicaReplaced": Case(THREE, 120, (1,), added=(4,), removed=(1,)),
}


def disk_of(log: Log, begins: int) -> dict[int, Entry]:
    """Up to 100 term 1, then the older session is term 2 and the newest term 3."""
    session, last = log
    terms = [1 if at <= 100 else 3 if session == NEW and at > begins else 2 for at in range(last + 1)]
    terms[0] = 0
    return {at: Entry(at, terms[at], terms[at - 1], (terms[at], at)) for at in range(1, last + 1)}


class Recovery:
    """A group that begins with the logs of a case."""

    def __init__(self, case: Case, seed: int) -> None:
        voters = tuple(range(1, len(case.logs) + 1))
        rng = random.Random(seed)
        self.case = case
        self.world = World(Configuration(voters), [*voters, *case.added], RaftSettings(), rng.randrange)
        for member, log in enumerate(case.logs, 1):
            node = self.world.nodes[member]
            node.disk = disk_of(log, case.begins)
            for entry in node.disk.values():
                self.world.laws.written(entry)
            electors = len(case.logs) // 2 + 1  # a majority has been in the newest term
            term = 3 if member <= electors else 2
            node.flushed_hard_state = HardState(term if node.disk else 0)
            node.start()
            node.alive = member not in case.down

    def agreed(self, *members: int) -> Node:
        """The leader, once these members have committed all that it has."""
        for _ in range(2_000):
            self.world.calm_turn()
            leader = next((node for node in self.world.up() if node.raft.is_serving), None)
            if leader is None or leader.raft.configuration.joint:
                continue
            last = max(leader.log)
            if all(self.world.nodes[member].commit_index == last for member in members):
                return leader
        raise AssertionError("they do not agree")


def run(case: Case, seed: int) -> None:
    recovery = Recovery(case, seed)
    nodes = recovery.world.nodes
    voters = [member for member in range(1, len(case.logs) + 1) if member not in case.down]
    leader = recovery.agreed(*voters)
    found = [entry.index for entry in leader.log.values() if entry.value is not None]
    assert case.kept <= max(found, default=0) <= max(last for _, last in case.logs)
    if case.added or case.removed:
        members = [member for member in nodes if member not in case.removed]
        leader.raft.change_members(members)
        leader.drain()
    for member in case.down:
        if member not in case.removed:
            nodes[member].start()
    members = [member for member in nodes if member not in case.removed]
    leader = recovery.agreed(*members)
    assert set(leader.raft.configuration.voters) == set(members)
    first = nodes[members[0]].disk
    for member in members:
        disk = nodes[member].disk
        assert {at: entry.value for at, entry in disk.items()} == {
            at: entry.value for at, entry in first.items()
        }
    assert [first[at].index for at in range(1, case.kept + 1)] == list(range(1, case.kept + 1))
    assert all(first[at].term < leader.raft.term for at in range(1, case.kept + 1))


@each_case("name", CASES)
def test_what_a_majority_has_is_what_all_have_in_the_end(name: str) -> None:
    for seed in range(5):
        run(CASES[name], seed)


def test_recovering_again_changes_nothing() -> None:
    """[testIdempotency] Everybody stops once a leader has been found, and what is there is found again."""
    case = CASES["testReplicaUnavailable4"]._replace(down=())
    recovery = Recovery(case, 0)
    everybody = tuple(recovery.world.nodes)
    before = dict(recovery.agreed(*everybody).log)
    for node in recovery.world.nodes.values():
        node.crash()
        node.start()
    after = recovery.agreed(*everybody).log
    assert [after[at].value for at in before] == [entry.value for entry in before.values()]
    assert [entry.value for at, entry in after.items() if at not in before] == [None], "the new term's no-op"


def test_a_shorter_log_that_wins_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS["a_shorter_log_may_win"](monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(20):
            run(CASES["testReplicaUnavailable4"], seed)
