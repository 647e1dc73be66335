"""`python -m bench secured`: the cost of TLS and logins, Lockstep and Apache Kafka in turns, one node each.

Owns: the blocks, their sizes, the order of sessions, and the ratios and goals. Each broker serves a PLAINTEXT
and a SASL_SSL listener in one process; every block runs over both, one right after the other, so that a
broker's own ratio of them is of one moment. One side is alive at a time; rounds are mirrored (ABBA). All jobs
are the load generator's own: the less a client does beside its encryption, the more of a figure is the
broker's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from bench.exit_status import log_progress
from bench.figures.ratios import ANY, BASELINE, NO_POLICY, POLICY_PAIRS, SUBJECT, Goal, Ratio
from bench.runner import COMPARED, Comparison, Options
from bench.sessions import blocks
from bench.sessions.jobs import Block, RoundFailed
from bench.sessions.secured import PLAIN, PROTOCOLS, TLS, Credentials, SecuredSession
from bench.sessions.setup import Setup
from bench.settings import FILL_BATCH_RECORDS, FLUSH, OS, PRODUCER_IN_FLIGHT, PRODUCERS, RECORD_BYTES, Sizes

WHOLE: Final = Sizes(
    name="secured",
    rounds=4,
    produce_records={},
    latency_s=3.0,
    latency_warmup_s=0.7,
    backlog_bytes=256 << 20,
    read_passes=2,
    warmup_min_s=40.0,
    warmup_max_s=60.0,
    plain_warmup_s=4.0,
)
SHORT: Final = Sizes(
    name="secured-quick",
    rounds=1,
    produce_records={},
    latency_s=0.8,
    latency_warmup_s=0.2,
    backlog_bytes=48 << 20,
    read_passes=1,
    warmup_min_s=4.0,
    warmup_max_s=6.0,
    plain_warmup_s=1.0,
)
_ROWS: Final = (
    ("produce", "throughput of batches, 1 producer", "MB/s", "produce_{}.mb_per_s"),
    ("produce.cpu", "1 producer, the broker's CPU for 1 GB", "s/GB", "produce_{}.cpu_s_per_gb"),
    ("latency16.rate", "16 producers, single messages", "requests/s", "latency16_{}.requests_per_s"),
    ("latency16.p99", "16 producers, p99", "ms", "latency16_{}.p99_ms"),
    ("latency16.cpu", "16 producers, the broker's CPU for a request", "us", "latency16_{}.cpu_us"),
)
_READS: Final = (
    ("read", "catch-up read", "GB/s", "read_{}.gb_per_s"),
    ("read.cpu", "catch-up read, the broker's CPU for 1 GB", "s/GB", "read_{}.cpu_s_per_gb"),
)
PAIRS: Final = ("flush", "os")
"""Of equal durability."""


def _ratios() -> Iterable[Ratio]:
    """Both brokers over each listener, then each broker's encrypted listener against its own plaintext
    one."""
    compared = [(listener, protocol, listener, "") for listener, protocol in PROTOCOLS.items()]
    compared.append(("own", f"{PROTOCOLS[TLS]} against its own {PROTOCOLS[PLAIN]}", TLS, PLAIN))
    for prefix, what, listener, plain in compared:
        for name, title, unit, figure in _ROWS:
            for pair in PAIRS:
                policies, words = POLICY_PAIRS[pair]
                full, own = f"{what}: {title}, {words}", figure.format(plain) if plain else ""
                yield Ratio(f"{prefix}.{name}.{pair}", full, unit, figure.format(listener), policies, own=own)
        for name, title, unit, figure in _READS:
            full, own = f"{what}: {title}", figure.format(plain) if plain else ""
            yield Ratio(f"{prefix}.{name}", full, unit, figure.format(listener), NO_POLICY, own=own)


RATIOS: Final = {ratio.name: ratio for ratio in _ratios()}
GOALS: Final = (
    Goal("tls.produce.flush", ">=", 1.5),
    Goal("tls.latency16.rate.flush", ">=", 3.0),
)


@dataclass(frozen=True)
class Planned:
    """One session to come."""

    side: str
    kind: str
    policies: tuple[str, ...]
    round: int

    def __str__(self) -> str:
        return f"{self.kind} {'+'.join(self.policies)}, round {self.round + 1}"


def _policies_of(kind: str) -> list[tuple[str, ...]]:
    """One Kafka process serves both policies, Lockstep has a process for each."""
    return [(FLUSH, OS)] if kind == "kafka" else [(FLUSH,), (OS,)]


class Secured(Comparison[Planned, SecuredSession]):
    """SASL_SSL (TLS 1.3, SCRAM-SHA-512) against PLAINTEXT, one Lockstep node and one Apache Kafka node."""

    name = "secured"
    options: ClassVar[Options] = COMPARED
    quick, whole = SHORT, WHOLE
    ratios, goals, intervals = RATIOS, GOALS, True
    credentials: Credentials

    def plan(self) -> Sequence[Planned]:
        sides = ((BASELINE, self.baseline), (SUBJECT, self.chosen.subject))
        found: list[Planned] = []
        for number in range(self.sizes.rounds):
            one = [
                Planned(side, kind, policies, number)
                for side, kind in sides
                for policies in _policies_of(kind)
            ]
            found += one if number % 2 == 0 else one[::-1]
        return found

    def perform(self) -> tuple[Any, list[str]]:
        """Every broker of the run has the same keys."""
        with tempfile.TemporaryDirectory(prefix="bench-credentials-") as name:
            self.credentials = Credentials(Path(name))
            return super().perform()

    def session(self, planned: Planned) -> SecuredSession:
        setup = Setup(planned.kind, planned.policies)
        session = SecuredSession(planned.side, setup, self.sizes, self.parent, self.credentials)
        session.more["round"] = planned.round
        return session

    def measure(self, planned: Planned, session: SecuredSession) -> None:
        session.open()
        listeners = [*PROTOCOLS] if planned.round % 2 == 0 else [*PROTOCOLS][::-1]
        for policy in session.policies:
            for listener in listeners:
                session.listener = listener
                produce(session, policy)
                blocks.closed_loop(session, f"latency16_{listener}", policy, PRODUCERS)
        if FLUSH in session.policies:
            read(session, listeners)


def produce(session: SecuredSession, policy: str) -> None:
    """One producer's batches of 16 KB, as many unanswered as a producer with default settings has."""
    shape = {"partitions": 1, "records": FILL_BATCH_RECORDS, "window": PRODUCER_IN_FLIGHT, "rate": 0}
    timing = {"seconds": session.sizes.latency_s, "warmup_s": session.sizes.latency_warmup_s}

    def work(topic: str) -> Block:
        result = session.job("pipelined_loop", topic=topic, producers=1, **shape, **timing)
        return {**result, "writes": result["total_requests"]}

    block = session.measure(f"produce_{session.listener}", policy, work, max_outstanding=PRODUCER_IN_FLIGHT)
    figures = block["figures"]
    add_cpu_per_gb(block, figures["total_records"] * RECORD_BYTES)
    blocks.report(
        block, f"{figures['mb_per_s']:.1f} MB/s, {figures['cpu_s_per_gb']:.2f} s of the broker's CPU a GB"
    )


