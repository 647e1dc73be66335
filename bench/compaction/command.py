"""`python -m bench compaction`: what compaction gives back, and what it costs producers meanwhile.

Owns: one broker with a compacted topic full of dead records, once with the cleaner and once without, in
turns; confluent-kafka producing to another topic while the cleaner works. Prints one JSON object:
throughput of both, their ratio, dead bytes and how many of them came back on the disk. Figures are of this
machine, both sides in one run; nothing is compared with another broker.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import argument_types
from bench.sessions.failures import RoundFailed
from compat_tests.targets import LockstepTarget, Target

SEGMENT_BYTES = 8 << 20
KEYS = 2000
VALUE = b"v" * 200
DEAD_CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


def _broker(cleaner: bool) -> LockstepTarget:
    return LockstepTarget(
        {
            "lockstep.segment.bytes": str(SEGMENT_BYTES),
            "lockstep.data.groups": "1",
            "log.cleaner.enable": "true" if cleaner else "false",
            "log.cleaner.backoff.ms": "4000",
        }
    )


def _producer(target: Target) -> Producer:
    return Producer(
        {
            "bootstrap.servers": target.bootstrap,
            "acks": "all",
            "linger.ms": 2,
            "batch.size": 100_000,
            "queue.buffering.max.messages": 200_000,
        }
    )


class Writer:
    """Sends, and knows what was acknowledged."""

    def __init__(self, target: Target) -> None:
        self.acknowledged = 0
        self._sent = 0
        self._producer = _producer(target)

    def send(self, topic: str, value: bytes, key: bytes) -> None:
        """Waits while the client has no room."""
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=self._on_delivery)
                break
            except BufferError:
                self._producer.poll(0.01)
        self._sent += 1
        self._producer.poll(0)

    def _on_delivery(self, error: object, message: object) -> None:
        self.acknowledged += error is None

    def finish(self) -> None:
        """Until all is acknowledged. RoundFailed where some of it is not."""
        self._producer.flush(120)
        if self.acknowledged < self._sent:
            raise RoundFailed(f"{self._sent - self.acknowledged} records were not acknowledged")


def _fill(target: Target, records: int) -> None:
    """The compacted topic, then enough of the other one that all of it lies below two checkpoints."""
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    made = admin.create_topics([NewTopic("dead", 1, 1, config=DEAD_CONFIG), NewTopic("plain", 1, 1)])
    for future in made.values():
        future.result(20)
    writer = Writer(target)
    for at in range(records):
        writer.send("dead", VALUE, b"key %d" % (at % KEYS))
    writer.finish()
    for at in range(3 * SEGMENT_BYTES // 1000 + 1000):
        writer.send("plain", VALUE * 5, b"%d" % at)
    writer.finish()


def _throughput(target: Target, seconds: float) -> float:
    """Records a second that are acknowledged."""
    writer, began = Writer(target), time.monotonic()
    while time.monotonic() - began < seconds:
        for _ in range(1000):
            writer.send("plain", VALUE, b"k")
    writer.finish()
    return writer.acknowledged / (time.monotonic() - began)


def _await_cleaning(target: Target, patience_s: float) -> int:
    """Bytes that files have less, once nothing more is cleaned, by the broker's own log."""
    saved, deadline, quiet_since = 0, time.monotonic() + patience_s, time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - quiet_since < 15:
        lines = [line for line in target.log_path.read_text().splitlines() if "bytes smaller" in line]
        now = sum(int(line.split(" files are ")[1].split()[0]) for line in lines)
        if now != saved:
            saved, quiet_since = now, time.monotonic()
        time.sleep(0.5)
    return saved


def measure(records: int, seconds: float, rounds: int) -> dict[str, object]:
    """All of it as one object."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    reclaimed: list[float] = []
    dead_bytes = 0
    record_bytes = len(VALUE) + 17
    for number in range(rounds):
        for cleaner in (False, True) if number % 2 == 0 else (True, False):
            with _broker(cleaner) as target:
                _fill(target, records)
                rates[cleaner].append(_throughput(target, seconds))
                if cleaner:
                    dead_bytes = (records - KEYS) * record_bytes
                    reclaimed.append(_await_cleaning(target, 120) / dead_bytes)
    plain, beside = statistics.median(rates[False]), statistics.median(rates[True])
    return {
        "records_per_second_without_cleaner": round(plain),
        "records_per_second_beside_cleaner": round(beside),
        "ratio": round(beside / plain, 3),
        "dead_bytes": dead_bytes,
        "reclaimed_share": round(statistics.median(reclaimed), 3),
        "rounds": rounds,
        "seconds_each": seconds,
    }


def main(arguments: Sequence[str]) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench compaction")
    parser.add_argument("--records", type=argument_types.count, default=200_000)
    parser.add_argument("--seconds", type=argument_types.positive, default=8.0)
    parser.add_argument("--rounds", type=argument_types.count, default=3)
    chosen = parser.parse_args(arguments)
    if chosen.records <= KEYS:
        parser.error(f"--records: {KEYS} of them stay, more are needed")
    print(json.dumps(measure(chosen.records, chosen.seconds, chosen.rounds), indent=2))
    return 0
