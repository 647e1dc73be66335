"""What peers say that makes no sense: it is refused, recorded nowhere, and nobody ends over it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lockstep.broker.peers.node_status import Status
from lockstep.broker.peers.peer_rpc import RequestKind
from lockstep.storage.peers.limits import PeerError
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartCluster
from tests.support.cases import each_case

DEEP = b"[" * 100_000
TOPIC = "ab" * 16


def node(**changed: Any) -> dict[str, Any]:
    return {
        "do": "node",
        "node": 2,
        "listeners": {"PLAINTEXT": ["127.0.0.1", 9]},
        "peer": ["127.0.0.1", 9],
        "rack": None,
        "first": True,
        **changed,
    }


REGISTRATIONS: list[object] = [
    {"first": True, "node": 2},
    node(do="drop everything"),
    node(do="gone"),
    node(node=3),
    node(node="2"),
    node(listeners=None),
    node(listeners={"PLAINTEXT": []}),
    node(listeners={"PLAINTEXT": ["127.0.0.1", 1 << 40]}),
    node(peer=["127.0.0.1"]),
    node(peer=["127.0.0.1", -1]),
    [],
    None,
]
COMMANDS: list[object] = [
    {"group": 1, "do": "open", "topic": TOPIC, "indexes": ["x"]},
    {"group": 1, "do": "open", "topic": TOPIC, "indexes": [1.5]},
    {"group": 1, "do": "open", "topic": TOPIC, "indexes": [-1]},
    {"group": 1, "do": "open", "topic": TOPIC, "indexes": [1 << 40]},
    {"group": 1, "do": "open", "topic": "ab", "indexes": [0]},
    {"group": 1, "do": "open", "topic": "zz" * 16, "indexes": [0]},
    {"group": 1, "do": "nothing"},
    {"group": [1]},
    [],
    None,
]


async def ask(
    cluster: BrokerCluster, group: int, kind: RequestKind, body: bytes, refused: type[Exception] = PeerError
) -> None:
    """Ask whoever leads a group in the name of node 2; the network answers any exception with an error."""
    leader = cluster.leader_of(group)
    assert leader is not None
    peer_rpc = cluster.brokers[leader].assembly.peer_rpc
    assert peer_rpc is not None
    with pytest.raises(refused):
        await peer_rpc.on_request(2, kind, body)


async def test_nonsense_is_refused_and_recorded_nowhere(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, auto_leader_rebalance_enable="false")
    await cluster.settled()
    image = cluster.controller.assembly.cluster.image
    nodes = dict(image.nodes)
    await cluster.until(lambda: cluster.leader_of(1) is not None, "leader")
    leader = cluster.leader_of(1)
    assert leader is not None
    partitions = set(cluster.brokers[leader].groups[1].partitions)
    for words in REGISTRATIONS:
        await ask(cluster, 0, RequestKind.REGISTER, json.dumps(words).encode())
    for words in COMMANDS:
        await ask(cluster, 1, RequestKind.GROUP, json.dumps(words).encode())
    for kind in (
        RequestKind.REGISTER,
        RequestKind.FORWARD,
        RequestKind.TRANSFER,
        RequestKind.REPORT,
        RequestKind.GROUP,
    ):
        for body in (b"", b"{", b"\xff", b"[1, 2]", b"null", b"7", DEEP, b"\0\0\0\2[]", b"\xff\xff\xff\xff"):
            await ask(cluster, 0, kind, body, Exception)
    assert image.nodes == nodes
    assert set(cluster.brokers[leader].groups[1].partitions) == partitions
    assert all(broker.failed is None for broker in cluster.brokers.values())
    client = await cluster.client(leader)
    await client.create("t", 3)


@each_case(
    "body",
    [
        b"",
        b"[]",
        b"null",
        DEEP,
        b'{"joined":1}',
        Status(applied=1).encode().replace(b'"applied":1', b'"applied":1e999'),
        Status(applied=1).encode().replace(b'"cluster":null', b'"cluster":[1]'),
        Status(leads={1: 1 << 40}).encode(),
        Status(leads={-1: 1}).encode(),
        Status(registered=(1 << 40,)).encode(),
        Status(applied=-1).encode(),
    ],
)
def test_what_is_no_status_is_not_taken_for_one(body: bytes) -> None:
    with pytest.raises(ValueError):
        Status.decode(body)