def read(session: SecuredSession, listeners: Sequence[str]) -> None:
    """A backlog is read over both listeners in turns; once over TLS before, and every batch checked."""
    session.listener = PLAIN
    topic, filled = blocks.fill(session, session.policies[-1])
    session.listener = TLS
    expected = filled["figures"]["total_records"]
    checked = session.job("read_backlog", topic=topic, check=True)
    if checked["records"] != expected:
        raise RoundFailed(f"{session.kind}: {expected} records written, {checked['records']} read")
    for number in range(session.sizes.read_passes):
        for listener in listeners if number % 2 == 0 else listeners[::-1]:
            session.listener = listener
            _read_once(session, topic)


def _read_once(session: SecuredSession, topic: str) -> None:
    seconds = min(blocks.READ_S, session.sizes.latency_s)

    def work() -> Block:
        result = session.job("read_backlog", topic=topic, seconds=seconds)
        return {**result, "writes": result["requests"]}

    block = session.observe(f"read_{session.listener}", ANY, work, max_outstanding=1)
    figures = block["figures"]
    add_cpu_per_gb(block, figures["bytes"])
    log_progress(
        f"  {block['name']:<12} {figures['gb_per_s']:.2f} GB/s, {figures['cpu_s_per_gb']:.2f} s of the "
        f"broker's CPU a GB; client {block['client_cpu_share']:.0%} of a CPU"
    )


def add_cpu_per_gb(block: Block, size: float) -> None:
    """Put the broker's CPU seconds for each GB to a block's figures. Args: size: its bytes."""
    figures = block["figures"]
    figures["cpu_s_per_gb"] = round(figures["cpu_us"] * figures["writes"] / 1e6 / (size / 1e9), 3)
