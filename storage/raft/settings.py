"""The numbers a Raft group runs with. Times are milliseconds of each node's own monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass

NEVER_MS = 1 << 62
"""A deadline that does not come."""
LONG_AGO_MS = -(1 << 62)
"""When something happened that has not."""


@dataclass(frozen=True)
class RaftSettings:
    """Timers and limits of one group. Raises ValueError for numbers that no group can run with."""

    heartbeat_ms: int = 50
    election_timeout_ms: int = 500
    """A follower waits once to twice as long; whoever heard a leader more recently elects no other."""
    turn_ms: int = 50
    """Where all know that nobody leads, they stand for election so long after one another."""
    max_append_bytes: int = 1 << 20
    """Bytes of entries in one request; one entry always goes."""
    pipeline_depth: int = 4
    """Requests in flight per follower; 1 is the mode of seed 001. Measured: decision 16."""
    commit_push_ms: int = 0
    """A new commit waits so long for entries that carry it along before it is sent by itself."""
    spare_wait_ms: int = 0
    """Voters that a majority does not need are sent entries so much later; 0: all at once. See `spares`."""
    hedge_ms: int = 3
    """They are sent entries at once where some wait and none was committed for so long."""
    race_commits: int = 16
    """For so many commits all are sent everything, to see who is late: once a second, after some hedges."""
    append_timeout_ms: int = 200
    """A request unanswered for so long, and nothing before it either, is sent again; looked at with every
    heartbeat."""
    install_timeout_ms: int = 5000
    """A shipment of a checkpoint that shows no progress for so long begins again."""
    clock_drift: float = 0.05
    """How far the rate of any node's clock may be off, as a fraction."""

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_ms < self.election_timeout_ms:
            raise ValueError(
                f"heartbeats every {self.heartbeat_ms} ms, elections after {self.election_timeout_ms}"
            )
        if self.pipeline_depth < 1 or self.append_timeout_ms < 1 or self.install_timeout_ms < 1:
            raise ValueError("pipeline depth and timeouts begin at 1")
        if self.turn_ms < 1:
            raise ValueError(f"turns begin at 1 ms, not {self.turn_ms}")
        if not 0 <= self.commit_push_ms < self.heartbeat_ms:
            raise ValueError(
                f"commits pushed after {self.commit_push_ms} ms, heartbeats after {self.heartbeat_ms}"
            )
        if not 0 <= self.spare_wait_ms < self.heartbeat_ms:
            raise ValueError(
                f"spares are sent entries after {self.spare_wait_ms} ms, heartbeats after {self.heartbeat_ms}"
            )
        if self.hedge_ms < 1 or self.race_commits < 1:
            raise ValueError("the hedge and the commits of a race begin at 1")
        if not 0 <= self.clock_drift < 0.5:
            raise ValueError(f"a clock drift of {self.clock_drift} leaves no lease")

    @property
    def lease_ms(self) -> int:
        """How long after it sent a message that a majority answered a leader knows that it is the only one.

        The voters' promise lasts an election timeout of their clocks; both clocks may be off, oppositely.
        """
        return int(self.election_timeout_ms * (1 - 2 * self.clock_drift))

    @property
    def transfer_timeout_ms(self) -> int:
        """How long a leader that hands over refuses proposals before it goes on leading."""
        return self.election_timeout_ms
