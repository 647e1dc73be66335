"""Mistakes that others made, put into the core for the length of a test (research/reliability, section 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lockstep.storage.raft import (
    election,
    follower,
    membership,
    raft,
    replication,
    role_changes,
    term_checks,
    transfer,
)
from lockstep.storage.raft.configuration import Configuration, ConfigurationStack
from lockstep.storage.raft.messages import Append, AppendResponse, Message, VoteRequest, VoteResponse
from lockstep.storage.raft.progress import Progress
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.settings import RaftSettings
from lockstep.storage.raft.state import LeaderState
from lockstep.storage.raft.transitions import Role
from lockstep.storage.types import HardState

Patch = pytest.MonkeyPatch


def older_terms_commit_by_counting(patch: Patch) -> None:
    def advance(core: Raft, leader_state: LeaderState) -> None:
        no_op_index, leader_state.no_op_index = leader_state.no_op_index, min(leader_state.no_op_index, 1)
        real(core, leader_state)
        leader_state.no_op_index = no_op_index

    real = replication.advance_commit
    patch.setattr(replication, "advance_commit", advance)


def votes_are_answered_before_they_are_flushed(patch: Patch) -> None:
    def ready(self: Raft) -> Any:
        self.hard_state_flushed = True
        return real(self)

    real = Raft.ready
    patch.setattr(Raft, "ready", ready)


def stale_completions_count(patch: Patch) -> None:
    def on_persisted(self: Raft, index: int, term: int, _truncation_count: int, *now_ms: int) -> None:
        real(self, index, term, self.truncation_count, *now_ms)

    real = Raft.on_persisted
    patch.setattr(Raft, "on_persisted", on_persisted)


def stale_hard_states_count(patch: Patch) -> None:
    def on_persisted(self: Raft, _hard_state: HardState) -> None:
        real(self, HardState(self.term, self.voted_for))

    real = Raft.on_hard_state_persisted
    patch.setattr(Raft, "on_hard_state_persisted", on_persisted)


def entries_are_acknowledged_before_they_are_flushed(patch: Patch) -> None:
    def acknowledge(core: Raft, prev_index: int, last_index: int) -> None:
        flushed, core.persisted_index = core.persisted_index, core.last_index
        real(core, prev_index, last_index)
        core.persisted_index = flushed

    real = follower.acknowledge
    patch.setattr(follower, "acknowledge", acknowledge)


def the_leader_counts_what_it_has_not_flushed(patch: Patch) -> None:
    def advance(core: Raft, leader_state: LeaderState) -> None:
        flushed, core.persisted_index = core.persisted_index, core.last_index
        real(core, leader_state)
        core.persisted_index = flushed

    real = replication.advance_commit
    patch.setattr(replication, "advance_commit", advance)


def logs_end_where_requests_end(patch: Patch) -> None:
    def on_append(core: Raft, append: Append) -> None:
        if append.term == core.term and core.commit_index <= append.last_index < core.last_index:
            follower._truncate(core, append.last_index)
        real(core, append)

    real = follower.on_append
    patch.setitem(raft.HANDLERS, Append, on_append)


def followers_commit_what_is_not_verified(patch: Patch) -> None:
    def follow(core: Raft) -> None:
        core.commit_index = max(
            core.commit_index, min(core.follower_state.leader_commit, core.persisted_index)
        )

    patch.setattr(follower, "follow_commit", follow)


def followers_ignore_the_entry_before(patch: Patch) -> None:
    def on_append(core: Raft, append: Append) -> None:
        term = core.terms.term_at(append.prev_index)
        if term is not None and term <= append.prev_term:
            append.prev_term = term
        real(core, append)

    real = follower.on_append
    patch.setitem(raft.HANDLERS, Append, on_append)


def pre_votes_count_as_votes(patch: Patch) -> None:
    def on_response(core: Raft, response: VoteResponse) -> None:
        if core.role is Role.CANDIDATE:
            response.pre = False
        real(core, response)

    real = election.on_vote_response
    patch.setitem(raft.HANDLERS, VoteResponse, on_response)


def a_shorter_log_may_win(patch: Patch) -> None:
    def on_request(core: Raft, request: VoteRequest) -> None:
        request.last_term = max(request.last_term, core.terms.last_term)
        request.last_index = max(request.last_index, core.last_index)
        real(core, request)

    real = election.on_vote_request
    patch.setitem(raft.HANDLERS, VoteRequest, on_request)


def two_votes_in_a_term(patch: Patch) -> None:
    def on_request(core: Raft, request: VoteRequest) -> None:
        if core.voted_for != core.member_id:
            core.voted_for = -1
        real(core, request)

    real = election.on_vote_request
    patch.setitem(raft.HANDLERS, VoteRequest, on_request)


def answers_of_earlier_terms_count(patch: Patch) -> None:
    def admit(core: Raft, message: Message) -> bool:
        return real(core, message) or (isinstance(message, AppendResponse) and message.term < core.term)

    real = term_checks.admit
    patch.setattr(term_checks, "admit", admit)


def joint_configurations_ask_only_the_new(patch: Patch) -> None:
    patch.setattr(Configuration, "voter_sets", lambda self: (self.voters,))


def configurations_outlive_their_entries(patch: Patch) -> None:
    patch.setattr(ConfigurationStack, "truncate", lambda self, last_index: None)


def changes_do_not_wait_for_each_other(patch: Patch) -> None:
    patch.setattr(membership, "require_no_pending_change", lambda leader_state: None)


def voters_forget_the_leader_they_hear(patch: Patch) -> None:
    patch.setattr(role_changes, "has_live_leader", lambda core: core.role is Role.LEADER)


def a_restart_forgets_the_promise(patch: Patch) -> None:
    def init(self: Raft, *args: Any) -> None:
        real(self, *args)
        self.leader_contact_ms = -(1 << 62)

    real = Raft.__init__
    patch.setattr(Raft, "__init__", init)


def the_lease_survives_a_transfer(patch: Patch) -> None:
    def send_timeout_now(core: Raft, progress: Progress) -> None:
        real(core, progress)
        if core.leader_state is not None:
            core.leader_state.lease_dropped = False

    real = transfer.send_timeout_now
    patch.setattr(transfer, "send_timeout_now", send_timeout_now)


def the_lease_lasts_too_long(patch: Patch) -> None:
    patch.setattr(RaftSettings, "lease_ms", property(lambda self: 2 * self.election_timeout_ms))


def the_lease_counts_from_the_answer(patch: Patch) -> None:
    def on_response(self: Progress, _sent_ms: int, now_ms: int) -> bool:
        return real(self, now_ms, now_ms)

    real = Progress.on_response
    patch.setattr(Progress, "on_response", on_response)


FAULTS: dict[str, Callable[[Patch], None]] = {
    fault.__name__: fault
    for fault in (
        older_terms_commit_by_counting,
        votes_are_answered_before_they_are_flushed,
        stale_completions_count,
        stale_hard_states_count,
        entries_are_acknowledged_before_they_are_flushed,
        the_leader_counts_what_it_has_not_flushed,
        logs_end_where_requests_end,
        followers_commit_what_is_not_verified,
        followers_ignore_the_entry_before,
        pre_votes_count_as_votes,
        a_shorter_log_may_win,
        two_votes_in_a_term,
        answers_of_earlier_terms_count,
        joint_configurations_ask_only_the_new,
        configurations_outlive_their_entries,
        changes_do_not_wait_for_each_other,
        voters_forget_the_leader_they_hear,
        a_restart_forgets_the_promise,
        the_lease_survives_a_transfer,
        the_lease_lasts_too_long,
        the_lease_counts_from_the_answer,
    )
}
