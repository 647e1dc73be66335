"""The numbers a Raft group runs with. Times are milliseconds of each node's own monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass

NEVER_MS = 1 << 62
"""A deadline that does not come."""
LONG_AGO_MS = -(1 << 62)
"""The time of an event that has not happened."""


@dataclass(frozen=True)
class RaftSettings:
    """Timers and limits of one group. Raises ValueError for numbers that no group can run with."""

    heartbeat_ms: int = 50
    election_timeout_ms: int = 500
    """A follower waits once to twice as long; with a more recent message of a leader it elects no other."""
    election_stagger_ms: int = 50
    """The delay between the campaigns of voters that know of no leader, by rank."""
    max_append_bytes: int = 1 << 20
    """Bytes of entries in one request; one entry always goes."""
    pipeline_depth: int = 4
    """Requests in flight per follower; 1 is the LogStore paper's. Measured: decision 16."""
    commit_push_ms: int = 0
    """The longest time that a new commit index waits to be sent with entries before it is sent alone."""
    deferral_ms: int = 0
    """The delay with which deferred voters are sent entries; 0: all voters at once. See `deferred_voters`."""
    hedge_ms: int = 3
    """Deferred voters are sent entries at once where some wait and none was committed for this time."""
    probe_commits: int = 16
    """A probe sends all voters everything for so many commits: once a second, and after some hedges."""
    append_timeout_ms: int = 200
    """A request without a response for so long, and none before it either, is sent again; checked with every
    heartbeat."""
    install_timeout_ms: int = 5000
    """A snapshot send that makes no progress for this time begins again."""
    clock_drift: float = 0.05
    """The largest error of the rate of a node's clock, as a fraction."""

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_ms < self.election_timeout_ms:
            raise ValueError(
                f"heartbeats every {self.heartbeat_ms} ms, elections after {self.election_timeout_ms}"
            )
        if self.pipeline_depth < 1 or self.append_timeout_ms < 1 or self.install_timeout_ms < 1:
            raise ValueError("pipeline depth and timeouts begin at 1")
        if self.election_stagger_ms < 1:
            raise ValueError(f"staggered elections begin at 1 ms, not {self.election_stagger_ms}")
        if not 0 <= self.commit_push_ms < self.heartbeat_ms:
            raise ValueError(
                f"commits pushed after {self.commit_push_ms} ms, heartbeats after {self.heartbeat_ms}"
            )
        if not 0 <= self.deferral_ms < self.heartbeat_ms:
            raise ValueError(
                f"deferred voters wait {self.deferral_ms} ms, heartbeats come every {self.heartbeat_ms}"
            )
        if self.hedge_ms < 1 or self.probe_commits < 1:
            raise ValueError("the hedge and the commits of a probe begin at 1")
        if not 0 <= self.clock_drift < 0.5:
            raise ValueError(f"a clock drift of {self.clock_drift} leaves no lease")

    @property
    def lease_ms(self) -> int:
        """The lease's length from when the leader sent a message that a majority responded to.

        The voters' promise lasts an election timeout of their clocks; both clocks may be off, oppositely.
        """
        return int(self.election_timeout_ms * (1 - 2 * self.clock_drift))

    @property
    def transfer_timeout_ms(self) -> int:
        """The time for which a leader that transfers takes no proposals before it resumes."""
        return self.election_timeout_ms
