"""The settings of runs: flush policies, sizes of the quick and the full variant, client settings.

Owns: what several comparisons share of a run's numbers. Both brokers get the same ones. Runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

FLUSH = "flush"
"""Every acknowledged write is on the disk: Kafka topics with flush.messages=1, Lockstep log.flush=always."""
OS = "os"
"""The operating system flushes when it likes: Kafka as shipped, Lockstep log.flush=os."""
POLICIES = (FLUSH, OS)
LOG_FLUSH = {FLUSH: "always", OS: "os"}
"""Lockstep's setting `log.flush`, by policy."""

RECORD_BYTES = 1024
PARTITIONS = 16
"""How many partitions the row that compares one with many uses."""
PRODUCERS = 16
NODES = 3
"""Of a cluster."""
FILL_BATCH_RECORDS = 15
"""Records of 1 KB that fit a batch of 16 KiB, what a producer with default settings sends."""
FILL_WINDOW = 8
FAN_OUT_BYTES = 96 << 20
FAN_OUT_GROUPS = 8
FAN_OUT_WARM_SHARE = 8
"""One such part of the bytes goes first: a session's own warm-up has nothing like it."""

SHIPPED_HEAP = "1G"
"""What Apache Kafka's start script sets."""

PRODUCER_IN_FLIGHT = 5
PRODUCER_BATCH_BYTES = 16_384
PRODUCER_PROPERTIES = {
    "acks": "all",
    "linger.ms": "5",
    "batch.size": str(PRODUCER_BATCH_BYTES),
    "buffer.memory": str(32 * 1024 * 1024),
    "max.in.flight.requests.per.connection": str(PRODUCER_IN_FLIGHT),
    "compression.type": "none",
}
"""Kafka 4.4.0's own defaults, written out so that no client version can change what is measured."""


@dataclass(frozen=True)
class Sizes:
    """The size of each block."""

    name: str
    rounds: int
    """Sessions of each kind; alternating, so an even number keeps the order balanced."""
    produce_records: dict[str, int]
    """By policy. As many for both, since some ratios are of one to the other, and the client's virtual
    machine is the slower the shorter it runs."""
    latency_s: float
    latency_warmup_s: float
    backlog_bytes: int = 0
    read_passes: int = 0
    """Timed reads of the backlog, each of them for a while, from its beginning again and again."""
    client_read_records: int = 0
    """How much of the backlog the cross-check with librdkafka reads."""
    rebalances: int = 0
    """Groups of members that start, grow and shrink, one after another."""
    restarts_per_session: int = 1
    restart_sessions: int = 1
    """In how many sessions of each kind the restart is measured."""
    warmup_min_s: float = 0.0
    """For a broker with a just-in-time compiler; the other needs `plain_warmup_s`."""
    warmup_max_s: float = 0.0
    plain_warmup_s: float = 3.0
    kind_warmup_max_s: float = 20.0
    """How long a block's own kind of work is done before it, where the compiler is not quiet sooner."""
    client_warmup_records: int = 0
    """Of the load tool, which compiles itself while it sends them; 0: a third of those that are measured."""


QUICK = Sizes(
    name="quick",
    rounds=2,
    produce_records={FLUSH: 100_000, OS: 100_000},
    latency_s=2.5,
    latency_warmup_s=0.5,
    backlog_bytes=512 * 1024 * 1024,
    read_passes=6,
    client_read_records=150_000,
    rebalances=3,
    warmup_min_s=16.0,
    warmup_max_s=20.0,
)

FULL = Sizes(
    name="full",
    rounds=4,
    produce_records={FLUSH: 900_000, OS: 900_000},
    latency_s=10.0,
    latency_warmup_s=2.0,
    backlog_bytes=1024 * 1024 * 1024,
    read_passes=8,
    client_read_records=500_000,
    rebalances=7,
    restart_sessions=4,
    warmup_min_s=40.0,
    warmup_max_s=90.0,
    plain_warmup_s=6.0,
)

NODES_QUICK = Sizes(
    name="nodes-quick",
    rounds=1,
    produce_records={FLUSH: 40_000, OS: 40_000},
    latency_s=2.0,
    latency_warmup_s=0.5,
    warmup_min_s=6.0,
    warmup_max_s=10.0,
    kind_warmup_max_s=1.0,
)
"""Sizes that show that it works, not how fast it is: three virtual machines share the cores while they
compile."""

NODES_FULL = Sizes(
    name="nodes-full",
    rounds=2,
    produce_records={FLUSH: 300_000, OS: 300_000},
    latency_s=8.0,
    latency_warmup_s=2.0,
    restarts_per_session=5,
    warmup_min_s=60.0,
    warmup_max_s=120.0,
    plain_warmup_s=6.0,
)
