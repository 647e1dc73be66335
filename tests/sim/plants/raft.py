"""Plants in the Raft core: elections, replication, leases, members, transfers, installs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from lockstep.storage.raft import (
    election,
    follower,
    install,
    lease,
    membership,
    replication,
    role_changes,
    transfer,
)
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import Append, VoteRequest
from lockstep.storage.raft.progress import Progress
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.ready import Ready
from lockstep.storage.raft.settings import LONG_AGO_MS, RaftSettings
from lockstep.storage.raft.state import NOBODY, LeaderState
from lockstep.storage.snapshot_install import SnapshotInstaller
from lockstep.storage.types import HardState
from tests.sim.faces import Plant

ELECTIONS = {
    "faults": ("isolate leader", "kill", "pause", "partition"),
    "fault_every_ms": 600,
    "nodes": 3,
    "rot": False,
}
"""Leaders come and go, so that new ones find what old ones left behind."""
LATE = {**ELECTIONS, "late": 0.3, "duplication": 0.5, "delay_us": 10_000}
"""Messages that overtake others, and come twice."""
Patched = AbstractContextManager[Any]


def replaced(owner: Any, name: str, new: Any) -> Callable[[], Patched]:
    """Put `new` in the place of something."""
    return lambda: patch.object(owner, name, new)


# --- elections ----------------------------------------------------------------------------------------------


@contextmanager
def vote_before_hard_state() -> Iterator[None]:
    real = Raft.ready

    def ready(self: Raft) -> Ready:
        if not (self.hard_state_pending and self.outbox):
            return real(self)
        self.hard_state_pending, self.hard_state_flushed = False, True
        found = real(self)
        self.hard_state_pending, self.hard_state_flushed = True, False
        return found

    with patch.object(Raft, "ready", ready):
        yield


@contextmanager
def votes_twice() -> Iterator[None]:
    real = election.on_vote_request

    def on_vote_request(raft: Raft, request: VoteRequest) -> None:
        if not request.pre and raft.voted_for != raft.member_id:
            raft.voted_for = NOBODY
        real(raft, request)

    with patch.object(election, "on_vote_request", on_vote_request), _handler(VoteRequest, on_vote_request):
        yield


@contextmanager
def _handler(kind: type, function: Callable[..., None]) -> Iterator[None]:
    from lockstep.storage.raft import raft

    with patch.dict(raft.HANDLERS, {kind: function}):
        yield


@contextmanager
def vote_forgotten() -> Iterator[None]:
    real = Raft.__init__

    def init(self: Raft, member_id: int, configurations: Any, hard_state: HardState, *rest: Any) -> None:
        real(self, member_id, configurations, HardState(hard_state.term), *rest)

    with patch.object(Raft, "__init__", init):
        yield


def prevote_off(raft: Raft) -> None:
    election.start_election(raft, transfer=False)


@contextmanager
def restart_breaks_promise() -> Iterator[None]:
    real = Raft.__init__

    def init(self: Raft, *rest: Any) -> None:
        real(self, *rest)
        self.leader_contact_ms = LONG_AGO_MS
        self.election_due_ms = self.now_ms

    with patch.object(Raft, "__init__", init):
        yield


@contextmanager
def whole_log_not_asked() -> Iterator[None]:
    """A voter does not compare logs."""
    real = election.on_vote_request

    def on_vote_request(raft: Raft, request: VoteRequest) -> None:
        request.last_term, request.last_index = raft.terms.last_term + 1, raft.terms.last_index
        real(raft, request)

    with _handler(VoteRequest, on_vote_request):
        yield


# --- replication --------------------------------------------------------------------------------------------


@contextmanager
def older_term_counted() -> Iterator[None]:
    real = replication.advance_commit

    def advance_commit(raft: Raft, leader_state: LeaderState) -> None:
        index, leader_state.no_op_index = leader_state.no_op_index, min(1, leader_state.no_op_index)
        real(raft, leader_state)
        leader_state.no_op_index = index

    with patch.object(replication, "advance_commit", advance_commit):
        yield


def follower_commits_unverified(raft: Raft) -> None:
    commit_index = min(raft.follower_state.leader_commit, raft.persisted_index)
    raft.commit_index = max(raft.commit_index, commit_index)


def follower_commits_unflushed(raft: Raft) -> None:
    commit_index = min(raft.follower_state.leader_commit, raft.follower_state.verified_index)
    raft.commit_index = max(raft.commit_index, commit_index)


@contextmanager
def cuts_where_request_ends() -> Iterator[None]:
    real = follower._first_difference

    def first_difference(raft: Raft, append: Append) -> int:
        if append.last_index < raft.terms.last_index:
            return append.last_index
        return real(raft, append)

    with patch.object(follower, "_first_difference", first_difference):
        yield


@contextmanager
def cuts_committed_entries() -> Iterator[None]:
    real = follower._truncate

    def cut(raft: Raft, last_index: int) -> None:
        commit_index, raft.commit_index = raft.commit_index, min(raft.commit_index, last_index)
        real(raft, last_index)
        raft.commit_index = commit_index

    with cuts_where_request_ends(), patch.object(follower, "_truncate", cut):
        yield


@contextmanager
def stale_completion() -> Iterator[None]:
    real = Raft.on_persisted

    def on_persisted(self: Raft, index: int, term: int, truncation_count: int, *now_ms: int) -> None:
        real(self, index, self.terms.term_at(index) or term, self.truncation_count, *now_ms)

    with patch.object(Raft, "on_persisted", on_persisted):
        yield


@contextmanager
def acknowledged_before_flush() -> Iterator[None]:
    def acknowledge(raft: Raft, prev_index: int, last_index: int) -> None:
        index, raft.persisted_index = raft.persisted_index, max(raft.persisted_index, last_index)
        follower._respond(raft, prev_index)
        raft.persisted_index = index

    with patch.object(follower, "acknowledge", acknowledge):
        yield


# --- leases -------------------------------------------------------------------------------------------------


def lease_without_quorum(_raft: Raft, leader_state: LeaderState, _now_ms: int) -> bool:
    return leader_state.is_serving


@contextmanager
def lease_kept_over_transfer() -> Iterator[None]:
    real = lease.has_lease

    def has_lease(raft: Raft, leader_state: LeaderState, now_ms: int) -> bool:
        dropped, leader_state.lease_dropped = leader_state.lease_dropped, False
        found = real(raft, leader_state, now_ms)
        leader_state.lease_dropped = dropped
        return found

    with patch.object(lease, "has_lease", has_lease):
        yield


@contextmanager
def lease_from_receipt() -> Iterator[None]:
    real = Progress.on_response

    def on_response(self: Progress, sent_ms: int, now_ms: int) -> bool:
        return real(self, now_ms, now_ms)

    with patch.object(Progress, "on_response", on_response):
        yield


# --- members, transfers, installs ---------------------------------------------------------------------------

STRANGER = 999
"""A learner that is no node: what the eager administrator adds and removes."""


@contextmanager
def _eager() -> Iterator[None]:
    """An administrator who asks for a change the moment somebody leads."""
    real = election._become_leader

    def lead(raft: Raft) -> None:
        real(raft)
        assert raft.leader_state is not None
        now = raft.configurations.current
        learners = [STRANGER] if not now.learners else []
        try:
            membership.change(raft, raft.leader_state, now.voters, learners)
        except membership.ConfigurationRejected:
            return

    with patch.object(election, "_become_leader", lead):
        yield


@contextmanager
def change_before_no_op() -> Iterator[None]:
    def settled(leader_state: LeaderState) -> None:
        if leader_state.next_configuration is not None:
            raise membership.ConfigurationRejected("one is about to be appended")

    with _eager(), patch.object(membership, "require_no_pending_change", settled):
        yield


@contextmanager
def two_changes_at_once() -> Iterator[None]:
    real = membership.append_next

    def append_next(raft: Raft, leader_state: LeaderState) -> tuple[int, Configuration]:
        index, configuration = real(raft, leader_state)
        if not configuration.joint and STRANGER not in configuration.learners:
            more = (*configuration.learners, STRANGER)
            leader_state.next_configuration = Configuration(configuration.voters, (), more)
        return index, configuration

    with patch.object(membership, "append_next", append_next):
        yield


@contextmanager
def change_without_joint() -> Iterator[None]:
    real = membership.change

    def change(raft: Raft, leader_state: LeaderState, voters: Any, learners: Any) -> None:
        real(raft, leader_state, voters, learners)
        wanted = leader_state.next_configuration
        assert wanted is not None
        leader_state.next_configuration = Configuration(wanted.voters, (), wanted.learners)

    with patch.object(membership, "change", change):
        yield


@contextmanager
def older_install_taken() -> Iterator[None]:
    def is_needed(raft: Raft, index: int, last_term: int) -> bool:
        return index < raft.commit_index or raft.terms.term_at(index) != last_term

    with (
        patch.object(install, "is_needed", is_needed),
        patch.object(
            SnapshotInstaller, "abort_if_passed", lambda self, commit_index: None
        ),  # the second line of defence
    ):
        yield


MEMBERS = {"faults": ("remove voter", "add learner", "isolate leader", "kill"), "nodes": 3}

PLANTS = (
    Plant(
        "vote-before-hard-state",
        "messages leave before the hard state that they rest on is flushed",
        vote_before_hard_state,
        source="etcd #10000",
    ),
    Plant(
        "votes-twice",
        "a voter forgets within a term whom it has voted for",
        votes_twice,
        overrides={**LATE, "election_timeout_ms": 500},
        source="Raft paper, figure 2",
    ),
    Plant(
        "vote-forgotten",
        "a restart keeps the term and forgets the vote",
        vote_forgotten,
        overrides=ELECTIONS,
        source="docs/storage_rules.md: forgotten vote",
    ),
    Plant(
        "prevote-off",
        "whoever hears no leader stands at once, and raises the term",
        replaced(election, "start_pre_vote", prevote_off),
        source="CockroachDB #104042",
    ),
    Plant(
        "logs-not-compared",
        "a voter votes for a log that is behind its own",
        whole_log_not_asked,
        overrides=ELECTIONS,
        source="NATS #7549, #7556: whoever has a hole is elected",
    ),
    Plant(
        "lease-rule-off",
        "a voter elects another although it has just heard its leader",
        replaced(role_changes, "has_live_leader", lambda raft: False),
        overrides=ELECTIONS,
        source="etcd raft: a lease needs CheckQuorum",
    ),
    Plant(
        "restart-breaks-promise",
        "a voter that restarts elects another leader although it has just heard one",
        restart_breaks_promise,
        overrides={**ELECTIONS, "faults": ("kill", "isolate leader", "pause"), "fault_every_ms": 300},
        source="Ongaro's thesis, section 6.4.1",
    ),
    Plant(
        "older-term-counted",
        "entries of an older term are committed by counting who has them",
        older_term_counted,
        overrides=ELECTIONS,
        source="LogCabin #44; Raft paper, figure 8",
    ),
    Plant(
        "follower-commits-unverified",
        "a follower commits what it has not compared with its leader",
        replaced(follower, "follow_commit", follower_commits_unverified),
        overrides=ELECTIONS,
        source="Raft paper, figure 2",
    ),
    Plant(
        "follower-commits-unflushed",
        "a follower commits what is not on its disk yet",
        replaced(follower, "follow_commit", follower_commits_unflushed),
        overrides={"flush_us": 4000, "nodes": 3},
        source="docs/storage_rules.md: follower commit; Redpanda #14794",
    ),
    Plant(
        "acknowledged-before-flush",
        "a follower acknowledges entries before they are on its disk",
        acknowledged_before_flush,
        overrides={"nodes": 3},
        source="etcd #10508, #14370; Redpanda #14794",
    ),
    Plant(
        "cuts-where-request-ends",
        "a follower cuts its log where a request ends, not where terms differ",
        cuts_where_request_ends,
        overrides=LATE,
        source="seed 001; etcd-io/raft",
    ),
    Plant(
        "cuts-committed-entries",
        "the same, and nothing stops it at the commit index",
        cuts_committed_entries,
        overrides=LATE,
        source="Redpanda #16475",
    ),
    Plant(
        "stale-completion",
        "the completion of a write from before a truncation counts",
        stale_completion,
        overrides={**ELECTIONS, "flush_us": 4000, "think_ms": 50},
        source="docs/storage_rules.md: stale completions; etcd-io/raft, async_storage_writes_append_aba_race",
    ),
    Plant(
        "lease-without-quorum",
        "a leader believes in its lease without hearing from anybody",
        replaced(lease, "has_lease", lease_without_quorum),
        overrides=ELECTIONS,
        source="etcd raft: a lease needs CheckQuorum",
    ),
    Plant(
        "lease-too-long",
        "a lease lasts three election timeouts",
        replaced(RaftSettings, "lease_ms", property(lambda self: 3 * self.election_timeout_ms)),
        overrides=ELECTIONS,
        source="Ongaro's thesis, section 6.4.1",
    ),
    Plant(
        "lease-from-receipt",
        "a lease counts from when an answer came, not from when the question went",
        lease_from_receipt,
        overrides={**ELECTIONS, "faults": ("clog", "isolate leader", "swizzle", "pause")},
        source="Ongaro's thesis, section 6.4.1",
    ),
    Plant(
        "lease-kept-over-transfer",
        "a leader that told another to stand keeps its lease",
        lease_kept_over_transfer,
        overrides={**LATE, "faults": ("transfer",), "fault_every_ms": 300},
        source="Ongaro's thesis, section 6.4.1; etcd raft",
    ),
    Plant(
        "transfer-never-ends",
        "a transfer whose target does not take over is waited for, for ever",
        replaced(transfer, "expire", lambda raft, leader_state: True),
        overrides={"faults": ("transfer", "kill", "partition", "pause"), "fault_every_ms": 300, "nodes": 3},
        source="NuRaft #463; Redpanda #2591, #8724",
    ),
    Plant(
        "change-before-no-op",
        "members change before an entry of the leader's term is committed",
        change_before_no_op,
        overrides=ELECTIONS,
        source="Ongaro, raft-dev 2015; braft #182",
    ),
    Plant(
        "two-changes-at-once",
        "a second configuration is appended before the first is committed",
        two_changes_at_once,
        overrides=MEMBERS,
        source="Raft paper, section 6",
    ),
    Plant(
        "change-without-joint",
        "voters change from one configuration to the next without a joint one",
        change_without_joint,
        overrides=MEMBERS,
        source="Raft paper, section 6",
    ),
    Plant(
        "older-install-taken",
        "a shipped checkpoint is taken although the log is further",
        older_install_taken,
        overrides={**LATE, "segment_bytes": 64 << 10, "think_ms": 50, "kept_entries": 8},
        workload="appends",
        source="etcd + Antithesis #3; Redpanda #3377",
    ),
)
