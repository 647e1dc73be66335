"""The headline's blocks on a warm session, identical for both brokers.

Owns: what runs, in which order. Blocks of three nodes begin with "n3_". Memory is sampled while all run but
the restart. Three nodes have Lockstep's default number of data groups, three. Measures with
`bench.sessions.blocks`.
"""

from __future__ import annotations

from bench.figures.ratios import ANY
from bench.headline.sizes import (
    MANY_PRODUCERS,
    NODES_PARTITIONS,
    SMALL_RECORD_BYTES,
    HeadlineSizes,
)
from bench.machine.process import RssSampler
from bench.progress import log_progress
from bench.sessions import blocks
from bench.sessions.cluster import NodesSession
from bench.sessions.jobs import unclaimed_block
from bench.sessions.session import Session
from bench.settings import FLUSH, PRODUCERS

ROWS = ("produce", "small", "latency", "consume", "fan_out", "restart")
"""What can be asked for by name."""
NODES_ROWS = frozenset({"produce", "latency"})
"""What three nodes have of them."""


def one_node(session: Session, sizes: HeadlineSizes, wanted: frozenset[str]) -> None:
    """Start, warm up, and everything that was asked for. RoundFailed, TargetFailed."""
    session.open()
    topic, filled = "", None
    sampler = RssSampler(session.target.pids)
    with sampler.sample_rss():
        for policy in session.policies:
            _one_policy(session, policy, sizes, wanted)
        if wanted & {"consume", "restart"}:
            topic, filled = blocks.fill(session, session.policies[-1])
        if filled is not None and "consume" in wanted:
            blocks.consume(session, topic, filled)
    session.memory = sampler.result()
    log_progress(f"  memory           {session.memory['rss_max_mb']:.0f} MB at most")
    if filled is not None and "restart" in wanted:
        blocks.restart(session, topic, filled)


def _one_policy(session: Session, policy: str, sizes: HeadlineSizes, wanted: frozenset[str]) -> None:
    if "produce" in wanted:
        blocks.produce(session, policy)
    if "small" in wanted:
        size, count = SMALL_RECORD_BYTES, sizes.small_records
        warmup = sizes.small_warmup_records
        blocks.produce(session, policy, "small", record_bytes=size, records=count, warmup=warmup)
    if "latency" in wanted:
        blocks.closed_loop(session, "latency1", policy, 1)
        blocks.closed_loop(session, "latency16", policy, PRODUCERS)
        blocks.closed_loop(session, "latency64", policy, MANY_PRODUCERS)
    if "fan_out" in wanted:
        blocks.fan_out(session, policy, sizes.fan_out_bytes)


def three_nodes(session: NodesSession, wanted: frozenset[str]) -> None:
    """Like `one_node`, for a cluster. RoundFailed, TargetFailed."""
    session.open()
    sampler = RssSampler(session.target.pids)
    with sampler.sample_rss():
        for policy in session.policies:
            if "produce" in wanted:
                _produce(session, policy)
            if "latency" in wanted:
                _closed_loop(session, "n3_latency1", policy, 1, 1)
                _closed_loop(session, "n3_latency16", policy, PRODUCERS, 1)
                if policy == FLUSH:
                    _closed_loop(session, "n3_partitions16", policy, PRODUCERS, NODES_PARTITIONS)
    figures = sampler.result()
    session.blocks.append(unclaimed_block("n3_memory", ANY, figures))
    log_progress(f"  memory           {figures['rss_max_mb']:.0f} MB at most, all nodes")


def _produce(session: NodesSession, policy: str) -> None:
    session.once_more("n3_produce", lambda: blocks.produce(session, policy, "n3_produce"))


def _closed_loop(session: NodesSession, name: str, policy: str, producers: int, partitions: int) -> None:
    session.once_more(
        name, lambda: blocks.closed_loop(session, name, policy, producers, partitions, spread="led")
    )
