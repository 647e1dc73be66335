"""Shipped checkpoints: when a member needs one, which chunks are wanted, what an installed one changes.

Invariants: nothing is installed at or below the commit index, nor where the log already has the entry that
the checkpoint ends with: then an append does. Entries forgotten by `installed` were never acknowledged to a
leader that committed them. The bytes, and the pace of shipping, are the shell's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.raft import accepting
from storage.raft.configuration import Configuration, ConfigurationStack
from storage.raft.messages import Install, InstallResponse
from storage.raft.progress import Progress, SendState
from storage.raft.term_index import TermIndex
from storage.raft.volatile import NOBODY

if TYPE_CHECKING:
    from storage.raft.raft import Raft


def begin(raft: Raft, progress: Progress) -> None:
    """A member needs entries that are gone: ask the shell to ship a checkpoint, once more if need be."""
    progress.install(raft.now_ms)
    raft.installs.append(progress.member)


def acknowledged(raft: Raft, progress: Progress, response: InstallResponse) -> None:
    """The shipment goes on; a failed one begins again with the next sign of life."""
    if progress.state is not SendState.INSTALL:
        return
    progress.install_ms = raft.now_ms
    if not response.accepted:
        progress.paused_ms = raft.now_ms
    raft.chunk_acks.append(response)


def wanted(raft: Raft, index: int, last_term: int) -> bool:
    """Whether a checkpoint up to the entry (`index`, `last_term`) would bring this member forward."""
    return index > raft.commit_index and raft.terms.term_at(index) != last_term


def on_install(raft: Raft, chunk: Install) -> None:
    """Take a chunk, or say that the log is there already."""
    if not 0 < chunk.last_term <= raft.term or not accepting.hear(raft, chunk):
        return
    if wanted(raft, chunk.index, chunk.last_term):
        raft.chunks.append(chunk)
        return
    # What a checkpoint covers is committed, so that our equal entry is verified, and all before it.
    _verified(raft, chunk.index)


def chunk_stored(raft: Raft, chunk: Install, accepted: bool) -> None:
    """Answer a chunk; not `accepted` asks for the shipment to begin again."""
    if chunk.term == raft.term:
        raft.outbox.append(
            InstallResponse(
                raft.member_id, chunk.sender, raft.term, chunk.index, chunk.chunk, accepted, chunk.sent_ms
            )
        )


def installed(raft: Raft, index: int, last_term: int, configuration: Configuration) -> None:
    """The log now is that checkpoint. Raises IllegalTruncation where that threw away what had to stay."""
    if not wanted(raft, index, last_term):
        raise accepting.IllegalTruncation(
            f"member {raft.member_id} installed up to {index}, committed is {raft.commit_index}"
        )
    raft.terms = TermIndex(index, last_term)
    raft.configurations = ConfigurationStack(configuration, index)
    raft.cuts += 1
    raft.persisted_index = raft.commit_index = index
    raft.following.owed_index = NOBODY
    if raft.leader_id == NOBODY:
        raft.following.verified_index = index
    else:
        _verified(raft, index)


def _verified(raft: Raft, index: int) -> None:
    following = raft.following
    following.verified_index = max(following.verified_index, index)
    accepting.acknowledge(raft, index, index)
    accepting.follow_commit(raft)
