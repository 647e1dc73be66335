"""A cluster whose nodes trust only each other: strangers stay out, and certificates change under load."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest

from lockstep.broker import server
from lockstep.broker.network import listener_security
from lockstep.broker.server import Broker
from lockstep.broker.settings.authorizer_settings import STANDARD_AUTHORIZER
from lockstep.broker.settings.properties import ConfigError
from lockstep.cli import main
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.peer_messages import HandshakeRejected, PeerHandshake, RequestBody
from lockstep.storage.peers.envelope import pack, pack_message, unpack
from lockstep.storage.peers.peer_tls import REQUIRED
from lockstep.storage.raft.messages import Message, RangeRequest, VoteRequest
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartCluster
from tests.broker.controller.api.configs import BROKER, SET, alter_all
from tests.broker.waiting import until
from tests.broker.wire import Client, batch

PEM = {"listener_name_peers_ssl_keystore_type": "PEM", "listener_name_peers_ssl_truststore_type": "PEM"}


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    """A directory of `lockstep certs` with three nodes."""
    run(tmp_path / "certs", "create", "--nodes", "1=localhost,2=localhost,3=localhost")
    return tmp_path / "certs"


def run(directory: Path, *arguments: str) -> None:
    assert main(["certs", *arguments, "--directory", str(directory)]) == 0


def settings_of(certs: Path, mode: str = "require") -> dict[str, str]:
    """A node's settings; a broker of a cluster replaces the number."""
    return PEM | {
        "lockstep_peers_tls": mode,
        "listener_name_peers_ssl_keystore_location": f"{certs}/node-{{node}}.pem",
        "listener_name_peers_ssl_truststore_location": f"{certs}/ca.pem",
    }


def peer_port(cluster: BrokerCluster, node_id: int) -> int:
    listener = cluster.brokers[node_id].settings.peer_listener()
    assert listener is not None
    return listener.port


async def test_a_cluster_has_the_id_of_its_certificates(start_cluster: StartCluster, certs: Path) -> None:
    cluster = await start_cluster(3, **settings_of(certs))
    await cluster.settled()
    _leading, client = await cluster.create("t")
    assert (await client.produce("t", batch(b"value"))).error_code == 0
    images = [broker.assembly.cluster.image for broker in cluster.brokers.values()]
    peers = cluster.brokers[1]._securities.peers
    assert peers is not None and {each.cluster_id for each in images} == {peers.identity.cluster_id}

    await cluster.stop(3)
    await cluster.start(3)
    await cluster.settled()
    await until(lambda: cluster.brokers[3].assembly.node._directory.cluster_id is not None)  # type: ignore[union-attr]
    await cluster.stop(3)
    run(certs.parent / "others", "create", "--nodes", "3=localhost")
    cluster._texts |= {k.replace("_", "."): v for k, v in settings_of(certs.parent / "others").items()}
    with pytest.raises(ConfigError, match=r"certificate is of cluster .*, the data directory of "):
        await Broker(cluster.settings(3)).start()


def forged(node_id: int) -> list[bytes]:
    """A stranger's frames: that it joins as a node, a vote, a request for entries, a registration."""
    hello = b'{"cluster": null, "founders": [], "groups": 3, "at": ["127.0.0.1", 9]}'
    frames: list[Message] = [
        VoteRequest(node_id, 1, 99, False, 10**6, 98),
        RangeRequest(node_id, 1, 99, 1, 1),
    ]
    return [
        b"".join(pack(PeerHandshake(node_id=node_id, to_node_id=1, bulk=False, hello=hello))[0]),
        *(b"".join(pack_message(0, each)[0]) for each in frames),
        b"".join(pack(RequestBody(request_id=1, topic=4, body=b"{}"))[0]),
    ]


