"""Who is sent entries a little later than others: a majority commits them, the rest is in no hurry.

The leader and half of the other voters, the first, are enough for a commit. The others, the spares, get what
they lack in fewer and larger requests: `spare_wait_ms` after the oldest of it, or at once where entries wait
and none was committed for `hedge_ms`. Who is first is found by races: for some commits all are sent
everything, and whoever was late for most of them makes way. Nothing here decides what is committed. With few
commits a second there is always a race, which is plain Raft. Sources: EPaxos, "thrifty"; The Tail at Scale,
hedged requests; `docs/decisions/0034-spares.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from storage.raft.progress import Progress, SendState
from storage.raft.settings import NEVER_MS

if TYPE_CHECKING:
    from storage.raft.raft import Raft
    from storage.raft.volatile import Leadership

NO_ONE: frozenset[int] = frozenset()
RACE_EVERY_MS = 1000


class Spares:
    """Of one leader, as long as the same voters vote.

    Args:
        voters: of a configuration with one voter set; none where there are two: then nobody is a spare.
        member: the leader.
    """

    __slots__ = (
        "_commits",
        "_from_index",
        "_late",
        "_needed",
        "_order",
        "_patience",
        "due_ms",
        "first",
        "members",
        "race_due_ms",
        "race_left",
        "waiting_ms",
    )

    def __init__(self, voters: Sequence[int], member: int) -> None:
        # A ring, so that leaders of several groups spread what they send at once over the nodes, in the order
        # in which they would stand after the leader's end (`roles.leader_gone`).
        others = sorted(voters) if member in voters else []
        self._order = [each for each in others if each > member] + [each for each in others if each < member]
        self._needed = len(voters) // 2
        self._late = dict.fromkeys([member, *self._order], 0)
        """For how many commits of this race each came too late."""
        self._commits = 0
        """How many the race has."""
        self._from_index = self._patience = 0
        """The race counts once the spares hold this entry, or after so many commits without that."""
        self.first = self._order[: self._needed]
        """Who is sent everything at once."""
        self.members = frozenset(self._order[self._needed :])
        """The spares."""
        self.race_left = 0
        """Commits until the race is over; 0 between races."""
        self.race_due_ms = 0
        self.waiting_ms = NEVER_MS
        """Since when the oldest entry without a commit waits, or the last commit was."""
        self.due_ms = NEVER_MS
        """When a spare is sent what is held back."""

    def race(self, commits: int, last_index: int) -> None:
        """All are sent everything, for so many commits; the spares have to catch up to `last_index` first."""
        self._commits = self.race_left = commits
        self._from_index, self._patience = last_index, 2 * commits
        for member in self._late:
            self._late[member] = 0

    def committed(self, raft: Raft, progress: Mapping[int, Progress]) -> None:
        """The commit index rose within a race."""
        index, late = raft.commit_index, self._late
        if self._patience and any(progress[each].match_index < self._from_index for each in self.members):
            self._patience -= 1
            return
        self._patience = 0
        for member in self._order:
            late[member] += progress[member].match_index < index
        late[raft.member_id] += raft.persisted_index < index
        self.race_left -= 1
        if self.race_left == 0:
            self._decide(raft)

    def _decide(self, raft: Raft) -> None:
        """The first that were late more often than spares, by half of the race, change places with them."""
        order, late, commits = self._order, self._late, self._commits
        member, race_commits = raft.member_id, raft.settings.race_commits
        if commits < race_commits:  # a hedge: was it needed?
            if late[member] or any(late[each] for each in self.first):
                self.race(race_commits, 0)
            return
        slowest = sorted(order[: self._needed], key=lambda each: -late[each])
        quickest = sorted(order[self._needed :], key=lambda each: late[each])
        for slow, quick in zip(slowest, quickest, strict=False):
            if 2 * (late[slow] - late[quick]) >= commits:
                here, there = order.index(slow), order.index(quick)
                order[here], order[there] = quick, slow
        # Where commits do not wait for our own disk, they need others than the first.
        needed = self._needed if 2 * late[member] < commits else len(order)
        self.first, self.members = order[:needed], frozenset(order[needed:])


def spared(raft: Raft, leading: Leadership) -> frozenset[int]:
    """Who need not be sent entries at once now: nobody where something is under way that may need them."""
    spares, settings, now_ms, last_index = leading.spares, raft.settings, raft.now_ms, raft.terms.last_index
    if not settings.spare_wait_ms:
        return NO_ONE
    spares.due_ms = NEVER_MS
    if raft.commit_index == last_index:
        spares.waiting_ms = NEVER_MS
    elif spares.waiting_ms == NEVER_MS:
        spares.waiting_ms = now_ms
    if leading.unsettled or raft.transferring:
        return NO_ONE
    if now_ms >= spares.race_due_ms:
        spares.race_due_ms = now_ms + RACE_EVERY_MS
        spares.race(settings.race_commits, last_index)
    if spares.race_left or not spares.members:
        return NO_ONE
    progress = leading.progress
    if any(progress[each].state is not SendState.REPLICATE for each in spares.first):
        return NO_ONE
    if now_ms >= spares.waiting_ms + settings.hedge_ms:
        spares.race(1, 0)
        return NO_ONE
    return spares.members


def hold(raft: Raft, spares: Spares, progress: Progress) -> bool:
    """Whether this spare, which lacks entries, is not sent them yet; `due_ms` says when to ask again."""
    now_ms, settings, terms = raft.now_ms, raft.settings, raft.terms
    if progress.state is not SendState.REPLICATE or progress.next_index <= terms.base_index:
        return False
    if progress.held_ms == NEVER_MS:
        progress.held_ms = now_ms
    due_ms = progress.held_ms + settings.spare_wait_ms
    size = terms.size_between(progress.next_index, terms.last_index)
    if now_ms >= due_ms or size >= settings.max_append_bytes // 2:
        return False
    spares.due_ms = min(spares.due_ms, due_ms, spares.waiting_ms + settings.hedge_ms)
    return True
