"""`python -m tests.campaigns.half_open --connections 2000`: TLS handshakes that nobody ends, beside a client.

Half of the connections send nothing, half the head of a ClientHello; then all wait. Another client of the
same listener writes a record at a time, in turns with and without them. What must hold: the median of its p99
with them, over all rounds, is at most twice the one without; the broker closes each of them by itself; memory
and descriptors are back afterwards. Adds to docs/evidence/half_open.json and ends with 1 when any of this
fails.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from compat_tests.raw import batch
from tests.campaigns import evidence
from tests.campaigns.attacked_listeners import AttackedTarget, InsideTls
from tests.campaigns.partition_client import LOOPBACK, first_ack

TOPIC: Final = "beside"
BEGUN: Final = bytes.fromhex("16030100c8")
"""The head of a TLS record with a handshake of 200 bytes, none of which follow."""
MOST_TIMES: Final = 2.0
CLOSED_WITHIN_S: Final = 90.0
RSS_GROWTH_BYTES: Final = 10 << 20
PERCENTILE: Final = 99
SETTLE_SECONDS: Final = 14
"""The broker looks every 10 s whether so many connections were closed that it should give memory back."""
TAIL_CACHE_BYTES: Final = 1 << 20
"""What the client writes must not look like memory of connections."""


class HalfOpen:
    """Opens connections in a process of its own, which the client's measurement does not share, and keeps
    them."""

    def __init__(self, port: int, count: int) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._outcome, outcome = spawning.Pipe(duplex=False)
        self._process = spawning.Process(target=_open_and_wait, args=(port, count, outcome), daemon=True)

    def start(self) -> None:
        """Begin to open them."""
        self._process.start()

    def wait_until_closed(self) -> tuple[int, int]:
        """How many the broker has not closed in time, and how many it has refused."""
        open_still, refused = self._outcome.recv()
        self._process.join()
        return open_still, refused


def _open_and_wait(port: int, count: int, outcome: Connection) -> None:
    sockets, refused = [], 0
    for number in range(count):
        try:
            connection = socket.create_connection((LOOPBACK, port), timeout=10)
            sockets.append(connection)
            if number % 2:
                connection.sendall(BEGUN)
        except OSError:
            refused += 1
    ends = time.monotonic() + CLOSED_WITHIN_S
    open_still = 0
    for connection in sockets:
        connection.settimeout(max(0.01, ends - time.monotonic()))
        try:
            while connection.recv(1024):
                pass
        except TimeoutError:
            open_still += 1
        except OSError:
            pass
        connection.close()
    outcome.send((open_still, refused))


def p99_ms(listener: InsideTls, port: int, seconds: float) -> float:
    """Of a closed loop of Produce requests."""
    records = batch([b"v" * 1000])
    latencies = []
    connection = listener.connect(port, 30)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        began = time.perf_counter()
        answer = connection.produce(TOPIC, records)
        latencies.append(time.perf_counter() - began)
        if answer["error_code"]:
            raise RuntimeError(f"a Produce was answered with error {answer['error_code']}")
    connection.close()
    return 1000 * statistics.quantiles(latencies, n=100)[PERCENTILE - 1]


def descriptors(pid: int) -> int:
    """Open descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def settled_rss(target: AttackedTarget) -> int:
    """The least of some seconds: the broker returns memory a while after it has no use for it."""
    least = target.rss_bytes()
    for _ in range(SETTLE_SECONDS):
        time.sleep(1)
        least = min(least, target.rss_bytes())
    return least


def run(directory: Path, connections: int, rounds: int, seconds: float) -> dict[str, Any]:
    """The figures, with the problems among them."""
    listener = InsideTls()
    problems = []
    with AttackedTarget(listener, directory, lockstep_tail_cache_bytes=str(TAIL_CACHE_BYTES)) as target:
        first_ack(target.port, TOPIC, 30)
        p99_ms(listener, target.attacked_port, seconds)
        pid = target.pid
        before, rss = descriptors(pid), []
        without, beside = [], []
        for number in range(rounds):
            without.append(p99_ms(listener, target.attacked_port, seconds))
            half_open = HalfOpen(target.attacked_port, connections)
            half_open.start()
            beside.append(p99_ms(listener, target.attacked_port, seconds))
            open_still, refused = half_open.wait_until_closed()
            if open_still:
                problems.append(f"round {number}: {open_still} are still open after {CLOSED_WITHIN_S} s")
            if refused:
                problems.append(f"round {number}: {refused} were refused")
            print(f"round {number}: p99 {without[-1]:.2f} ms without, {beside[-1]:.2f} ms beside", flush=True)
            rss.append(settled_rss(target))
        grown = rss[-1] - rss[0]
        if grown > RSS_GROWTH_BYTES:
            problems.append(f"memory grew by {grown / 2**20:.1f} MiB after the first round")
        if (now := descriptors(pid)) > before:
            problems.append(f"{now - before} descriptors more than before")
    ratio = statistics.median(beside) / statistics.median(without)
    if ratio > MOST_TIMES:
        problems.append(f"the p99 of the client is {ratio:.2f} times that without them")
    return {
        "connections": connections,
        "rounds": rounds,
        "p99_ms": {
            "without": [round(each, 3) for each in without],
            "beside": [round(each, 3) for each in beside],
        },
        "ratio": round(ratio, 3),
        "rss_mib": [round(each / 2**20, 1) for each in rss],
        "problems": problems,
    }


def main(words: Sequence[str] | None = None) -> int:
    """The campaign as a command; 1 when something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.half_open", description=__doc__)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--no-evidence", action="store_true")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="lockstep-half-open-") as name:
        figures = run(Path(name), given.connections, given.rounds, given.seconds)
    print(figures, flush=True)
    if not given.no_evidence:
        evidence.add_run("half_open", figures)
    return 1 if figures["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
