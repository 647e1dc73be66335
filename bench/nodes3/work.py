"""The blocks of work that three nodes are compared by.

Owns: what runs on a warm `NodesSession`, for one partition (one Lockstep group) and for three (a group each).
Block names end in the number of partitions. Identical for both sides.
"""

from __future__ import annotations

from bench.figures.ratios import ANY
from bench.machine.process import RssSampler
from bench.progress import log_progress
from bench.sessions.blocks import closed_loop, produce
from bench.sessions.cluster import NodesSession
from bench.sessions.failures import WrongCount
from bench.sessions.jobs import unclaimed_block
from bench.settings import PRODUCERS

ROWS = ("produce", "latency", "memory", "loss")


def run(session: NodesSession, rows: frozenset[str], losses: int) -> None:
    """Everything that was asked for; memory is sampled while all nodes live."""
    if rows - {"loss"}:
        _measure_load(session, rows)
    if "loss" in rows:
        for shape in session.shapes:
            _losses(session, shape, losses)


def _measure_load(session: NodesSession, rows: frozenset[str]) -> None:
    sampler = RssSampler(session.target.pids)
    with sampler.sample_rss():
        for shape in session.shapes:
            for policy in session.policies:
                _blocks(session, rows, policy, shape)
    session.memory = sampler.result()
    log_progress(f"  memory           {session.memory['rss_max_mb']:.0f} MB at most, all nodes")
    for shape in session.shapes:
        session.blocks.append(unclaimed_block(f"memory_{shape}", ANY, session.memory))


def _blocks(session: NodesSession, rows: frozenset[str], policy: str, shape: int) -> None:
    if rows & {"produce", "memory"}:
        name = f"produce_{shape}"
        session.once_more(name, lambda: produce(session, policy, name, shape))
    if rows & {"latency", "memory"}:
        for producers in (1, PRODUCERS):
            name = f"latency{producers}_{shape}"
            session.once_more(
                name,
                lambda name=name, producers=producers: closed_loop(  # type: ignore[misc]
                    session, name, policy, producers, shape, spread="led"
                ),
            )


def _losses(session: NodesSession, shape: int, count: int) -> None:
    policy = session.policies[0]
    topic = session.topic(policy, shape)
    acked = 0
    for _ in range(count):
        figures = session.once_more(f"loss_{shape}", lambda: session.lose_leader(topic))
        session.await_replicas(topic)
        acked += figures["total_records"]
        stored = sum(session.end_offsets(topic, shape))
        if stored < acked:
            raise WrongCount(f"{session.kind}: {acked - stored} acknowledged records lost with a leader")
        session.blocks.append(unclaimed_block(f"loss_{shape}", ANY, figures))
        log_progress(f"  loss_{shape}           acknowledged again after {figures['first_ack_s']:.2f} s")
