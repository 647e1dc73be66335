"""The blocks of work behind the row "groups": offset commits, rebalances, what an idle member costs.

Owns: how `__consumer_offsets` is made to flush on a broker that does it by topic. Everything else is the load
generator's (`load/members.py`, `commit_loop` of `load/closed_loop.py`).
"""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from bench.exit_status import log_progress
from bench.machine import process
from bench.sessions.jobs import Block, RoundFailed, next_line, unclaimed_block
from bench.sessions.session import Session
from bench.settings import FLUSH

COMMITTERS = 16
GROUP_MEMBERS = 50
HEARTBEAT_S = 0.02
"""Members notice a rebalance at their next heartbeat; Kafka's default of 3 s would hide both brokers."""
HELD_GROUPS = 1_000
HELD_MEMBERS = 10
"""Members of each held group, every one on a connection of its own."""

OFFSETS_TOPIC = "__consumer_offsets"


def run(session: Session, policy: str) -> None:
    """All blocks, where every write is flushed; what a group does without flushing is not compared."""
    if policy != FLUSH:
        return
    topic = session.topic(policy)
    words = {"topic": topic, "group": f"bench-{topic}"}

    def commits() -> None:
        session.job("commit_loop", producers=COMMITTERS, warmup_s=0.0, seconds=1.0, **words)

    commits()
    if session.kind == "kafka":
        _flush_offsets_topic(session)
    session.warm(commits)
    _commits(session, policy, words)
    _rebalances(session, policy, words)
    _measure_members(session, policy, words)


def _flush_offsets_topic(session: Session) -> None:
    admin = AdminClient({"bootstrap.servers": session.target.bootstrap, "log_level": 0})
    entry = ConfigEntry("flush.messages", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, OFFSETS_TOPIC, incremental_configs=[entry])
    try:
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)
    except KafkaException as error:
        raise RoundFailed(f"{session.kind}: {OFFSETS_TOPIC} cannot be made to flush: {error}") from error


def _commits(session: Session, policy: str, words: dict[str, str]) -> None:
    seconds, warmup_s = session.sizes.latency_s, session.sizes.latency_warmup_s

    def work() -> Block:
        result = session.job("commit_loop", producers=COMMITTERS, seconds=seconds, warmup_s=warmup_s, **words)
        return {**result, "writes": result["total_requests"]}

    block = session.observe("commits", policy, work, max_outstanding=COMMITTERS)
    figures = block["figures"]
    log_progress(
        f"  commits          {figures['requests_per_s']:,.0f} commits/s, p99 {figures['p99_ms']:.2f} ms"
    )


def _rebalances(session: Session, policy: str, words: dict[str, str]) -> None:
    size = {"members": GROUP_MEMBERS, "heartbeat_s": HEARTBEAT_S, "rounds": session.sizes.rebalances}
    if session.kind == "kafka":
        session.job("rebalance", **{**size, **words, "group": f"{words['group']}-warm"})
    figures = session.job("rebalance", **size, **words)
    session.blocks.append(unclaimed_block("rebalance", policy, figures))
    shown = ", ".join(f"{name} {value:.3f}" for name, value in figures.items())
    log_progress(f"  rebalance        {GROUP_MEMBERS} members: {shown}")


def _measure_members(session: Session, policy: str, words: dict[str, str]) -> None:
    """Resident memory before the first connection and with every member in its group."""
    before = process.rss_bytes(session.target.pids[0])
    with session.holding_job("hold_members", groups=HELD_GROUPS, members=HELD_MEMBERS, **words) as child:
        next_line(child, "members")
        connected = process.rss_bytes(session.target.pids[0])
        held = next_line(child, "members")
        after = process.rss_bytes(session.target.pids[0])
    count = HELD_GROUPS * HELD_MEMBERS
    figures = {
        "kib_each": (after - before) / count / 1024,
        "kib_each_connection": (connected - before) / count / 1024,
        "seconds": held["seconds"],
    }
    session.blocks.append(unclaimed_block("members", policy, figures))
    log_progress(f"  members          {count} members: {figures['kib_each']:.1f} KiB each")
