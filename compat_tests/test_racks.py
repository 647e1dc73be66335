"""Three nodes in three racks: consumers that say where they stand read from a follower there (KIP-392).

Whose bytes they read is counted between them and each node. The same case for three Apache Kafka nodes, which
take two minutes, is for whoever asks for it: LOCKSTEP_COMPAT_TARGETS=kafka.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from compat_tests import harness
from compat_tests.clients.confluent import Confluent
from compat_tests.clients.face import Client, Member, Message, Stored
from compat_tests.clients.java import Java
from compat_tests.clusters import NEW_LEADER_S, Cluster, KafkaCluster, LockstepCluster
from compat_tests.harness import World
from compat_tests.kafka_jars import require_java
from compat_tests.probe import HOST
from compat_tests.raw import RawConnection, batch, values_in
from compat_tests.relay import Relay
from compat_tests.until import until

OFFSET_OUT_OF_RANGE = 1
NOT_LEADER_OR_FOLLOWER = 6
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
OFFSET_NOT_AVAILABLE = 78
AREA = "Racks"
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SECONDS = 40.0
"""Kafka's cluster takes nine to see that a node is gone, and machines that test are busy."""
RECORD_BYTES = 10_000
OTHER_BYTES = 300_000
"""More than metadata, heartbeats and a group's coordination come to."""
PARTLY_KAFKAS = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "1000"}


@dataclass(frozen=True)
class Racks:
    """Node N stands in rack-N; clients know the relays, `bootstrap`, alone."""

    cluster: Cluster
    relays: dict[int, Relay]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{each.port}" for each in self.relays.values())

    def answered(self) -> dict[int, int]:
        """Bytes that came from each node so far."""
        return {node_id: relay.answered_bytes for node_id, relay in self.relays.items()}

    def ask(self, node_id: int, api: str, version: int, **fields: Any) -> Any:
        """One question by hand to one node, past its relay."""
        with RawConnection(HOST, self.cluster.nodes[node_id].port) as raw:
            return raw.call(api, version, **fields)


@pytest.fixture(
    scope="module",
    params=[pytest.param(each, id=f"on-{each}") for each in harness.wanted_threes()],
)
def target(request: pytest.FixtureRequest) -> Iterator[Racks]:
    if request.param == "kafka":
        require_java()
        cluster: Cluster = KafkaCluster(3, PARTLY_KAFKAS, heap="512M")
    else:
        cluster = LockstepCluster(3)
    with ExitStack() as ending:
        relays = {number: ending.enter_context(Relay(node.port)) for number, node in cluster.nodes.items()}
        for number, node in cluster.nodes.items():
            node.settings |= {
                "broker.rack": f"rack-{number}",
                "replica.selector.class": SELECTOR,
                "advertised.listeners": f"PLAINTEXT://{HOST}:{relays[number].port}",
                "group.initial.rebalance.delay.ms": "0",
            }
        ending.enter_context(cluster)
        yield Racks(cluster, relays)


@pytest.fixture(params=[Confluent.name, Java.name])
def client(request: pytest.FixtureRequest, world: World, target: Racks) -> Iterator[Client]:
    is_java = request.param == Java.name
    made: Client = Java(target.bootstrap, world.driver()) if is_java else Confluent(target.bootstrap)
    yield made
    made.close()


def made_topic(racks: Racks, name: str) -> int:
    """A topic of one partition on all nodes; the node that leads it."""
    wanted = {"name": name, "num_partitions": 1, "replication_factor": 3}
    until(
        0,
        lambda: racks.ask(1, "create_topics", 7, topics=[wanted], timeout=10_000)["topics"][0]["error_code"],
    )

    until(True, lambda: leader_of(racks, name) > 0)
    if not _is_kafka(racks):
        until(True, lambda: _leads_as_placed(racks, name))  # from then on no leader moves by itself
    time.sleep(NEW_LEADER_S)
    return leader_of(racks, name)


def leader_of(racks: Racks, topic: str) -> int:
    """-1 where nobody is known to lead."""
    return max((int(each["leader_id"]) for each in _partitions(racks, topic)), default=-1)


def _leads_as_placed(racks: Racks, topic: str) -> bool:
    return all(each["leader_id"] == each["replica_nodes"][0] for each in _partitions(racks, topic))


def _partitions(racks: Racks, topic: str) -> Any:
    (told,) = racks.ask(1, "metadata", 12, topics=[{"name": topic}])["topics"]
    return told["partitions"]


