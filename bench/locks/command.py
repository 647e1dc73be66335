"""`python -m bench locks`: what a lock costs, beside the same record on a topic without locks.

Owns: one broker, one closed-loop producer of single-record batches over a bare socket, in turns to a topic
with `lockstep.locks=true` and to one without. Every record has the same headers, a high-water mark and a
write lock, drawn from many; only on one of the two topics they are read. Prints one JSON object: p50 and p99
of both, the broker's CPU per write, and their ratios (medians over the rounds). No other broker is measured.
Exit status 3 where a ratio is above `--most`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from array import array
from collections.abc import Sequence
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import argument_types
from bench.exit_status import EXIT_GOAL_MISSED
from bench.load.closed_loop import Producer
from bench.load.connection import connect
from bench.load.latency import quantiles
from bench.load.wire import ProduceTemplate
from bench.machine.process import cpu_seconds
from bench.settings import FLUSH, LOG_FLUSH, POLICIES
from compat_tests.probe import HOST
from compat_tests.targets import LockstepTarget
from protocol.records.record import BatchBuilder

LOCKS: Final = 100_000
VALUE: Final = b"v" * 1024
KINDS: Final = {"plain": "ignore", "locked": "true"}


def _batch(hwm: int, lock: bytes) -> bytes:
    """One record that may be appended by whoever has read up to `hwm`."""
    builder = BatchBuilder()
    headers: list[tuple[str, bytes | None]] = [
        ("lockstep-hwm", b"%018d" % hwm if hwm >= 0 else b"-1"),
        ("lockstep-write-lock", lock),
    ]
    builder.append(VALUE, headers=headers, timestamp_ms=time.time_ns() // 1_000_000)
    return builder.build()


class Side:
    """One topic, and how many records it has."""

    def __init__(self, target: LockstepTarget, kind: str) -> None:
        self.kind = kind
        self.written = 0
        self.p50_ms: list[float] = []
        self.p99_ms: list[float] = []
        self.cpu_us: list[float] = []
        self._target = target
        self._rng = random.Random(7)

    def block(self, seconds: float, is_counted: bool) -> None:
        """Write for so long, one after the other."""
        assert self._target.pid is not None
        sock = connect(HOST, self._target.port)
        producer = Producer(sock, [ProduceTemplate(self.kind, {0: _batch(-1, b"x")}, 1)], 0)
        latencies = array("q")
        before, until = cpu_seconds(self._target.pid), time.monotonic() + seconds
        while time.monotonic() < until:
            batch = _batch(self.written - 1, b"account/%d" % self._rng.randrange(LOCKS))
            producer.templates = [ProduceTemplate(self.kind, {0: batch}, 1)]
            producer.ask()
            latencies.append(time.perf_counter_ns() - producer.sent_ns)
            self.written += 1
        used = cpu_seconds(self._target.pid) - before
        sock.close()
        if is_counted:
            found = quantiles(latencies)
            self.p50_ms.append(found["p50_ms"])
            self.p99_ms.append(found["p99_ms"])
            self.cpu_us.append(used * 1e6 / len(latencies))


def measure(seconds: float, rounds: int, flush: str) -> dict[str, object]:
    """All of it as one object."""
    with LockstepTarget({"log.flush": flush, "lockstep.data.groups": "1"}) as target:
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        wanted = [NewTopic(kind, 1, 1, config={"lockstep.locks": mode}) for kind, mode in KINDS.items()]
        for future in admin.create_topics(wanted).values():
            future.result(20)
        sides = [Side(target, kind) for kind in KINDS]
        for number in range(rounds + 1):
            for side in sides if number % 2 else sides[::-1]:
                side.block(seconds, is_counted=number > 0)
    figures: dict[str, object] = {
        side.kind: {
            "p50_ms": round(statistics.median(side.p50_ms), 4),
            "p99_ms": round(statistics.median(side.p99_ms), 4),
            "broker_cpu_us_per_write": round(statistics.median(side.cpu_us), 1),
            "writes": side.written,
        }
        for side in sides
    }
    plain, locked = sides
    figures["ratio_p50"] = round(statistics.median(locked.p50_ms) / statistics.median(plain.p50_ms), 3)
    figures["ratio_cpu"] = round(statistics.median(locked.cpu_us) / statistics.median(plain.cpu_us), 3)
    return {"flush": flush, "rounds": rounds, "seconds_each": seconds, **figures}


def main(arguments: Sequence[str]) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench locks", description=__doc__)
    parser.add_argument("--seconds", type=argument_types.positive, default=3.0, help="of each block")
    parser.add_argument("--rounds", type=argument_types.count, default=8)
    parser.add_argument("--policy", choices=POLICIES, default=FLUSH)
    parser.add_argument("--most", type=argument_types.positive, default=1.3, help="what both ratios may be")
    chosen = parser.parse_args(arguments)
    figures = measure(chosen.seconds, chosen.rounds, LOG_FLUSH[chosen.policy])
    print(json.dumps(figures, indent=1))
    worst = max(float(str(figures[name])) for name in ("ratio_p50", "ratio_cpu"))
    return EXIT_GOAL_MISSED if worst > chosen.most else 0
