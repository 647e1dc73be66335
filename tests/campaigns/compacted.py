"""`python -m tests.campaigns.compacted --kills 20`: kill -9 while a compacted topic is written and cleaned.

An idempotent confluent-kafka producer writes rising numbers under few keys; the cleaner looks every 200 ms
and the log files are small, so that it is at work nearly always. After each kill the broker starts again on
the same directory. At the end, and after one more kill, the topic is read from its start: of each key the
last number must be there that was acknowledged, or a later one, numbers of a key only rise, and most of
what was written must be gone. Prints one JSON object; ends with 1 where a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat_tests.targets import LockstepTarget, Target

KEYS = 50
TOPIC = "compacted"
CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "1000"}
SETTINGS = {
    "lockstep.segment.bytes": str(1 << 20),
    "lockstep.data.groups": "1",
    "message.max.bytes": "500000",
    "log.cleaner.backoff.ms": "200",
}


class Writer:
    """Writes until it is stopped; knows what was acknowledged."""

    def __init__(self, target: Target, seed: int) -> None:
        self._random = random.Random(seed)
        self._producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{target.port}",
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.size": 50_000,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self.acknowledged: dict[bytes, int] = {}
        self.count = 0
        self.failed: list[str] = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.stopping.is_set():
            key = b"%d" % int(KEYS * self._random.random() ** 2)
            self.count += 1
            value = b"%d " % self.count + self._random.randbytes(200)
            try:
                self._producer.produce(TOPIC, value, key, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)
            if self.count % 50 == 0:
                self._producer.poll(0.005)
        if self._producer.flush(60):
            self.failed.append("not all was acknowledged in time")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        key, value = message.key(), message.value()
        if error is not None:
            self.failed.append(str(error))
        elif isinstance(key, bytes) and isinstance(value, bytes):
            self.acknowledged[key] = max(self.acknowledged.get(key, 0), int(value.split()[0]))


def problems(target: Target, writer: Writer) -> tuple[list[str], int]:
    """What is wrong with the topic, and how many records are left."""
    consumer = Consumer(
        {"bootstrap.servers": f"127.0.0.1:{target.port}", "group.id": "g", "enable.auto.commit": False}
    )
    found = list(writer.failed)
    last: dict[bytes, int] = {}
    count, offset = 0, -1
    place = TopicPartition(TOPIC, 0, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=20)
    consumer.assign([place])
    deadline = time.monotonic() + 60
    while offset < end - 1 and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            key, value, at = message.key(), message.value(), message.offset()
            assert isinstance(key, bytes) and isinstance(value, bytes) and at is not None
            number = int(value.split()[0])
            if at <= offset or number <= last.get(key, 0):
                found.append(f"offset {at}, key {key!r}: {number} after {last.get(key)}")
            last[key], offset = number, at
            count += 1
    consumer.close()
    if offset != end - 1:
        found.append(f"read up to {offset}, the end is {end}")
    for key, number in sorted(writer.acknowledged.items()):
        if last.get(key, 0) < number:
            found.append(f"key {key!r}: {last.get(key)}, {number} was acknowledged")
    return found, count


def campaign(kills: int, seed: int) -> dict[str, object]:
    """All of it; "problems" is empty where every promise was kept."""
    rng = random.Random(seed)
    with LockstepTarget(SETTINGS) as target:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{target.port}"})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(20)
        writer = Writer(target, seed)
        writer.thread.start()
        try:
            for _ in range(kills):
                time.sleep(rng.uniform(0.3, 2.0))
                target.kill9()
                target.start()
        finally:
            writer.stopping.set()
            writer.thread.join()
        target.kill9()
        target.start()
        deadline = time.monotonic() + 40
        while True:
            found, left = problems(target, writer)
            if found or left <= writer.count / 2 or time.monotonic() > deadline:
                break
            time.sleep(2)
        passes = target.log_path.read_text().count("bytes smaller")
    if left > writer.count / 2:
        found.append(f"{left} of {writer.count} records are left")
    return {
        "kills": kills + 1,
        "seed": seed,
        "written": writer.count,
        "left": left,
        "passes": passes,
        "problems": found,
    }


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.compacted")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    result = campaign(chosen.kills, chosen.seed)
    print(json.dumps(result, indent=2))
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
