"""The same drawn requests to Lockstep and to Apache Kafka, and every difference between their answers.

    python -m compat_tests.differential --seed 7 --steps 2000

Cases say what we thought of; this asks what we did not. Owns: drawing (`Draw`, from one seed, so that a run
can be repeated), sending each request to both brokers (`Pair`), what of an answer must be equal (`_kept`).
Left out: texts, ids, times the broker chose, and leader epochs, which Kafka counts from 0 per partition and
Lockstep takes from the term of the log group. `ALLOWED` names the differences we mean.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from compat_tests.differential_admin import LEFT_OUT, admin_request
from compat_tests.kafka_jars import SHORT_LIVED
from compat_tests.raw import Answer, ConnectionClosed, RawConnection, batch, values_in, with_crc
from compat_tests.targets import KafkaTarget, LockstepTarget, Target

CLOSED: Answer = {"closed": True}
_LEFT_OUT = frozenset(
    {
        "error_message",
        "record_errors",
        "throttle_time",
        "log_append_time",
        "leader_epoch",
        "current_leader",
        "cluster_id",
        "session_id",
        "brokers",
        "controller_id",
        "preferred_read_replica",
        *LEFT_OUT,
    }
)

Request = tuple[str, int, Answer]
"""API, version, fields."""

ALLOWED: dict[str, str] = {
    "aborted_transactions": "null or empty, Kafka answers now one and now the other",
    "order": "Kafka puts refused partitions of a fetch last, and the topics of Metadata in no order",
    "log_start_offset of a refused produce": "Kafka gives it where its log refused, Lockstep nowhere",
    "codec 5 to 7": "Kafka fails with UNKNOWN_SERVER_ERROR (-1), Lockstep says UNSUPPORTED_COMPRESSION_TYPE",
    "bytes after the batch": "Kafka drops what is shorter than a batch, Lockstep refuses (87)",
    "transactional batch": "Kafka's error is 53, Lockstep's 48: it serves none yet",
    "auto creation": "Kafka creates while it answers error 3, Lockstep answers with the topic",
    "maximum timestamp in the header": "Kafka computes its own from the records, Lockstep takes it",
    "producer id with epoch -1": "Kafka stores it without a check, Lockstep refuses (87)",
    "configs of a created topic": "each broker lists those it knows",
    "the newest record after DeleteRecords": "Kafka may name one that is deleted",
    "two faults in one request": "the brokers may name either",
    "acks=2 to an unknown topic": "Kafka says 3, Lockstep 21",
}
"""Differences that are known and meant, by name; drawing and comparing below leave them out."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One request that the two answered differently."""

    step: int
    request: Request
    lockstep: Any
    kafka: Any

    def __str__(self) -> str:
        api, version, fields = self.request
        return (
            f"step {self.step}: {api} v{version} {_short(fields)}\n"
            f"  lockstep {_short(self.lockstep)}\n  kafka    {_short(self.kafka)}"
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 900 else text[:900] + "..."


@dataclass(slots=True)
class _Side:
    """One broker: its connection, and what is its own (ids)."""

    target: Target
    raw: RawConnection
    topic_ids: dict[str, uuid.UUID] = field(default_factory=dict)
    producer_ids: list[int] = field(default_factory=list)

    def ask(self, make: Callable[[_Side], Request]) -> Answer:
        api, version, fields = make(self)
        try:
            return self.raw.call(api, version, **fields)
        except (ConnectionClosed, TimeoutError):
            self.raw.close()
            self.raw = RawConnection("127.0.0.1", self.target.port)
            return CLOSED

    def named(self, value: Any) -> Any:
        """The same with topic ids turned into names: ids are each broker's own."""
        if isinstance(value, dict):
            return {key: self.named(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.named(each) for each in value]
        if isinstance(value, uuid.UUID):
            return next((name for name, each in self.topic_ids.items() if each == value), None)
        return value


class Pair:
    """Both brokers, prepared alike: two topics of two partitions, three producer ids."""

    topics = ("left", "right")

    def __init__(self, lockstep: Target, kafka: Target) -> None:
        prefix = f"diff-{uuid.uuid4().hex[:8]}-"
        self.names = [prefix + name for name in self.topics]
        self.prefix = prefix
        self.sides = [_Side(each, RawConnection("127.0.0.1", each.port)) for each in (lockstep, kafka)]
        for side in self.sides:
            for name in self.names:
                side.topic_ids[name] = side.raw.create_topic(name, 2, {"max.message.bytes": "4000"})
            side.producer_ids = [side.raw.producer_id()[0] for _ in range(3)]

    def compare(self, step: int, make: Callable[[_Side], Request]) -> Difference | None:
        lockstep, kafka = (_kept(side.named(side.ask(make))) for side in self.sides)
        return None if lockstep == kafka else Difference(step, make(self.sides[0]), lockstep, kafka)

    def close(self) -> None:
        for side in self.sides:
            side.raw.close()


def _kept(value: Any) -> Any:
    """The part of an answer that must be equal."""
    if isinstance(value, dict):
        kept = {key: _kept(each) for key, each in value.items() if key not in _LEFT_OUT}
        kept.pop("aborted_transactions", None)
        if "base_offset" in kept and kept.get("error_code"):
            kept.pop("log_start_offset", None)
        if "topic_config_error_code" in kept:
            kept.pop("configs", None)
        if "records" in kept:
            kept["records"] = values_in(value["records"])
        return kept
    if isinstance(value, list):
        return sorted((_kept(each) for each in value), key=_place_of)
    return value


def _place_of(entry: Any) -> str:
    """What a list is sorted by: names and partition numbers, else all of it."""
    names = ("topic", "name", "topic_id", "index", "partition_index", "partition")
    return repr([entry[name] for name in names if name in entry] if isinstance(entry, dict) else entry)


class Draw:
    """Requests drawn from one seed. Sequences and offsets stay near what makes sense, so that errors and
    successes are both common."""

    def __init__(self, seed: int, pair: Pair, now_ms: int) -> None:
        self._random = random.Random(seed)
        self._pair = pair
        self._base_ms = now_ms - 3_600_000
        self._next_sequence: dict[tuple[int, str, int], int] = {}
        self._written: dict[tuple[str, int], int] = {}
        self._cut: set[tuple[str, int]] = set()
        """Partitions whose first records have been deleted."""

    def request(self) -> Callable[[_Side], Request]:
        kinds: list[tuple[int, Callable[[], Callable[[_Side], Request]]]] = [
            (10, self._produce),
            (6, self._fetch),
            (4, self._list_offsets),
            (1, self._leader_epoch),
            (2, self._topic_life),
            (2, self._metadata),
            (1, self._configs),
            (4, self._administration),
        ]
        weights = [weight for weight, _ in kinds]
        return self._random.choices([kind for _, kind in kinds], weights)[0]()

    def _place(self) -> tuple[str, int]:
        name = self._random.choice([*self._pair.names, *self._pair.names, self._pair.prefix + "absent"])
        return name, self._random.choice([0, 0, 0, 1, 1, 2])

    # -- produce ----------------------------------------------------------------------------------------

    def _produce(self) -> Callable[[_Side], Request]:
        draw = self._random
        topic, partition = self._place()
        version = draw.randint(3, 13)
        acks = draw.choice([-1, -1, 1])
        slot = draw.choice([None, None, 0, 1, 2])
        count = draw.randint(1, 3)
        epoch = draw.choice([0, 0, 0, 0, 0, 0, 1])
        sequence = self._sequence(slot, topic, partition, count)
        values: list[bytes | None] = [
            draw.choice([None, b"", draw.randbytes(9), b"v" * draw.choice([10, 900, 1300])])
            for _ in range(count)
        ]
        codec = draw.choice([0, 0, 1, 2, 3, 4]) if version >= 7 else draw.choice([0, 1, 2, 3])
        stamp = self._base_ms + draw.randint(0, 3_000_000)
        fault = None
        if slot is None and topic in self._pair.names and partition < 2 and draw.random() < 0.3:
            fault = draw.choice(_FAULTS)
        self._written[topic, partition] = self._written.get((topic, partition), 0) + count

        def make(side: _Side) -> Request:
            producer = (-1, -1) if slot is None else (side.producer_ids[slot], epoch)
            base = -1 if slot is None else sequence
            data = bytearray(
                batch(values, producer=producer, base_sequence=base, codec=codec, timestamp_ms=stamp)
            )
            records = bytes(data) if fault is None else fault(data)
            part = {"index": partition, "records": records}
            wanted = {
                "name": topic,
                "topic_id": side.topic_ids.get(topic, uuid.UUID(int=77)),
                "partition_data": [part],
            }
            return "produce", version, {"acks": acks, "timeout": 5000, "topic_data": [wanted]}

        return make

    def _sequence(self, slot: int | None, topic: str, partition: int, count: int) -> int:
        """Mostly the next one, sometimes an old one, sometimes a gap."""
        if slot is None:
            return -1
        key = (slot, topic, partition)
        following = self._next_sequence.get(key, 0)
        kind = self._random.random()
        if kind < 0.7:
            self._next_sequence[key] = following + count
            return following
        return max(0, following - self._random.randint(1, 8)) if kind < 0.9 else following + 2

    # -- consume ----------------------------------------------------------------------------------------

    def _near_end(self, topic: str, partition: int) -> int:
        return self._random.randint(-1, self._written.get((topic, partition), 0) + 2)

    def _fetch(self) -> Callable[[_Side], Request]:
        draw = self._random
        places = [self._place() for _ in range(draw.choice([1, 1, 2]))]
        version = draw.randint(4, 18)
        limits = (draw.choice([1, 200, 5000, 1 << 20]), draw.choice([1, 300, 3000, 1 << 20]))
        wanted = [(topic, partition, self._near_end(topic, partition)) for topic, partition in places]
        if len({topic for topic, _, _ in wanted}) < len(wanted):
            wanted = wanted[:1]

        def make(side: _Side) -> Request:
            topics = [
                {
                    "topic": topic,
                    "topic_id": side.topic_ids.get(topic, uuid.UUID(int=77)),
                    "partitions": [
                        {"partition": number, "fetch_offset": offset, "partition_max_bytes": limits[1]}
                    ],
                }
                for topic, number, offset in wanted
            ]
            asked = {"max_wait": 0, "min_bytes": 0, "max_bytes": limits[0], "session_epoch": -1}
            return "fetch", version, {**asked, "replica_id": -1, "topics": topics}

        return make

    def _list_offsets(self) -> Callable[[_Side], Request]:
        draw = self._random
        topic, partition = self._place()
        version = draw.randint(1, 11)
        stamp = draw.choice([-1, -2, -3, -4, -5, -6, -7, 0, self._base_ms + draw.randint(0, 3_100_000)])
        isolation = draw.choice([0, 1])
        if stamp == -3 and (topic, partition) in self._cut:
            stamp = -2

        def make(side: _Side) -> Request:
            wanted = [{"partition_index": partition, "current_leader_epoch": -1, "timestamp": stamp}]
            topics = [{"name": topic, "partitions": wanted}]
            fields = {"replica_id": -1, "isolation_level": isolation, "topics": topics, "timeout": 5000}
            return "list_offsets", version, fields

        return make

    def _leader_epoch(self) -> Callable[[_Side], Request]:
        topic, partition = self._place()
        version = self._random.randint(2, 4)

        def make(side: _Side) -> Request:
            asked = {"partition": partition, "current_leader_epoch": -1, "leader_epoch": 1_000_000}
            topics = [{"topic": topic, "partitions": [asked]}]
            return "offset_for_leader_epoch", version, {"replica_id": -1, "topics": topics}

        return make

    # -- topics -----------------------------------------------------------------------------------------

    def _topic_life(self) -> Callable[[_Side], Request]:
        if self._random.random() < 0.4:
            return self._delete_topic()
        draw = self._random
        name = self._pair.prefix + draw.choice("xyz")
        partitions, replicas, configs = draw.choice([-1, 1, 3]), draw.choice([-1, 1]), _RETENTION
        fault = draw.choice(["name", "partitions", "replicas", "configs", None, None, None, None])
        if fault is not None:  # one at most: the brokers may name either of two
            name = f"{self._pair.prefix}{draw.randrange(1 << 30)}"
        if fault == "name":
            name = draw.choice([self._pair.names[0], "", ".", "..", "a b", "ü", "x" * 250])
        elif fault == "partitions":
            partitions = draw.choice([0, -2])
        elif fault == "replicas":
            replicas = draw.choice([0, 2, -2])
        elif fault == "configs":
            configs = draw.choice(_BAD_CONFIGS)
        version = draw.randint(2, 7)
        wanted = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replicas,
            "configs": configs,
        }
        twice = fault is None and draw.random() < 0.1
        only_check = draw.random() < 0.3

        def create(side: _Side) -> Request:
            topics = [wanted, wanted] if twice else [wanted]
            return "create_topics", version, {"topics": topics, "timeout": 5000, "validate_only": only_check}

        return create

    def _delete_topic(self) -> Callable[[_Side], Request]:
        name = self._random.choice([*(self._pair.prefix + each for each in "xyz"), "", "a b"])
        version = self._random.randint(1, 6)

        def make(side: _Side) -> Request:
            entry = {"name": name, "topic_id": None}
            return "delete_topics", version, {"topic_names": [name], "topics": [entry], "timeout": 5000}

        return make

    def _metadata(self) -> Callable[[_Side], Request]:
        draw = self._random
        version = draw.randint(4, 13)  # before, a question creates the topic
        names = draw.sample([*self._pair.names, self._pair.prefix + "absent", "a b", ""], draw.randint(0, 3))

        def make(side: _Side) -> Request:
            fields = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
            return "metadata", version, {**fields, "include_topic_authorized_operations": True}

        return make

    def _administration(self) -> Callable[[_Side], Request]:
        short_lived = [self._pair.prefix + each for each in "xyz"]
        request = admin_request(self._random, self._pair.names, short_lived, self._near_end)
        if request[0] == "delete_records":
            topics = request[2]["topics"]
            self._cut.update((t["name"], part["partition_index"]) for t in topics for part in t["partitions"])
        return lambda side: request

    def _configs(self) -> Callable[[_Side], Request]:
        draw = self._random
        version = draw.randint(1, 4)
        name = draw.choice([*self._pair.names, self._pair.prefix + "absent", ""])
        keys = draw.sample(
            ["max.message.bytes", "retention.ms", "cleanup.policy", "no.such"], draw.randint(1, 4)
        )

        def make(side: _Side) -> Request:
            asked = {"resource_type": 2, "resource_name": name, "configuration_keys": keys}
            return "describe_configs", version, {"resources": [asked], "include_synonyms": False}

        return make


_RETENTION: list[Answer] = [{"name": "retention.ms", "value": "60000"}]
_BAD_CONFIGS: list[list[Answer]] = [
    [{"name": "retention.ms", "value": "-2"}],
    [{"name": "max.message.bytes", "value": "-1"}],
    [{"name": "max.message.bytes", "value": "many"}],
    [{"name": "message.timestamp.type", "value": "Never"}],
    [{"name": "no.such", "value": "1"}],
    [{"name": "retention.ms", "value": None}],
]


def _set(place: int, layout: str, value: int) -> Callable[[bytearray], bytes]:
    def change(data: bytearray) -> bytes:
        struct.pack_into(layout, data, place, value)
        return with_crc(data)

    return change


def _add_attribute(bit: int) -> Callable[[bytearray], bytes]:
    def change(data: bytearray) -> bytes:
        data[22] |= bit
        return with_crc(data)

    return change


def _wrong_crc(data: bytearray) -> bytes:
    data[-1] ^= 0xFF
    return bytes(data)


_FAULTS: Sequence[Callable[[bytearray], bytes]] = (
    _wrong_crc,
    lambda data: bytes(data[:-1]),
    lambda data: bytes(data[:30]),
    lambda data: b"",
    lambda data: bytes(data) * 2,
    _set(0, ">q", 5),
    _set(8, ">i", 3),
    _set(8, ">i", -1),
    _set(12, ">i", 1000),  # leader epoch: not the producer's business
    _set(16, ">b", 0),
    _set(16, ">b", 3),
    _add_attribute(0x20),  # control
    _add_attribute(0x08),  # LogAppendTime, on a CreateTime topic
    _set(23, ">i", 77),
    _set(23, ">i", -1),
    _set(57, ">i", 0),
    _set(57, ">i", -1),
    _set(57, ">i", 1000),
)


def differences(seed: int, steps: int, lockstep: Target, kafka: Target) -> list[Difference]:
    """Run `steps` drawn requests; what differed, in order. After one difference the logs may have parted, so
    later ones can follow from it: look at the first."""
    pair = Pair(lockstep, kafka)
    try:
        draw = Draw(seed, pair, int(time.time() * 1000))
        found = (pair.compare(step, draw.request()) for step in range(steps))
        return [each for each in found if each is not None]
    finally:
        pair.close()


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.differential")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args(words)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    print(
        f"repeat with: python -m compat_tests.differential --seed {seed} --steps {options.steps}", flush=True
    )
    with LockstepTarget() as lockstep, KafkaTarget(heap="512M", jvm=SHORT_LIVED) as kafka:
        found = differences(seed, options.steps, lockstep, kafka)
    for each in found[:20]:
        print(each)
    print(f"{options.steps} requests, {len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
