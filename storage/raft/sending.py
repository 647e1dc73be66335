"""What a leader sends: entries in the seed's two stages or a deeper pipeline, questions, heartbeats.

A request goes as soon as there is something to send and room in flight; the leader's own disk is not waited
for. Requests are capped in bytes. A new commit index is pushed to whoever is sent nothing else for a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.raft import install, spares
from storage.raft.messages import Append, Heartbeat
from storage.raft.progress import Progress, SendState
from storage.raft.settings import NEVER_MS
from storage.raft.volatile import Leadership

if TYPE_CHECKING:
    from storage.raft.raft import Raft

DOUBTFUL_TIMEOUTS = 2
"""After so many timeouts in a row a member is asked for its match before it is sent entries again."""


def needed_from(leading: Leadership, kept_index: int) -> int | None:
    """As `Raft.needed_from`. In touch is who is sent entries, as far as anybody knows."""
    matches = [
        each.match_index
        for each in leading.progress.values()
        if each.state is not SendState.INSTALL
        and each.paused_ms is None
        and each.timeouts < DOUBTFUL_TIMEOUTS
        and each.match_index >= kept_index
    ]
    return min(matches, default=None)


def send(raft: Raft, leading: Leadership) -> None:
    """Everything that may go now: entries, to spares later, a commit index to those that get nothing else.

    Under load the next entries follow at once and carry it: a message and its answer are saved.
    """
    last_index, commit_index = raft.terms.last_index, raft.commit_index
    depth, wait_ms = raft.settings.pipeline_depth, raft.settings.commit_push_ms
    is_due, owes = raft.now_ms >= leading.push_due_ms or not wait_ms, False
    spared = spares.spared(raft, leading)
    for progress in leading.progress.values():
        lacks = progress.next_index <= last_index
        if lacks and progress.member in spared and spares.hold(raft, leading.spares, progress):
            continue  # what it is sent later carries the commit along
        while progress.next_index <= last_index and progress.may_send(depth):
            _send_next(raft, leading, progress)
        if commit_index > progress.commit_sent and not progress.in_flight:
            known = min(progress.match_index, commit_index)
            if known > progress.commit_sent and is_due:
                send_heartbeat(raft, progress)
            elif known > progress.commit_sent:
                owes = True
    if not owes:
        leading.push_due_ms = NEVER_MS
    elif leading.push_due_ms == NEVER_MS:
        leading.push_due_ms = raft.now_ms + wait_ms


def _send_next(raft: Raft, leading: Leadership, progress: Progress) -> None:
    """The entries from the member's next index on, a question where that is a guess, or a checkpoint."""
    next_index = progress.next_index
    prev_term = raft.terms.term_at(next_index - 1)
    if prev_term is None:
        install.begin(raft, progress)
        return
    last_index = next_index - 1
    # A guess is not worth a megabyte, nor is a member that does not answer.
    known = next_index == progress.match_index + 1 or next_index >= leading.no_op_index
    if known and progress.timeouts < DOUBTFUL_TIMEOUTS:
        last_index = raft.terms.last_within(next_index, raft.settings.max_append_bytes)
    send_append(raft, progress, next_index - 1, prev_term, last_index)


def send_append(raft: Raft, progress: Progress, prev_index: int, prev_term: int, last_index: int) -> None:
    """One request: the entries after `prev_index` up to `last_index`, or none."""
    progress.sent(last_index, raft.now_ms)
    progress.commit_sent = max(progress.commit_sent, min(last_index, raft.commit_index))
    raft.outbox.append(
        Append(
            raft.member_id,
            progress.member,
            raft.term,
            prev_index,
            prev_term,
            raft.terms.runs_between(prev_index + 1, last_index),
            last_index,
            raft.configurations.items_between(prev_index + 1, last_index),
            raft.commit_index,
            raft.now_ms,
        )
    )


def send_heartbeat(raft: Raft, progress: Progress) -> None:
    """Still here; and the commit index, as far as the member is known to hold the leader's entries."""
    commit_index = min(progress.match_index, raft.commit_index)
    progress.commit_sent = max(progress.commit_sent, commit_index)
    raft.outbox.append(Heartbeat(raft.member_id, progress.member, raft.term, commit_index, raft.now_ms))
