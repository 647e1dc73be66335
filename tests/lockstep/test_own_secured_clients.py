"""Our own clients on listeners with TLS and logins: each of them by SCRAM over TLS and by certificate, what
they say where they do not get in, and sessions that end."""

from __future__ import annotations

import asyncio
import base64
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
import uvloop

from compat_tests import fork_server
from compat_tests.probe import HOST
from lockstep.broker.security.sasl_listener import SCRAM_MODULE
from lockstep.kafka_client.blocking_connection import BlockingConnection
from lockstep.kafka_client.client import EARLIEST, Client
from lockstep.kafka_client.connection import BrokerConnection
from lockstep.kafka_client.security import ClientSecurity
from lockstep.player_host.claims_topic import ClaimsTopic
from lockstep.player_host.remote_source import RemoteSource
from lockstep.protocol.client_errors import ClientError
from lockstep.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataResponse
from lockstep.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from lockstep.transactions import BlockingTransactionClient
from spark_connector.connection import ClusterClient
from spark_connector.options import source_options
from spark_connector.sink.settings import SinkSettings
from tests.broker.wire import batch
from tests.lockstep.transactions.accounts import Counters, Increment, locked_topic
from tests.support.certificates import DAY, NOW
from tests.support.secured import AUTHORITY, FOREIGN, SESSION_MS, USERS, SecuredTarget

