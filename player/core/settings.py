"""The numbers a player runs with. Times are milliseconds of its own monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass

NEVER_MS = 1 << 62
"""A deadline that does not come."""


@dataclass(frozen=True)
class Bound:
    """A limit on entries and on bytes of payload, whichever is reached first; one entry always fits."""

    entries: int
    size_bytes: int

    def __post_init__(self) -> None:
        if self.entries < 1 or self.size_bytes < 1:
            raise ValueError(f"a bound of {self.entries} entries and {self.size_bytes} bytes holds nothing")


@dataclass(frozen=True)
class PlayerSettings:
    """Bounds and timers, the same for each target. Raises ValueError for values that cannot work."""

    batch: Bound = Bound(1000, 1 << 20)
    """One message. gRPC takes 4 MB by default, and an entry larger than this goes alone."""
    window: Bound = Bound(10_000, 8 << 20)
    """The limit on what is sent and not acknowledged."""
    normal: Bound = Bound(10_000, 16 << 20)
    """The limit of the queue from the main stream. A target with a longer queue recovers from the log."""
    catchup: Bound = Bound(10_000, 16 << 20)
    """The limit of the queue from a recovery: nothing is read while it is full. One fetch may exceed it."""
    dummy_every: int = 1000
    """Entries of the main stream between two checks for targets far behind it; 0 for never."""
    quiet_ms: int = 10_000
    """A target that is behind the main stream for this time, and was sent nothing, is sent a dummy. Else
    others' entries and markers of transactions, once deleted by retention, would look like lost entries.
    0 for never."""
    heartbeat_ms: int = 500
    silent_heartbeats: int = 6
    """After this number of heartbeats without a message the stream is aborted; with unacknowledged entries
    after twice as many each time in a row: a large batch may delay the heartbeats behind it."""
    stuck_heartbeats: int = 60
    """After this number of heartbeats with unacknowledged entries and no acknowledgement it is aborted;
    after twice as many each time in a row."""
    hello_timeout_ms: int = 3000
    start_timeout_ms: int = 5000
    """The longest wait for all targets' responses before the main stream starts."""
    backoff_ms: int = 50
    longest_backoff_ms: int = 5000
    slow_overflows: int = 3
    """After this number of overflows in a row the target is reported as one that cannot keep up."""

    def __post_init__(self) -> None:
        if min(self.heartbeat_ms, self.hello_timeout_ms, self.start_timeout_ms, self.slow_overflows) < 1:
            raise ValueError("timers and counts begin at 1")
        if self.silent_heartbeats < 2 or self.stuck_heartbeats < 2:
            raise ValueError("one heartbeat is always on its way: give a target two")
        if not 0 < self.backoff_ms <= self.longest_backoff_ms:
            raise ValueError(f"a backoff of {self.backoff_ms} to {self.longest_backoff_ms} ms")
        if self.dummy_every < 0 or self.quiet_ms < 0:
            raise ValueError(f"a dummy every {self.dummy_every} entries, after {self.quiet_ms} ms")
