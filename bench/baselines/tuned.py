"""Apache Kafka 4.4.0 tuned for one machine with few cores: the best we know how to make it, without flushes.

Owns: the settings and why each is there. Sources: Apache Kafka's documentation, "Production server configs",
"Java Version" and "OS"; LinkedIn's published JVM flags, which the documentation quotes. What is not here was
left as shipped: compression, acks and batching belong to the clients, which are the same for every broker;
and the eight threads of `num.io.threads`, of which each can wait for a flush of another partition.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import psutil


class Setting(NamedTuple):
    """One server property, and why it is set."""

    name: str
    value: str
    why: str


TUNED_HEAP: Final = "2G"
"""Twice what is shipped. The documentation's 6 GB are for machines with more memory than ours leaves beside
the page cache, where a broker's data lives."""


def settings(cores: int | None = None) -> tuple[Setting, ...]:
    """The properties for a machine with so many cores (default: this one's)."""
    threads = str(max(2, cores or psutil.cpu_count() or 1))
    mebibyte = str(1 << 20)
    return (
        Setting("num.network.threads", threads, "as many as cores; three are shipped"),
        Setting("num.replica.fetchers", "2", "followers of many partitions fetch them in parallel"),
        Setting("replica.fetch.wait.max.ms", "100", "an idle follower asks again sooner"),
        Setting("socket.send.buffer.bytes", mebibyte, "100 KB are shipped; fewer wake-ups for large answers"),
        Setting("socket.receive.buffer.bytes", mebibyte, "as above, for large requests"),
        Setting(
            "replica.socket.receive.buffer.bytes", mebibyte, "64 KB are shipped; as above, between nodes"
        ),
        Setting("log.preallocate", "true", "a file that does not grow needs no journal commit at each flush"),
        Setting("log.segment.bytes", str(256 << 20), "so that a new segment does not allocate 1 GB at once"),
        Setting("queued.max.requests", "1000", "64 producers with five requests each are not held back"),
    )


def properties(cores: int | None = None) -> dict[str, str]:
    """`settings` as a server's properties."""
    return {setting.name: setting.value for setting in settings(cores)}
