"""The work of each row of the comparison on a warm session, identical for both brokers.

Owns: the rows' names, and which blocks they are, in which order ("groups" is in `groups`). "memory" has no
work of its own: it is sampled while these run. Measures with `bench.sessions.blocks`.
"""

from __future__ import annotations

from bench.one_node import groups
from bench.sessions.blocks import closed_loop, consume, fill, produce, report_closed, restart
from bench.sessions.jobs import Block
from bench.sessions.session import Session
from bench.settings import FLUSH, PARTITIONS, PRODUCERS

ROWS = ("produce", "latency", "partitions", "groups", "consume", "memory", "restart")
"""The rows that can be asked for by name; "memory" is sampled while the others load the broker."""
QUICK_ROWS = tuple(row for row in ROWS if row != "groups")
"""What fits five minutes."""
BACKLOG_ROWS = frozenset({"consume", "restart"})
"""Rows that need a backlog; one policy is enough for them."""


def run(session: Session, rows: frozenset[str], *, with_restart: bool) -> None:
    """Everything that was asked for, on one warm session."""
    for policy in session.policies:
        if rows & {"produce", "memory"}:
            produce(session, policy)
        if rows & {"latency", "memory", "partitions"}:
            latency(session, policy)
        if "partitions" in rows:
            partitions(session, policy)
        if "groups" in rows:
            groups.run(session, policy)
    if rows & BACKLOG_ROWS:
        topic, filled = fill(session, session.policies[-1])
        if "consume" in rows:
            consume(session, topic, filled)
        if with_restart:
            restart(session, topic, filled)


def latency(session: Session, policy: str) -> None:
    """One closed-loop producer, then sixteen; then sixteen that are a real client."""
    closed_loop(session, "latency1", policy, 1)
    closed_loop(session, "latency16", policy, PRODUCERS)

    def work(topic: str) -> Block:
        result = session.client_closed_loop(topic, PRODUCERS)
        return {**result, "writes": result["total_requests"]}

    report_closed(session.measure("clients16", policy, work, max_outstanding=PRODUCERS))


def partitions(session: Session, policy: str) -> None:
    """Sixteen partitions instead of one, in three shapes; the first and second compare with `latency`.

    "one": one producer writes to the partitions in turn. "sixteen": sixteen producers, all partitions.
    "span": one request carries a record for every partition, against the same records in one batch.
    """
    if policy != FLUSH:
        return
    closed_loop(session, "partitions_one", policy, 1, PARTITIONS)
    closed_loop(session, "partitions_sixteen", policy, PRODUCERS, PARTITIONS)
    closed_loop(session, "span1", policy, 1, 1, records=PARTITIONS)
    closed_loop(session, "span16", policy, 1, PARTITIONS, spread="span")
