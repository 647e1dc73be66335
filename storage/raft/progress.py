"""The leader's view of one other member: its match, and which request may be sent next.

Invariants: the match index goes back within a term only where the member reports that it lost entries; the
next index is above it; at most the pipeline depth of requests is in flight, and one while the match is being
found. Source: LogStore paper's two stages (one request outstanding, appends continue meanwhile), with etcd's
three states for the rest; a timer that an acknowledgement restarts is TCP's (RFC 6298, rule 5.3).
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from lockstep.storage.raft.settings import LONG_AGO_MS, NEVER_MS, RaftSettings


class SendState(Enum):
    """The way in which the leader sends to a member."""

    PROBE = "probe"
    """`next_index` is a guess, or the last request is lost: one request, then wait for the response."""
    REPLICATE = "replicate"
    """The logs match up to `next_index`, as far as requests arrive."""
    INSTALL = "install"
    """It needs entries that only a checkpoint holds: a snapshot is being sent, and no entries are."""


class Progress:
    """The progress of one other member in this term."""

    __slots__ = (
        "commit_sent",
        "contact_ms",
        "deferred_since_ms",
        "has_risen",
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
        """(last index, when it was sent) of each request without a response, oldest first."""
        self.contact_ms = LONG_AGO_MS
        """When the newest message was sent that the member responded to in this term."""
        self.commit_sent = 0
        """The highest commit index that it was sent."""
        self.paused_ms: int | None = None
        """Since when nothing is sent, the transport having lost it; any response ends that."""
        self.deferred_since_ms = NEVER_MS
        """Since when entries for it are held back, a majority being enough without it."""
        self.timeouts = 0
        """The number of consecutive requests that timed out."""
        self.has_risen = False
        """Whether the match rose since the last `expire`, with more requests in flight."""
        self.risen_ms = LONG_AGO_MS
        """The time at which `expire` found that."""
        self.install_ms = LONG_AGO_MS
        """When the snapshot send last made progress."""

    def may_send(self, depth: int) -> bool:
        """Returns whether a request may go now; `depth` may be in flight once the match is known."""
        if self.state is SendState.REPLICATE:
            return len(self.in_flight) < depth
        return self.state is SendState.PROBE and not self.in_flight and self.paused_ms is None

    def on_sent(self, last_index: int, now_ms: int) -> None:
        """Records a request that ends with `last_index`; the next one of a pipeline starts there."""
        self.in_flight.append((last_index, now_ms))
        self.deferred_since_ms = NEVER_MS
        if self.state is SendState.REPLICATE:
            self.next_index = last_index + 1

    def on_response(self, sent_ms: int, now_ms: int) -> bool:
        """Records a response to the message of `sent_ms`; returns whether a lost snapshot send begins
        again."""
        self.contact_ms = max(self.contact_ms, min(sent_ms, now_ms))
        again = self.paused_ms is not None and self.state is SendState.INSTALL
        self.paused_ms = None
        self.timeouts = 0
        return again

    def on_match(self, match_index: int, base_index: int) -> bool:
        """Records that it holds everything up to `match_index`; returns whether that is more than before.

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
                self._become_replicate()
        elif match_index >= base_index:
            self._become_replicate()
        return risen

    def on_rejection(self, prev_index: int, guess: int) -> None:
        """Records a rejection at `prev_index`; `guess` is where the logs may match. A stale one changes
        nothing.

        In a pipeline it means that an earlier request was lost or reordered: back to the match. Where a probe
        of the match itself is rejected, the member's disk lost what was never flushed, as a machine without
        flushes does when it stops. A lower match is always safe.
        """
        if prev_index < self.match_index:
            return
        if self.state is SendState.REPLICATE:
            self._become_probe(self.match_index + 1)
        elif self.state is SendState.PROBE and prev_index == self.match_index > 0:
            self.match_index = max(0, min(guess, prev_index - 1))
            self._become_probe(self.match_index + 1)
        elif self.state is SendState.PROBE and prev_index == self.next_index - 1:
            self._become_probe(max(self.match_index + 1, min(guess + 1, prev_index)))

    def on_lost(self, now_ms: int) -> None:
        """Pauses after a lost connection, until the member responds or a timeout passes."""
        self.paused_ms = now_ms
        self._resend_from_match()

    def expire(self, now_ms: int, settings: RaftSettings) -> bool:
        """Times out old requests; returns whether a snapshot send should begin again.

        As long as the match rises the member is only slow, and resent requests would make it slower.
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
            self._resend_from_match()
        return False

    def begin_install(self, now_ms: int) -> None:
        """Enters the INSTALL state: a snapshot send begins."""
        self.state = SendState.INSTALL
        self.in_flight.clear()
        self.install_ms = now_ms
        self.paused_ms = None

    def _resend_from_match(self) -> None:
        """Sends from the match on again, one request at a time: the requests in flight are lost."""
        if self.state is SendState.REPLICATE:
            self._become_probe(self.match_index + 1)
        self.in_flight.clear()

    def _become_probe(self, next_index: int) -> None:
        self.state = SendState.PROBE
        self.next_index = next_index
        self.in_flight.clear()

    def _become_replicate(self) -> None:
        self.state = SendState.REPLICATE
        newest = self.in_flight[-1][0] if self.in_flight else 0
        self.next_index = max(self.match_index, newest) + 1