def preferred(racks: Racks, leader: int, topic: str, offset: int, rack: str) -> int:
    """Where the leader sends a consumer of that rack to."""
    part = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
        "current_leader_epoch": -1,
    }
    answer = racks.ask(
        leader, "fetch", 12, max_wait=0, min_bytes=0, session_epoch=-1, rack_id=rack,
        topics=[{"topic": topic, "partitions": [part]}],
    )  # fmt: skip
    told = answer["responses"][0]["partitions"][0]
    assert told["error_code"] == 0
    return int(told["preferred_read_replica"])


def joined(client: Client, topic: str, rack: str) -> Member:
    settings = {
        "group.id": f"{topic}-{client.name.replace(' ', '-')}-{rack}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 30_000,
        "client.rack": rack,
    }
    return client._join([topic], settings)


def read(member: Member, count: int) -> list[Stored]:
    found: list[Stored] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found += member.poll(count - len(found), 0.5)
    return found


def records(first: int, count: int) -> list[Message]:
    return [Message(b"%06d" % number + bytes(RECORD_BYTES)) for number in range(first, first + count)]


@pytest.mark.case(
    AREA, "a consumer reads from the follower in its rack, and from the leader once that is killed"
)
def test_reading_near(target: Racks, client: Client, unused_name: Callable[[], str]) -> None:
    topic = unused_name()
    leader = made_topic(target, topic)
    near, _ = sorted(set(target.cluster.nodes) - {leader})
    client.produce(topic, records(0, 200), idempotent=True)
    until(near, lambda: preferred(target, leader, topic, 200, f"rack-{near}"))
    assert preferred(target, leader, topic, 200, f"rack-{leader}") == -1
    assert preferred(target, leader, topic, 200, "nowhere") == -1

    before = target.answered()
    member = joined(client, topic, f"rack-{near}")
    try:
        found = read(member, 200)
        client.produce(topic, records(200, 50), idempotent=True)
        found += read(member, 50)
        member.commit()  # whoever coordinates the group may be killed, too
        after = target.answered()
        assert after[near] - before[near] >= 250 * RECORD_BYTES, "the follower served all of it"
        if not _is_kafka(target):
            # Kafka's leader answers its followers through the same port.
            assert after[leader] - before[leader] < OTHER_BYTES, "and the leader nothing"

        target.cluster.kill9(near)
        client.produce(topic, records(250, 50), idempotent=True)
        found += read(member, 50)
        assert target.answered()[leader] - after[leader] >= 50 * RECORD_BYTES, "back to the leader"
        assert [each.offset for each in found] == list(range(300)), "each once, in order"
        assert [(each.value or b"")[:6] for each in found] == [b"%06d" % number for number in range(300)]
    finally:
        member.close()
        target.cluster.restart(near)
        target.cluster.await_members(target.cluster.nodes)


@pytest.mark.case(AREA, "a follower serves Fetch since version 11, and refuses the rest as Kafka does")
def test_a_follower_by_hand(target: Racks, unused_name: Callable[[], str]) -> None:
    topic = unused_name()
    leader = made_topic(target, topic)
    follower = min(set(target.cluster.nodes) - {leader})
    with RawConnection(HOST, target.cluster.nodes[leader].port) as raw:
        raw.produce(topic, batch([b"a", b"b"]))
    with RawConnection(HOST, target.cluster.nodes[follower].port) as raw:
        until(2, lambda: raw.fetch(topic, 0, api_version=12)["high_watermark"])
        for version in (11, 12):
            found = raw.fetch(topic, 0, api_version=version)
            assert (found["error_code"], found["preferred_read_replica"]) == (0, -1)
            assert values_in(found["records"]) == [(0, b"a"), (1, b"b")]
        assert raw.fetch(topic, 0, api_version=10)["error_code"] == NOT_LEADER_OR_FOLLOWER
        epoch = _partitions(target, topic)[0]["leader_epoch"]
        older = FENCED_LEADER_EPOCH if epoch else 0  # Kafka's first is 0, and -1 is not checked
        for told, error in ((epoch, 0), (epoch - 1, older), (epoch + 1, UNKNOWN_LEADER_EPOCH)):
            assert raw.fetch(topic, 0, leader_epoch=told)["error_code"] == error
        beyond = raw.fetch(topic, 3)["error_code"]
        # decision 21: what a follower has not got, its leader may have
        assert beyond == (OFFSET_OUT_OF_RANGE if _is_kafka(target) else OFFSET_NOT_AVAILABLE)
        assert raw.list_offset(topic, -1)["error_code"] == NOT_LEADER_OR_FOLLOWER


def _is_kafka(racks: Racks) -> bool:
    return isinstance(racks.cluster, KafkaCluster)
