"""Snapshots: when a member needs one, which chunks are needed, what an installed one changes.

Invariants: nothing is installed at or below the commit index, nor where the log already has the entry that
the snapshot ends with: then an append does. Entries forgotten by `on_installed` were never acknowledged to
a leader that committed them. The bytes, and the pace of sending, are the shell's.
"""

from __future__ import annotations

from lockstep.storage.raft import follower
from lockstep.storage.raft.configuration import Configuration, ConfigurationStack
from lockstep.storage.raft.messages import Install, InstallResponse
from lockstep.storage.raft.progress import Progress, SendState
from lockstep.storage.raft.state import NOBODY, RaftState
from lockstep.storage.raft.term_index import TermIndex


def begin(raft: RaftState, progress: Progress) -> None:
    """Requests a snapshot send from the shell, because the member needs entries that were removed."""
    progress.begin_install(raft.now_ms)
    raft.installs.append(progress.member)


def on_chunk_ack(raft: RaftState, progress: Progress, response: InstallResponse) -> None:
    """Continues the snapshot send; a failed one begins again with the member's next response."""
    if progress.state is not SendState.INSTALL:
        return
    progress.install_ms = raft.now_ms
    if not response.accepted:
        progress.paused_ms = raft.now_ms
    raft.chunk_acks.append(response)


def is_needed(raft: RaftState, index: int, last_term: int) -> bool:
    """Returns whether a snapshot up to the entry (`index`, `last_term`) would bring this member forward."""
    return index > raft.commit_index and raft.terms.term_at(index) != last_term


def on_install(raft: RaftState, chunk: Install) -> None:
    """Accepts a chunk, or acknowledges that the log holds these entries already."""
    if not 0 < chunk.last_term <= raft.term or not follower.accept_leader(raft, chunk):
        return
    if is_needed(raft, chunk.index, chunk.last_term):
        raft.chunks.append(chunk)
        return
    # A snapshot covers committed entries, so that our equal entry is verified, and all before it.
    _mark_verified(raft, chunk.index)


def chunk_stored(raft: RaftState, chunk: Install, accepted: bool) -> None:
    """Responds to a chunk; without `accepted` the leader begins the snapshot send again."""
    if chunk.term == raft.term:
        raft.outbox.append(
            InstallResponse(
                raft.member_id, chunk.sender, raft.term, chunk.index, chunk.chunk, accepted, chunk.sent_ms
            )
        )


def on_installed(raft: RaftState, index: int, last_term: int, configuration: Configuration) -> None:
    """Replaces the log by that snapshot. Raises IllegalTruncation where that removed committed entries."""
    if not is_needed(raft, index, last_term):
        raise follower.IllegalTruncation(
            f"member {raft.member_id} installed up to {index}, committed is {raft.commit_index}"
        )
    raft.terms = TermIndex(index, last_term)
    raft.configurations = ConfigurationStack(configuration, index)
    raft.truncation_count += 1
    raft.persisted_index = raft.commit_index = index
    raft.follower_state.pending_ack_index = NOBODY
    if raft.leader_id == NOBODY:
        raft.follower_state.verified_index = index
    else:
        _mark_verified(raft, index)


def _mark_verified(raft: RaftState, index: int) -> None:
    follower_state = raft.follower_state
    follower_state.verified_index = max(follower_state.verified_index, index)
    follower.acknowledge(raft, index, index)
    follower.follow_commit(raft)
