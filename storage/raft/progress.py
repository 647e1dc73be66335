"""What a leader knows of one other member, and what it may send there next.

Invariants: the match index goes back within a term only where the member says that it lost what it had; the
next index is above it; at most the pipeline depth of requests is in flight, and one while the match is being
found. Source: seed 001's two stages
(one request outstanding, appends go on meanwhile), with etcd's three states for the rest; a timer that begins
anew with what is acknowledged is TCP's (RFC 6298, rule 5.3).
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from storage.raft.settings import LONG_AGO_MS, NEVER_MS, RaftSettings


class SendState(Enum):
    """How the leader sends to a member."""

    PROBE = "probe"
    """`next_index` is a guess, or what was sent last is lost: one request, then wait for the answer."""
    REPLICATE = "replicate"
    """The logs match up to `next_index`, as far as requests arrive."""
    INSTALL = "install"
    """It needs entries that only a checkpoint holds: one is being shipped, and no entries are."""


class Progress:
    """One other member, as its leader sees it in this term."""

    __slots__ = (
        "commit_sent",
        "contact_ms",
        "has_risen",
        "held_ms",
        "in_flight",
        "install_ms",
        "match_index",
        "member",
        "next_index",
        "paused_ms",
        "risen_ms",
        "state",
        "timeouts",
    )

    def __init__(self, member: int, next_index: int) -> None:
        self.member = member
        self.state = SendState.PROBE
        self.match_index = 0
        """Everything up to there is equal and flushed there."""
        self.next_index = next_index
        self.in_flight: deque[tuple[int, int]] = deque()
        """(last index, when it was sent) of each request without an answer, oldest first."""
        self.contact_ms = LONG_AGO_MS
        """When the newest message that it answered in this term was sent."""
        self.commit_sent = 0
        """The highest commit index that it was told."""
        self.paused_ms: int | None = None
        """Since when nothing is sent, the transport having lost it; any answer ends that."""
        self.held_ms = NEVER_MS
        """Since when entries for it are held back, a majority being enough without it."""
        self.timeouts = 0
        """How many requests in a row went without any sign of life."""
        self.has_risen = False
        """Whether the match rose since the last look, `expire`, with more requests in flight."""
        self.risen_ms = LONG_AGO_MS
        """When a look found that."""
        self.install_ms = LONG_AGO_MS
        """The last sign of life of the shipment."""

    def may_send(self, depth: int) -> bool:
        """Whether a request may go now; `depth` is how many may be in flight once the match is known."""
        if self.state is SendState.REPLICATE:
            return len(self.in_flight) < depth
        return self.state is SendState.PROBE and not self.in_flight and self.paused_ms is None

    def sent(self, last_index: int, now_ms: int) -> None:
        """A request that ends with `last_index` goes out; the next one of a pipeline starts there."""
        self.in_flight.append((last_index, now_ms))
        self.held_ms = NEVER_MS
        if self.state is SendState.REPLICATE:
            self.next_index = last_index + 1

    def heard(self, sent_ms: int, now_ms: int) -> bool:
        """It answered what was sent at `sent_ms`; whether a shipment that was lost should begin again."""
        self.contact_ms = max(self.contact_ms, min(sent_ms, now_ms))
        again = self.paused_ms is not None and self.state is SendState.INSTALL
        self.paused_ms = None
        self.timeouts = 0
        return again

    def matched(self, match_index: int, base_index: int) -> bool:
        """It holds everything up to `match_index`; whether that is more than was known.

        `base_index`: the lowest entry that a request can follow.
        """
        risen = match_index > self.match_index
        self.match_index = max(match_index, self.match_index)
        in_flight = self.in_flight
        while in_flight and in_flight[0][0] <= match_index:
            in_flight.popleft()
        if risen:
            self.has_risen = bool(in_flight)
        if self.state is SendState.REPLICATE:
            self.next_index = max(self.next_index, match_index + 1)
        elif self.state is SendState.PROBE:
            if match_index >= self.next_index - 1:
                self._replicate()
        elif match_index >= base_index:
            self._replicate()
        return risen

    def rejected(self, prev_index: int, guess: int) -> None:
        """It has no such entry at `prev_index`; `guess` is where the logs may match. Stale: no change.

        In a pipeline this means that an earlier request was lost or overtaken: back to the match. Where the
        match itself is gone, asked for once more by itself, its disk lost what was never flushed: without
        flushes a machine that stops takes them along. To count less of it is always safe.
        """
        if prev_index < self.match_index:
            return
        if self.state is SendState.REPLICATE:
            self._probe(self.match_index + 1)
        elif self.state is SendState.PROBE and prev_index == self.match_index > 0:
            self.match_index = max(0, min(guess, prev_index - 1))
            self._probe(self.match_index + 1)
        elif self.state is SendState.PROBE and prev_index == self.next_index - 1:
            self._probe(max(self.match_index + 1, min(guess + 1, prev_index)))

    def lost(self, now_ms: int) -> None:
        """The transport lost it: nothing more until it answers something or a timeout passes."""
        self.paused_ms = now_ms
        self._again()

    def expire(self, now_ms: int, settings: RaftSettings) -> bool:
        """Give up what waits for too long; whether a shipment should begin again.

        As long as the match rises the member is only slow, and what is sent again would make it slower.
        """
        if self.state is SendState.INSTALL:
            return now_ms - self.install_ms >= settings.install_timeout_ms
        if self.has_risen:
            self.has_risen, self.risen_ms = False, now_ms
        oldest_ms = max(self.in_flight[0][1], self.risen_ms) if self.in_flight else self.paused_ms
        if oldest_ms is None:
            return False
        if now_ms - oldest_ms >= settings.append_timeout_ms:
            self.paused_ms = None
            self.timeouts += 1
            self._again()
        return False

    def install(self, now_ms: int) -> None:
        """A shipment begins."""
        self.state = SendState.INSTALL
        self.in_flight.clear()
        self.install_ms = now_ms
        self.paused_ms = None

    def _again(self) -> None:
        """What is in flight is lost: from the match on, one request at a time. A guess stays a guess."""
        if self.state is SendState.REPLICATE:
            self._probe(self.match_index + 1)
        self.in_flight.clear()

    def _probe(self, next_index: int) -> None:
        self.state = SendState.PROBE
        self.next_index = next_index
        self.in_flight.clear()

    def _replicate(self) -> None:
        self.state = SendState.REPLICATE
        newest = self.in_flight[-1][0] if self.in_flight else 0
        self.next_index = max(self.match_index, newest) + 1
