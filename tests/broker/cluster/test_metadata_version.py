"""A cluster in which a node is of an earlier Lockstep: what is newer waits for it, and it stays alive."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lockstep.broker.controller.log_group_report import Document
from lockstep.broker.metadata import metadata_image
from lockstep.broker.metadata.metadata_version import LATEST_VERSION, UNREPORTED_VERSION
from lockstep.broker.settings.authorizer_settings import STANDARD_AUTHORIZER
from lockstep.kafka_client import cluster as admin
from lockstep.kafka_client.client import Client as AdminClient
from lockstep.kafka_client.connection import BrokerError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from lockstep.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from lockstep.storage.types import NewerFormat
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartBroker
from tests.broker.quotas.served import ADMIN, alteration
from tests.broker.test_delegation_token_logins import create
from tests.broker.test_sasl_listeners import log_in, sasl
from tests.broker.wire import Client

TEXTS = {
    **sasl(),
    "delegation.token.secret.key": "a secret",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:alice",
}
UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION


class MixedCluster(BrokerCluster):
    """Nodes of this Lockstep, and of an earlier one as far as they report and replay."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(directory, 3, **{name.replace(".", "_"): text for name, text in TEXTS.items()})
        self._monkeypatch = monkeypatch

    async def start_older(self, *node_ids: int) -> None:
        """Start these nodes with an earlier Lockstep."""
        with self._monkeypatch.context() as patched:
            patched.setattr(metadata_image, "LATEST_VERSION", UNREPORTED_VERSION)
            await self.start(*node_ids)

    async def at(self, node_id: int) -> Client:
        """A client that needs no login."""
        return await Client.connect(list(self.brokers[node_id]._ports.values())[1])

    async def requests(self, node_id: int) -> list[tuple[int, str | None]]:
        """Send each request that makes something newer; the error and text of each response."""
        client, alice = await self.at(node_id), await self.client(node_id)
        quota = await client.call(alteration({"client-id": "c"}, producer_byte_rate=1), 1, ADMIN)
        user = ScramCredentialUpsertion(
            name="bob", mechanism=2, iterations=4096, salt=b"s", salted_password=b"p"
        )
        scram = await client.call(AlterUserScramCredentialsRequest(upsertions=[user]), 0)
        acl = AclCreation(
            resource_type=2, resource_name="t", resource_pattern_type=3, principal="User:bob", host="*",
            operation=3, permission_type=3,
        )  # fmt: skip
        acls = await client.call(CreateAclsRequest(creations=[acl]), 3)
        assert (await log_in(alice)).error_code == 0
        token = await create(alice)
        await client.close()
        results = [*quota.entries, *scram.results, *acls.results]
        return [*((each.error_code, each.error_message) for each in results), (token.error_code, None)]

    async def status(self, node_id: int) -> Document:
        """What a node reports of the metadata version."""
        port = list(self.brokers[node_id]._ports.values())[1]
        async with AdminClient(f"127.0.0.1:{port}") as client:
            found: Document = (await admin.status(client))["metadata_version"]
        return found

    async def until_version(self, version: int) -> None:
        """Wait until all nodes have a metadata version."""
        images = [broker.assembly.image for broker in self.brokers.values()]
        await self.until(
            lambda: all(each.metadata_version == version for each in images), f"metadata version {version}"
        )


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MixedCluster]:
    made = MixedCluster(tmp_path / "cluster", monkeypatch)
    yield made
    await made.close()