async def test_a_stranger_neither_joins_nor_votes_nor_reads(start_cluster: StartCluster, certs: Path) -> None:
    cluster = await start_cluster(3, **settings_of(certs))
    await cluster.settled()
    terms = {group_id: group.term for group_id, group in cluster.brokers[1].groups.items()}
    for node_id in (2, 4):
        reader, writer = await asyncio.open_connection("127.0.0.1", peer_port(cluster, 1))
        writer.write(b"".join(forged(node_id)))
        answer = await asyncio.wait_for(reader.read(), 20)
        found = unpack(memoryview(answer)[4:])
        assert isinstance(found, HandshakeRejected) and found.reason == REQUIRED, "and not a byte more"
        writer.close()

        context = ssl.create_default_context(cafile=str(certs / "ca.pem"))
        context.check_hostname = False
        reader, writer = await asyncio.open_connection("127.0.0.1", peer_port(cluster, 1), ssl=context)
        writer.write(b"".join(forged(node_id)))
        with contextlib.suppress(OSError):
            assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
    assert {group_id: group.term for group_id, group in cluster.brokers[1].groups.items()} == terms
    for broker in cluster.brokers.values():
        assert sorted(broker.assembly.cluster.image.nodes) == [1, 2, 3]


@pytest.mark.parametrize("stranger", ["of another cluster", "without TLS"])
async def test_a_broker_that_is_no_node_of_the_cluster_never_serves(
    start_cluster: StartCluster, certs: Path, caplog: pytest.LogCaptureFixture, stranger: str
) -> None:
    cluster = await start_cluster(3, **settings_of(certs))
    await cluster.settled()
    others = certs.parent / "others"
    run(others, "create", "--nodes", "4=localhost")
    texts = settings_of(others) if stranger == "of another cluster" else {"lockstep_peers_tls": "disabled"}
    cluster._texts |= {name.replace("_", "."): text for name, text in texts.items()}
    await cluster.start(4)
    line = REQUIRED if stranger == "without TLS" else "no CA that this node trusts has signed it"
    await cluster.until(lambda: line in caplog.text, "a line in the log")
    assert cluster.brokers[4].waits_for and not cluster.brokers[4].assembly.image.nodes
    await cluster.stop(4)
    for broker in cluster.brokers.values():
        assert sorted(broker.assembly.cluster.image.nodes) == [1, 2, 3]


async def test_a_node_is_added_with_a_certificate_of_the_same_authority(
    start_cluster: StartCluster, certs: Path
) -> None:
    cluster = await start_cluster(3, **settings_of(certs))
    await cluster.settled()
    run(certs, "add", "--nodes", "4=localhost")
    await cluster.start(4)
    await cluster.settled()
    assert 4 in cluster.brokers[1].assembly.cluster.image.nodes


class Load:
    """Producers that go on until they are told to stop; every error counts."""

    def __init__(self, clients: list[Client]) -> None:
        self.acknowledged, self.errors = 0, list[object]()
        self._stopping = False
        self._tasks = [asyncio.ensure_future(self._produce(each)) for each in clients]

    async def _produce(self, client: Client) -> None:
        while not self._stopping:
            try:
                answer = await client.produce("t", batch(b"value"))
            except Exception as error:
                self.errors.append(error)
                return
            if answer.error_code:
                self.errors.append(answer.error_code)
            self.acknowledged += 1

    async def some_more(self) -> None:
        """Wait until more records are acknowledged, or one is not."""
        goal = self.acknowledged + 50
        await until(lambda: self.acknowledged >= goal or bool(self.errors))

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)


async def take_over(cluster: BrokerCluster, certs: Path, step: str) -> None:
    """Change the files, and wait until all nodes have read them again."""
    peers = [broker._securities.peers for broker in cluster.brokers.values()]
    former = [each.client_context for each in peers if each is not None]
    run(certs, step)
    await until(
        lambda: all(
            each is not None and each.client_context is not context
            for each, context in zip(peers, former, strict=True)
        )
    )


async def dial_again(cluster: BrokerCluster, node_id: int) -> None:
    """End all connections to a node, and wait until the others have dialed it again."""
    peer_rpc = cluster.brokers[node_id].assembly.peer_rpc
    assert peer_rpc is not None
    incoming = peer_rpc.network._incoming
    former = list(incoming.values())
    for each in former:
        each.abort()
    await until(lambda: len(incoming) == len(former) and not set(former) & set(incoming.values()))