LARGE = b"x" * 700_000
"""More than a TLS record, than one read, and than what a socket takes at once."""
REASON_SECONDS = 15.0
"""A client names its reason within two seconds; a busy machine takes longer, and retries take 30 and more."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredTarget]:
    with SecuredTarget(tmp_path_factory.mktemp("secured")) as found:
        found.add_users()
        yield found


class Way(NamedTuple):
    """An address with the properties that it needs."""

    bootstrap: str
    properties: Mapping[str, str]


@pytest.fixture(params=["SCRAM-SHA-512 over TLS", "certificate"])
def way(request: pytest.FixtureRequest, target: SecuredTarget, tmp_path: Path) -> Way:
    if request.param == "certificate":
        return Way(f"{HOST}:{target.certified}", target.certified_as(tmp_path / "client.pem"))
    return Way(f"{HOST}:{target.login}", target.logging_in())


def new_topic() -> str:
    return f"t-{uuid4().hex[:8]}"


def run(way: Way, config: Path, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    config.write_text("".join(f"{name} = {text}\n" for name, text in way.properties.items()))
    command = [sys.executable, "-m", "lockstep", *words, "-b", way.bootstrap, "--command-config", str(config)]
    return fork_server.run(command, given=given, timeout_s=60)


# --- each client ------------------------------------------------------------------------------------------


def test_commands(way: Way, tmp_path: Path) -> None:
    topic, config = new_topic(), tmp_path / "client.properties"
    for acks in ("all", "0"):
        produced = run(way, config, "produce", topic, "--acks", acks, given=LARGE + b"\n")
        assert (produced.returncode, produced.stderr) == (0, b"")
    consumed = run(way, config, "consume", topic, "--from-beginning", "--max-records", "2")
    assert consumed.stdout == (LARGE + b"\n") * 2
    for words in (["topics", "list"], ["groups", "list"], ["users", "list"], ["cluster", "status"]):
        found = run(way, config, *words)
        assert (found.returncode, found.stderr) == (0, b""), words
    assert run(way, config, "configs", "describe", "topic", topic).returncode == 0


async def test_the_asynchronous_client(way: Way) -> None:
    topic = new_topic()
    async with Client(way.bootstrap, properties=way.properties) as client:
        created = await client.create_topic(topic, partitions=1)
        for acks in (0, -1):
            await client.produce(created, 0, batch(LARGE), acks=acks)
        (found,) = await client.fetch(created, {0: 0}, max_bytes=4 << 20, partition_max_bytes=4 << 20)
        assert bytes(found.records).count(LARGE) == 2
        assert await client.offsets(created, [0], EARLIEST) == {0: 0}


def test_the_blocking_client(way: Way) -> None:
    with ClusterClient(way.bootstrap, properties=way.properties, timeout_s=20) as cluster:
        assert cluster.topic(new_topic(), create=True).partitions


def test_a_transaction_client(way: Way, target: SecuredTarget) -> None:
    topic, counters = asyncio.run(locked_topic(target.bootstrap, 1)), Counters()
    with BlockingTransactionClient(way.bootstrap, topic, counters, properties=way.properties) as client:
        appended = client.execute(Increment(counters))
        assert appended is not None and appended.offsets == {0: 0}


async def test_a_player_reads_and_claims(way: Way, target: SecuredTarget) -> None:
    topic = new_topic()
    async with Client(target.bootstrap) as client:
        await client.produce(await client.create_topic(topic, partitions=1), 0, batch(b"1"))
    source = await RemoteSource.open(way.bootstrap, topic, 0, properties=way.properties)
    assert len((await source.read(0, 1_000, 0)).entries) == 1
    await source.close()
    claims = ClaimsTopic(way.bootstrap, new_topic(), "a player", way.properties)
    await claims.open()
    assert await claims.first_position() == 0
    await claims.close()


def test_options_of_spark_survive_pickling(way: Way) -> None:
    given = {f"kafka.{name}": text for name, text in way.properties.items()}
    options = {"kafka.bootstrap.servers": way.bootstrap, "subscribe": "t", **given}
    sent = pickle.loads(pickle.dumps(source_options(options)))
    how = sent.connection
    with ClusterClient(how.bootstrap, timeout_s=how.timeout_s, properties=how.properties) as cluster:
        assert cluster.any().is_open
    del options["subscribe"]
    settings = SinkSettings.of(options)
    assert pickle.loads(pickle.dumps(settings)).properties == way.properties
    shown = repr((sent, settings))
    assert USERS["SCRAM-SHA-512"][1] not in shown and "jaas" not in shown


def test_a_pipeline(way: Way, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name} = {text}\n" for name, text in way.properties.items()))
    words = ["events", "-b", way.bootstrap, "--events", "20", "--accounts", "5", "--partitions", "1"]
    more = [
        "--prefix",
        f"{new_topic()}-",
        "--checkpoint",
        str(tmp_path / "done"),
        "--command-config",
        str(config),
    ]
    command = [sys.executable, "-m", "spark_connector.pipelines", *words, *more]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert run(way, config, "topics", "list").stdout.count(more[1].encode()) > 0


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_large_requests_and_responses_on_both_loops(
    target: SecuredTarget, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """More than a socket takes at once, both ways, in several requests at a time."""

    async def talk() -> None:
        async with Client(f"{HOST}:{target.login}", properties=target.logging_in()) as client:
            topic = await client.create_topic(new_topic(), partitions=8)
            await asyncio.gather(*(client.produce(topic, each, batch(LARGE)) for each in range(8)))
            found = await client.fetch(topic, dict.fromkeys(range(8), 0), max_bytes=16 << 20)
            assert [bytes(each.records).count(LARGE) for each in found] == [1] * 8

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(talk())


# --- each mechanism ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [*USERS, "OAUTHBEARER"])
async def test_each_mechanism(target: SecuredTarget, mechanism: str, tmp_path: Path) -> None:
    if mechanism == "OAUTHBEARER":
        properties = target.with_token(tmp_path / "token")
    else:
        properties = target.logging_in(mechanism)
    for port, protocol in ((target.login, "SASL_SSL"), (target.bare, "SASL_PLAINTEXT")):
        security = ClientSecurity.of({**properties, "security.protocol": protocol})
        connection = await BrokerConnection.open(HOST, port, security=security)
        await connection.call(MetadataRequest(topics=[]), MetadataResponse)
        connection.close()


async def test_a_delegation_token_logs_in(target: SecuredTarget) -> None:
    security = ClientSecurity.of(target.logging_in())
    connection = await BrokerConnection.open(HOST, target.login, security=security)
    made = await connection.call(CreateDelegationTokenRequest(), CreateDelegationTokenResponse)
    assert made.error_code == 0
    connection.close()
    hmac = base64.b64encode(made.hmac).decode()
    for options, is_accepted in (('tokenauth="true"', True), ("", False)):
        login = f'{SCRAM_MODULE} required username="{made.token_id}" password="{hmac}" {options};'
        security = ClientSecurity.of(target.logging_in() | {"sasl.jaas.config": login})
        if not is_accepted:
            with pytest.raises(ClientError, match="rejects the login"):
                await BrokerConnection.open(HOST, target.login, security=security)
            continue
        connection = await BrokerConnection.open(HOST, target.login, security=security)
        assert (await connection.call(MetadataRequest(topics=[]), MetadataResponse)).brokers
        connection.close()


def test_a_key_store_with_passwords(target: SecuredTarget, tmp_path: Path) -> None:
    issued = AUTHORITY.issue("alice", names=())
    stores = {
        "PKCS12": (issued.write_pkcs12(tmp_path / "alice.p12", b"secret"), "ssl.keystore.password"),
        "PEM": (issued.write_pem(tmp_path / "alice.pem", b"secret"), "ssl.key.password"),
    }
    trusted = AUTHORITY.write_pkcs12(tmp_path / "ca.p12", b"public")
    for kind, (path, password) in stores.items():
        properties = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(trusted),
            "ssl.truststore.password": "public",
            "ssl.keystore.type": kind,
            "ssl.keystore.location": str(path),
            password: "secret",
        }
        security = ClientSecurity.of(properties)
        BlockingConnection.open(HOST, target.certified, security=security).close()


@pytest.mark.parametrize("one_line", [False, True])
def test_keys_in_the_properties_themselves(target: SecuredTarget, one_line: bool) -> None:
    issued = AUTHORITY.issue("alice", names=())
    texts = {
        "ssl.truststore.certificates": AUTHORITY.pem(),
        "ssl.keystore.certificate.chain": issued.chain_pem(),
        "ssl.keystore.key": issued.key_pem(),
    }
    if one_line:
        texts = {name: text.replace("\n", " ") for name, text in texts.items()}
    security = ClientSecurity.of({"security.protocol": "SSL", **texts})
    BlockingConnection.open(HOST, target.certified, security=security).close()


# --- who does not get in ----------------------------------------------------------------------------------

REASONS = {
    "wrong password": ("login", "rejects the login by SCRAM-SHA-512: .*invalid credentials"),
    "wrong password, PLAIN": ("login", "rejects the login by PLAIN: .*Invalid username or password"),
    "expired token": ("login", "rejects the login by OAUTHBEARER: .*invalid_token"),
    "unknown mechanism": ("strict", "does not offer sasl.mechanism=PLAIN; it offers SCRAM-SHA-512"),
    "foreign broker": ("tls", "certificate is not accepted: .*certificate.*; set ssl.truststore.location"),
    "another name": ("renamed", "not accepted: .*mismatch.*ssl.endpoint.identification.algorithm"),
    "no certificate": ("certified", "ended TLS: certificate required; see ssl.keystore.location"),
    "expired certificate": ("certified", "ended TLS: certificate expired; see ssl.keystore.location"),
    "foreign certificate": ("certified", "ended TLS: unknown ca; see ssl.keystore.location"),
    "plaintext to TLS": (
        "tls",
        "TLS alert: the port is one of TLS|of another security.protocol than PLAINTEXT",
    ),
    "TLS to plaintext": ("port", "ended the TLS handshake, as a listener without TLS"),
    "plaintext to a login": ("bare", "of another security.protocol than PLAINTEXT"),
    "TLS to a login": ("login", "of another security.protocol than SSL"),
    "login without TLS to TLS": ("login", "of another security.protocol than SASL_PLAINTEXT"),
    "login to TLS": ("tls", "takes no logins: .*security.protocol=SSL, this client has SASL_SSL"),
    "login to plaintext": ("port", "takes no logins: .*security.protocol=PLAINTEXT"),
}


def badly(case: str, target: SecuredTarget, directory: Path) -> dict[str, str]:
    """The properties of a client that does not get in."""
    (directory / "own").mkdir()
    own = directory / "own" / "client.pem"
    if case == "expired certificate":
        store = AUTHORITY.issue("late", names=(), ends=NOW - DAY / 2).write_pem(own)
        return {**target.trusting(), "ssl.keystore.location": str(store)}
    if case in ("foreign broker", "another name"):
        trusted = FOREIGN if case == "foreign broker" else AUTHORITY
        return {**target.trusting(), "ssl.truststore.location": str(trusted.write_pem(directory / "ca.pem"))}
    return {
        "wrong password": target.logging_in(password="wr0ng"),
        "wrong password, PLAIN": target.logging_in("PLAIN", "wr0ng"),
        "expired token": target.with_token(directory / "token", exp=int(time.time()) - 3_600),
        "unknown mechanism": target.logging_in("PLAIN"),
        "no certificate": target.trusting(),
        "foreign certificate": target.certified_as(own, FOREIGN),
        "plaintext to TLS": {},
        "TLS to plaintext": target.trusting(),
        "plaintext to a login": {},
        "TLS to a login": target.trusting(),
        "login without TLS to TLS": {**target.logging_in(), "security.protocol": "SASL_PLAINTEXT"},
        "login to TLS": target.logging_in(),
        "login to plaintext": {**target.logging_in(), "security.protocol": "SASL_PLAINTEXT"},
    }[case]


@pytest.mark.parametrize("case", REASONS)
def test_the_reason(target: SecuredTarget, case: str, tmp_path: Path) -> None:
    listener, reason = REASONS[case]
    properties = badly(case, target, tmp_path)
    bootstrap = f"{HOST}:{getattr(target, listener)}"

    async def ask() -> None:
        async with asyncio.timeout(REASON_SECONDS), Client(bootstrap, properties=properties) as client:
            await client.topics()

    with pytest.raises(ClientError, match=reason) as told:
        asyncio.run(ask())
    began = time.monotonic()
    with pytest.raises(ClientError, match=reason), ClusterClient(bootstrap, properties=properties) as cluster:
        cluster.topics()
    assert time.monotonic() - began < REASON_SECONDS
    assert "wr0ng" not in str(told.value) and not re.search("\n|ssl.c", str(told.value))


def test_command_configs_that_cannot_be_used(target: SecuredTarget, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    good = target.logging_in()
    cases = [
        (
            {**good, "security.protocol": "SASL_SLL"},
            "security.protocol: 'SASL_SLL' is none of .* is SASL_SSL meant",
        ),
        (
            {**good, "sasl.mechansim": "PLAIN"},
            "sasl.mechansim: is no property of this client; is sasl.mechanism meant",
        ),
        ({**good, "sasl.jaas.config": 'x required password="hidden"'}, "sasl.jaas.config: not of the form"),
        (
            {**good, "sasl.jaas.config": 'x required password="hidden";'},
            "sasl.jaas.config: username is missing",
        ),
        ({**good, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism: Kerberos .* is not offered"),
        (
            {**good, "ssl.truststore.location": "not-there.pem"},
            "ssl.truststore.location: not-there.pem cannot be read",
        ),
        ({**good, "ssl.truststore.type": "PKCS12"}, "ssl.truststore.location: .* is not PKCS12"),
    ]
    for properties, reason in cases:
        found = run(Way(f"{HOST}:{target.login}", properties), config, "topics", "list")
        assert found.returncode == 2 and found.stdout == b""
        assert re.fullmatch(f"lockstep: .*client.properties: {reason}.*\n", found.stderr.decode()), (
            found.stderr
        )
        assert b"hidden" not in found.stderr
    config.unlink()
    command = [sys.executable, "-m", "lockstep", "topics", "list", "--command-config", str(config)]
    found = fork_server.run(command, timeout_s=60)
    assert found.returncode == 2 and b"--command-config: " in found.stderr and b"no such file" in found.stderr


# --- sessions that end ------------------------------------------------------------------------------------


async def test_an_open_connection_outlives_its_session(target: SecuredTarget) -> None:
    security = ClientSecurity.of(target.logging_in())
    connection = await BrokerConnection.open(HOST, target.short, security=security)
    loop = asyncio.get_running_loop()
    until = loop.time() + 3 * SESSION_MS / 1000
    while loop.time() < until:
        calls = [connection.call(MetadataRequest(topics=[]), MetadataResponse) for _ in range(5)]
        assert all(each.brokers for each in await asyncio.gather(*calls))
        await asyncio.sleep(0.05)
    connection.close()


async def test_an_idle_connection_logs_in_at_its_next_request(target: SecuredTarget) -> None:
    security = ClientSecurity.of(target.logging_in("PLAIN"))
    connection = await BrokerConnection.open(HOST, target.short, security=security)
    await asyncio.sleep(SESSION_MS / 1000 + 0.5)
    assert (await connection.call(MetadataRequest(topics=[]), MetadataResponse)).brokers
    connection.close()


def test_a_blocking_connection_outlives_its_session(target: SecuredTarget) -> None:
    security = ClientSecurity.of(target.logging_in())
    connection = BlockingConnection.open(HOST, target.short, security=security)
    until = time.monotonic() + 3 * SESSION_MS / 1000
    while time.monotonic() < until:
        started = [connection.start(MetadataRequest(topics=[]), MetadataResponse) for _ in range(5)]
        assert all(each.result().brokers for each in started)
        time.sleep(0.05)
    connection.close()


async def test_a_login_that_is_rejected_later_fails_what_waits(target: SecuredTarget, tmp_path: Path) -> None:
    token = tmp_path / "token"
    security = ClientSecurity.of(target.with_token(token))
    connection = await BrokerConnection.open(HOST, target.short, security=security)
    target.with_token(token, sub="somebody else")
    await asyncio.sleep(SESSION_MS / 1000 + 0.1)
    calls = [connection.call(MetadataRequest(topics=[]), MetadataResponse) for _ in range(3)]
    for each in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(each, ClientError) and "rejects the login by OAUTHBEARER" in str(each)
    assert not connection.is_open


async def test_the_broker_closes_a_connection_that_does_not_log_in_again(target: SecuredTarget) -> None:
    """The tests above would pass without any renewal if it did not."""
    security = ClientSecurity.of(target.logging_in())
    connection = await BrokerConnection.open(HOST, target.short, security=security)
    connection._renewed_at = float("inf")
    await asyncio.sleep(SESSION_MS / 1000 + 0.5)
    with pytest.raises(ClientError, match="closed the connection"):
        await connection.call(MetadataRequest(topics=[]), MetadataResponse)


async def test_a_connection_without_a_login_may_request_one(target: SecuredTarget) -> None:
    """A wrong state is an answer, not an end."""
    connection = await BrokerConnection.open(HOST, target.port)
    answer = await connection.call(SaslAuthenticateRequest(auth_bytes=b""), SaslAuthenticateResponse)
    assert answer.error_code == 34 and connection.is_open
    connection.close()