async def test_what_is_newer_waits_until_the_last_node_is_upgraded(
    cluster: MixedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.start_older(3)
    await cluster.start(1, 2)
    await cluster.settled()
    for node_id in (1, 2, 3):
        for error, text in await cluster.requests(node_id):
            assert error == UNSUPPORTED
            assert text is None or "node 3 supports up to 4: start each with the newest Lockstep" in text
    assert (await cluster.status(1)) == {
        "version": UNREPORTED_VERSION,
        "latest": LATEST_VERSION,
        "features_to_come": ["SCRAM users", "ACLs", "delegation tokens", "client quotas", "consumer groups"],
        "waits_for": [{"node": 3, "supports": UNREPORTED_VERSION}],
    }
    for broker in cluster.brokers.values():
        image = broker.assembly.image
        assert broker.failed is None
        assert (len(image.quotas), len(image.scram), len(image.acls), len(image.tokens)) == (0, 0, 0, 0)
    older = cluster.brokers[3]
    await (await cluster.at(1)).create("t")
    await cluster.until(lambda: older.assembly.cluster.topic("t") is not None, "topic on the older node")

    await cluster.stop(3)
    client = await cluster.at(1)
    await cluster.until(lambda: cluster.leader_of(0) is not None, "controller")
    refused = await client.call(alteration({"client-id": "c"}, producer_byte_rate=1), 1, ADMIN)
    assert (refused.entries[0].error_code, "node 3 is not connected" in refused.entries[0].error_message) == (
        UNSUPPORTED,
        True,
    )
    caplog.set_level(logging.INFO, "lockstep.metadata")
    await cluster.start(3)
    await cluster.until_version(LATEST_VERSION)
    await cluster.settled()
    for node_id in (1, 2, 3):
        assert [error for error, _ in await cluster.requests(node_id)] == [0, 0, 0, 0]
    for broker in cluster.brokers.values():
        quotas = broker.assembly.image.quotas
        await cluster.until(lambda quotas=quotas: len(quotas) == 1, "quota on a node")  # type: ignore[misc]
        assert broker.failed is None
    lines = [each for each in caplog.messages if each.startswith("metadata version")]
    assert lines == [
        f"metadata version {LATEST_VERSION}, before {UNREPORTED_VERSION}: every node supports it"
    ]
    assert (await cluster.status(2))["waits_for"] == []


async def test_a_new_cluster_has_the_newest_version_and_rejects_a_node_that_is_too_old(
    cluster: MixedCluster,
) -> None:
    await cluster.start(1, 2)
    await cluster.until(lambda: cluster.leader_of(0) is not None, "a controller")
    await cluster.until_version(LATEST_VERSION)
    await cluster.start_older(3)
    late = cluster.brokers[3].assembly
    node = late.node
    assert node is not None
    await cluster.until(node.excluded.is_set, "rejection of the older founder")
    assert f"metadata version {LATEST_VERSION}, only up to {UNREPORTED_VERSION}" in node.too_old
    assert not node.removed.is_set() and cluster.brokers[3].failed is None
    assert not late.image.nodes and late.image.recorded_version == 0, "it has got nothing"
    await cluster.stop(3)
    await cluster.start(3)
    await cluster.settled()

    await cluster.start_older(4)
    newcomer = cluster.brokers[4].assembly.node
    assert newcomer is not None
    await cluster.until(newcomer.excluded.is_set, "rejection of the older newcomer")
    port = list(cluster.controller._ports.values())[1]
    async with AdminClient(f"127.0.0.1:{port}") as client:
        with pytest.raises(
            BrokerError, match=r"node 4 does not support the cluster's metadata version"
        ) as failed:
            await admin.add(client, 4, 1.0)
    assert failed.value.code == UNSUPPORTED


async def test_an_older_node_that_was_up_to_date_gets_nothing_more(cluster: MixedCluster) -> None:
    """It was upgraded, counted, and goes back."""
    await cluster.start(1, 2, 3)
    await cluster.settled()
    await cluster.until_version(LATEST_VERSION)
    directory = cluster.brokers[3].settings.directory
    meta = directory / "meta.properties"
    await cluster.until(lambda: "metadata.version=" in meta.read_text(), "record of the version")
    assert "format=2\n" in meta.read_text()
    await cluster.stop(3)
    with pytest.raises(NewerFormat, match="the cluster's metadata have version"):
        await cluster.start_older(3)
    cluster.wipe(3)
    await cluster.start_older(3)
    node = cluster.brokers[3].assembly.node
    assert node is not None
    await cluster.until(node.excluded.is_set, "rejection of the node without its disk")
    assert cluster.brokers[3].failed is None and not cluster.brokers[3].assembly.image.nodes


async def test_a_node_alone_has_the_newest_version_also_of_an_earlier_log(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(metadata_image, "LATEST_VERSION", UNREPORTED_VERSION)
        earlier = await start_broker()
    assert earlier.assembly.image.recorded_version == 0
    await earlier.stop()
    broker = await start_broker()
    assert broker.assembly.image.recorded_version == LATEST_VERSION
    assert "format=2\n" in (broker.settings.directory / "meta.properties").read_text()
    new = await start_broker(broker.settings.directory.parent / "new")
    assert new.assembly.image.recorded_version == LATEST_VERSION
