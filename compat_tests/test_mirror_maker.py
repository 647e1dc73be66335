"""MirrorMaker 2, unchanged: its connectors copy from the other broker, so both directions are covered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from compat_tests import harness
from compat_tests.clients.confluent import Confluent
from compat_tests.clients.face import Client, Message
from compat_tests.conftest import unique_name
from compat_tests.connect import BYTES, MIRROR_CHECKPOINT, MIRROR_SOURCE, ConnectWorker
from compat_tests.harness import World
from compat_tests.raw import RawConnection, raw_connection
from compat_tests.targets import KafkaTarget, LockstepTarget, Target
from compat_tests.until import until

AREA = "MirrorMaker 2"
_OTHER = {KafkaTarget.name: LockstepTarget.name, LockstepTarget.name: KafkaTarget.name}
_COMPACTED = {
    "cleanup.policy": "compact",
    "compression.type": "zstd",
    "compression.zstd.level": "9",
    "min.cleanable.dirty.ratio": "0.25",
}
_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": "2000000"}
_PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class Mirror:
    """Two topics and a group on the source cluster, which connectors on the target cluster copy."""

    source: Client
    target: Client
    compacted: str
    kept: str
    group: str

    def copy_of(self, topic: str) -> str:
        """The name of the copy, by the default replication policy."""
        return f"source.{topic}"


@pytest.fixture
def mirror(connect: ConnectWorker, world: World, target: Target) -> Iterator[Mirror]:
    """Both connectors run before the first record is written: earlier offsets are not translated."""
    if not harness.both_brokers():
        pytest.skip("copies from one broker to the other: needs both")
    source = world.target(_OTHER[target.name])
    compacted, kept, group = unique_name(), unique_name(), unique_name()
    with raw_connection(source.bootstrap) as raw:
        raw.create_topic(compacted, _PARTITIONS, _COMPACTED)
        raw.create_topic(kept, 1, _KEPT)
    clusters = {
        "source.cluster.alias": "source",
        "target.cluster.alias": "target",
        "source.cluster.bootstrap.servers": source.bootstrap,
        "target.cluster.bootstrap.servers": target.bootstrap,
        "replication.factor": "1",
        "key.converter": BYTES,
        "value.converter": BYTES,
        "header.converter": BYTES,
    }
    connectors = {
        f"{group}-records": {
            "connector.class": MIRROR_SOURCE,
            "topics": f"{compacted},{kept}",
            "exactly.once.support": "required",
            "consumer.isolation.level": "read_committed",
            "offset-syncs.topic.replication.factor": "1",
            "offset.lag.max": "0",
            "sync.topic.acls.enabled": "false",
            "sync.topic.configs.interval.seconds": "1",
        },
        f"{group}-groups": {
            "connector.class": MIRROR_CHECKPOINT,
            "groups": group,
            "checkpoints.topic.replication.factor": "1",
            "refresh.groups.interval.seconds": "1",
            "emit.checkpoints.interval.seconds": "1",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
        },
    }
    for name, config in connectors.items():
        connect.create(name, {**clusters, **config}, tasks=0 if name.endswith("-groups") else 1)
    name = Confluent.name
    yield Mirror(world.client(name, source.name), world.client(name, target.name), compacted, kept, group)
    for each in connectors:
        connect.delete(each)


def _topic_configs(raw: RawConnection, topic: str) -> dict[str, str]:
    resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
    (found,) = raw.call("describe_configs", 4, resources=[resource])["results"]
    return {each["name"]: each["value"] for each in found["configs"]}


def _records(client: Client, topic: str, count: int, partitions: tuple[int, ...]) -> list[object]:
    """Up to `count` records: content, timestamp and partition of each, in the order of their keys."""
    found = client.read(topic, count, partitions=partitions, isolation="read_committed", timeout_s=30.0)
    found.sort(key=lambda each: (each.key or b"", each.offset))
    return [(each.content(), each.timestamp_ms, each.partition) for each in found]


@pytest.mark.case(AREA, "records of the other broker, each once; settings of topics; offsets of a group")
def test_mirror(mirror: Mirror, raw: RawConnection) -> None:
    base = int(time.time() * 1000) - 3_600_000
    written = [
        Message(
            None if number % 10 == 9 else b"value %03d" % number,
            key=b"key %03d" % number,
            headers=(("trace", b"%d" % number), ("trace", b"\x00\xff"), ("empty", None)),
            timestamp_ms=base + number,
            partition=number % _PARTITIONS,
        )
        for number in range(60)
    ]
    mirror.source.produce(mirror.compacted, written, codec="lz4")
    copy = mirror.copy_of(mirror.compacted)
    expected = [(each.key, each.value, each.headers) for each in written]
    found = _records(mirror.target, copy, len(written), tuple(range(_PARTITIONS)))
    assert found == [
        (content, each.timestamp_ms, each.partition) for content, each in zip(expected, written, strict=True)
    ]

    first = [Message(b"%d" % number) for number in range(50)]
    rest = [Message(b"%d" % number) for number in range(50, 80)]
    mirror.source.produce(mirror.kept, first)
    mirror.source.set_offset(mirror.group, mirror.kept, 0, len(first))
    copy = mirror.copy_of(mirror.kept)
    until(True, lambda: bool(mirror.target.committed(mirror.group, copy, 0)))
    mirror.source.produce(mirror.kept, rest)
    member = mirror.target.join([copy], mirror.group)
    unread = member.poll(len(rest), timeout_s=30.0)
    member.close()
    assert [each.value for each in unread] == [each.value for each in rest]
    everything = mirror.target.read(copy, 81, isolation="read_committed", timeout_s=2.0)
    assert [each.value for each in everything] == [each.value for each in (*first, *rest)]

    for topic, configs in ((mirror.compacted, _COMPACTED), (mirror.kept, _KEPT)):
        of_copy = _topic_configs(raw, mirror.copy_of(topic))
        assert {name: of_copy[name] for name in configs} == configs