async def test_all_certificates_and_the_authority_change_under_load(
    start_cluster: StartCluster, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_security, "CERTIFICATE_POLL_INTERVAL_SECONDS", 0.05)
    cluster = await start_cluster(3, **settings_of(certs))
    await cluster.settled()
    leading, client = await cluster.create("t")
    load = Load([client, await cluster.client(leading)])
    old_key = (certs / "node-2.pem").read_bytes()
    old_ca = (certs / "ca.pem").read_bytes()

    for step in ("new-ca", "renew", "drop-ca"):
        await load.some_more()
        await take_over(cluster, certs, step)
        for node_id in cluster.brokers:  # open connections stay: have all of them be new ones
            await dial_again(cluster, node_id)
        await load.some_more()
    await load.stop()
    assert load.errors == [] and load.acknowledged > 200

    context = ssl.create_default_context(cadata=(certs / "ca.pem").read_text())
    context.check_hostname = False
    old = certs.parent / "old.pem"
    old.write_bytes(old_key)
    context.load_cert_chain(old)
    reader, writer = await asyncio.open_connection("127.0.0.1", peer_port(cluster, 1), ssl=context)
    with contextlib.suppress(OSError):
        assert await asyncio.wait_for(reader.read(), 20) == b"", "the former CA counts no more"
    writer.close()
    assert old_ca not in (certs / "ca.pem").read_bytes()

    await cluster.stop(2)
    await cluster.start(2)
    await cluster.settled()


async def test_a_cluster_that_runs_moves_to_tls_one_node_at_a_time(
    start_cluster: StartCluster, certs: Path
) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    cluster_id = cluster.brokers[1].assembly.cluster.cluster_id
    assert cluster_id is not None
    own = certs.parent / "own"
    run(own, "create", "--nodes", "1=localhost,2=localhost,3=localhost", f"--cluster-id={cluster_id}")
    for mode in ("allow", "prefer", "require"):
        cluster._texts |= {name.replace("_", "."): text for name, text in settings_of(own, mode).items()}
        for node_id in (1, 2, 3):
            await cluster.stop(node_id)
            await cluster.start(node_id)
            await cluster.settled()
    _leading, client = await cluster.create("t")
    assert (await client.produce("t", batch(b"value"))).error_code == 0


@pytest.mark.parametrize("mode", ["disabled", "allow", "prefer", "require"])
async def test_a_start_warns_of_a_replication_listener_that_is_open(
    certs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    cluster = BrokerCluster(certs.parent / "data", 3, **settings_of(certs, mode))
    for is_loopback in (True, False):
        monkeypatch.setattr(server, "is_loopback", lambda bound, is_loopback=is_loopback: is_loopback)
        caplog.clear()
        broker = Broker(cluster.settings(1))
        broker._lock_and_bind()
        await broker.stop()
        line = f"is a node of this cluster: lockstep.peers.tls={mode} needs no certificate"
        assert (line in caplog.text) is (not is_loopback and mode != "require")


@pytest.mark.parametrize(("mode", "warns"), [("disabled", True), ("prefer", True), ("require", False)])
async def test_beside_acls_a_listener_of_this_machine_alone_is_open_too(
    certs: Path, caplog: pytest.LogCaptureFixture, mode: str, warns: bool
) -> None:
    texts = {**settings_of(certs, mode), "authorizer_class_name": STANDARD_AUTHORIZER}
    broker = Broker(BrokerCluster(certs.parent / "data", 3, **texts).settings(1))
    broker._lock_and_bind()
    await broker.stop()
    assert ("is a node of this cluster" in caplog.text) is warns


async def test_a_location_that_is_set_again_is_read_at_once(start_cluster: StartCluster, certs: Path) -> None:
    cluster = await start_cluster(3, **settings_of(certs))
    await cluster.settled()
    leading = cluster.leader_of(0)
    assert leading is not None
    peers = cluster.brokers[leading]._securities.peers
    assert peers is not None
    name, former = "listener.name.peers.ssl.keystore.location", peers.server_context
    client = await cluster.client(leading)
    node = BROKER, str(leading)
    for path in (certs / f"node-{leading % 3 + 1}.pem", certs / "nothing"):
        ((code, text),) = await alter_all(client, (node, [(name, SET, str(path))]))
        assert code == ErrorCode.INVALID_REQUEST and name in str(text) and peers.server_context is former
    run(certs, "renew", f"node-{leading}")
    ((code, text),) = await alter_all(client, (node, [(name, SET, str(certs / f"node-{leading}.pem"))]))
    assert (code, peers.server_context is former) == (0, False), text
