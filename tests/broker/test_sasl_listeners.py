"""A broker whose clients log in: what is served before and after, the delay of a failure, users of SCRAM."""

from __future__ import annotations

import asyncio
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.requests.kafka_principal import ANONYMOUS, KafkaPrincipal
from lockstep.broker.security.sasl_listener import PLAIN_MODULE
from lockstep.broker.security.scram import SHA_512, salt_password
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from lockstep.protocol.messages.api_versions import ApiVersionsRequest
from lockstep.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from lockstep.protocol.messages.metadata import MetadataRequest
from lockstep.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from lockstep.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker.conftest import StartBroker
from tests.broker.fakes import open_connections
from tests.broker.security.test_key_store import inline
from tests.broker.security.test_scram import prove
from tests.broker.test_tls_listeners import keywords
from tests.broker.wire import Client, frame
from tests.support.cases import each_case
from tests.support.certificates import SelfSignedCa

ALICE = b"\0alice\0secret"
ILLEGAL = ErrorCode.ILLEGAL_SASL_STATE


def sasl(protocol: str = "SASL_PLAINTEXT", **more: str) -> dict[str, str]:
    """The texts of a broker with one listener that needs a login."""
    jaas = f'{PLAIN_MODULE} required user_alice="secret" user_bob="hush";'
    return {
        "listeners": "LOGIN://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": f"LOGIN:{protocol},PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.login.plain.sasl.jaas.config": jaas,
        "connection.failed.authentication.delay.ms": "20",
        **{each.replace("_", "."): text for each, text in more.items()},
    }


async def start(start_broker: StartBroker, **more: str) -> Broker:
    return await start_broker(**keywords(sasl(**more)))


def plaintext_port(broker: Broker) -> int:
    return list(broker._ports.values())[1]


async def do_handshake(client: Client, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
    response: SaslHandshakeResponse = await client.call(SaslHandshakeRequest(mechanism=mechanism), version)
    return response


async def authenticate(client: Client, token: bytes = ALICE, version: int = 2) -> SaslAuthenticateResponse:
    response: SaslAuthenticateResponse = await client.call(SaslAuthenticateRequest(auth_bytes=token), version)
    return response


async def log_in(client: Client, token: bytes = ALICE) -> SaslAuthenticateResponse:
    assert (await do_handshake(client)).error_code == 0
    return await authenticate(client, token)


class DelayLog:
    """The loop of a broker's connections, whose delays are kept."""

    def __init__(self, broker: Broker) -> None:
        self.seconds: list[float] = []
        self._loop = broker.assembly.connections.loop
        broker.assembly.connections.loop = self  # type: ignore[assignment]

    def call_later(self, delay: float, *call: Any) -> None:
        self.seconds.append(delay)
        self._loop.call_soon(*call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


def principal(broker: Broker) -> KafkaPrincipal:
    (connection,) = open_connections(broker.assembly.connections)
    return connection.context.principal


async def test_requests_are_served_after_the_login_and_the_principal_is_its_user(
    start_broker: StartBroker,
) -> None:
    broker = await start(start_broker)
    client = await Client.connect(broker.port)
    assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
    handshake = await do_handshake(client)
    assert handshake.mechanisms == ["PLAIN", "SCRAM-SHA-512"] and principal(broker) == ANONYMOUS
    done = await authenticate(client)
    assert (done.error_code, done.error_message, done.session_lifetime_ms) == (0, "", 0)
    assert principal(broker) == KafkaPrincipal("User", "alice")
    await client.create("t")
    assert (await do_handshake(client)).error_code == ILLEGAL
    assert (await authenticate(client)).error_code == ILLEGAL
    assert (await client.call(MetadataRequest(topics=None), 9)).topics[0].name == "t"


async def test_all_of_it_at_once(start_broker: StartBroker) -> None:
    broker = await start(start_broker)
    client = await Client.connect(broker.port)
    requests: list[tuple[Struct, int]] = [
        (ApiVersionsRequest(), 0),
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (SaslAuthenticateRequest(auth_bytes=ALICE), 2),
        *[(MetadataRequest(topics=[]), 9)] * 40,
    ]
    client.writer.write(b"".join(frame(each, version, at) for at, (each, version) in enumerate(requests)))
    for at, (each, version) in enumerate(requests):
        assert (await asyncio.wait_for(client.receive(each, version), 20))[0] == at


async def test_tokens_without_requests_around_them(start_broker: StartBroker) -> None:
    broker = await start(start_broker)
    client = await Client.connect(broker.port)
    await do_handshake(client, version=0)
    client.writer.write(struct.pack(">i", len(ALICE)) + ALICE)
    assert await asyncio.wait_for(client.receive_raw(), 20) == b""
    await client.create("t")
    other = await Client.connect(broker.port)
    await do_handshake(other, version=0)
    other.writer.write(struct.pack(">i", 5) + b"\0a\0bc")
    assert await other.is_closed()


async def test_a_failed_login_is_answered_after_a_delay_and_nothing_follows(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start(start_broker)
    client = await Client.connect(broker.port)
    await do_handshake(client)
    delays = DelayLog(broker)
    wrong = SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong")
    client.writer.write(frame(wrong, 2, 1) + frame(MetadataRequest(topics=[]), 9, 2))
    _, answer = await asyncio.wait_for(client.receive(wrong, 2), 20)
    assert isinstance(answer, SaslAuthenticateResponse) and delays.seconds == [0.02]
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        "Authentication failed: Invalid username or password",
    )
    assert await client.is_closed()
    assert broker.assembly.connections.failed_authentications == 1
    (line,) = [each for each in caplog.messages if "listener LOGIN: authentication" in each]
    assert line.endswith("authentication by PLAIN failed: user alice: the password is wrong")


@each_case(
    ("message", "version", "shakes"),
    [
        (MetadataRequest(topics=[]), 9, False),
        (SaslAuthenticateRequest(auth_bytes=ALICE), 2, False),
    ],
)
async def test_what_closes_the_connection_without_a_byte(
    start_broker: StartBroker, tmp_path: Path, message: Struct, version: int, shakes: bool
) -> None:
    broker = await start_broker(tmp_path / type(message).__name__, **keywords(sasl()))
    client = await Client.connect(broker.port)
    client.send(message, version)
    assert await client.is_closed()


async def test_frames_before_the_login_that_end_the_connection(start_broker: StartBroker) -> None:
    broker = await start(start_broker, sasl_server_max_receive_size="2000")
    unserved = struct.pack(">ihhih", 10, 36, 9, 1, 0)
    unknown = struct.pack(">ihhih", 10, 9999, 0, 1, 0)
    for sent in (unserved, unknown, struct.pack(">i", 2001), b"\0\0\0\x02\0\x11", b"\x16\x03\x01\0\x05"):
        client = await Client.connect(broker.port)
        client.writer.write(sent)
        assert await client.is_closed(), sent
    client = await Client.connect(broker.port)
    await do_handshake(client)
    client.writer.write(unserved)
    assert await client.is_closed()
    larger = await Client.connect(broker.port)
    await log_in(larger)
    assert (await larger.call(ApiVersionsRequest(), 0)).error_code == 0
    (connection,) = open_connections(broker.assembly.connections)
    assert connection._reader.max_frame_bytes == broker.settings.socket_request_max_bytes


async def test_unsupported_versions_are_reported_and_requested_again(start_broker: StartBroker) -> None:
    broker = await start(start_broker)
    client = await Client.connect(broker.port)
    client.writer.write(struct.pack(">ihhih", 11, 18, 99, 7, 0) + b"\0")
    raw = await asyncio.wait_for(client.receive_raw(), 20)
    assert struct.unpack_from(">ih", raw) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
    client.send(ApiVersionsRequest(), 0)
    assert await client.is_closed()


async def test_another_request_in_the_middle_of_a_login_has_an_answer_of_its_kind(
    start_broker: StartBroker,
) -> None:
    broker = await start(start_broker)
    for message, version in ((ApiVersionsRequest(), 0), (SaslHandshakeRequest(mechanism="PLAIN"), 1)):
        client = await Client.connect(broker.port)
        await do_handshake(client)
        assert (await client.call(message, version)).error_code == ILLEGAL
        assert await client.is_closed()
    client = await Client.connect(broker.port)
    await do_handshake(client)
    assert (await client.call(MetadataRequest(topics=[]), 9)).brokers == []
    assert await client.is_closed()


async def test_a_mechanism_that_is_not_enabled(start_broker: StartBroker) -> None:
    broker = await start(start_broker)
    client = await Client.connect(broker.port)
    answer = await do_handshake(client, "OAUTHBEARER")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-512"] and await client.is_closed()


async def test_a_login_has_its_lifetime(start_broker: StartBroker) -> None:
    broker = await start(start_broker, connections_max_reauth_ms="3000")
    client = await Client.connect(broker.port)
    now = 1000.0
    broker.assembly.connections.clock = lambda: now
    assert (await log_in(client)).session_lifetime_ms == 3000
    await client.create("t")
    now += 2.0
    assert (await log_in(client)).session_lifetime_ms == 3000
    assert (await do_handshake(client)).error_code == ILLEGAL, "twice within a second"
    now += 3.5
    assert (await log_in(client)).error_code == 0, "a new login is served after the end of the last one"
    await client.create("u")
    now += 3.5
    client.send(MetadataRequest(topics=[]), 9)
    assert await client.is_closed()


async def test_another_user_cannot_take_over_a_connection(start_broker: StartBroker) -> None:
    broker = await start(start_broker, connections_max_reauth_ms="3000")
    client = await Client.connect(broker.port)
    await log_in(client)
    answer = await log_in(client, b"\0bob\0hush")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED and await client.is_closed()


async def scram_login(client: Client, user: str, password: str) -> SaslAuthenticateResponse:
    assert (await do_handshake(client, "SCRAM-SHA-512")).error_code == 0
    first = f"n={user},r=abc"
    answer = await authenticate(client, f"n,,{first}".encode())
    server_first = bytes(answer.auth_bytes).decode()
    nonce = dict(each.split("=", 1) for each in server_first.split(","))["r"]
    return await authenticate(client, prove(SHA_512, first, server_first, f"c=biws,r={nonce}", password))


async def shown_by_scram(port: int, user: str) -> tuple[str, str]:
    """Salt and iterations that a client is shown."""
    client = await Client.connect(port)
    await do_handshake(client, "SCRAM-SHA-512")
    answer = await authenticate(client, f"n,,n={user},r=c".encode())
    fields = dict(each.split("=", 1) for each in bytes(answer.auth_bytes).decode().split(","))
    await client.close()
    return fields["s"], fields["i"]


async def test_users_of_scram_live_in_the_log(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start(start_broker)
    admin = await Client.connect(plaintext_port(broker))
    salted = salt_password(SHA_512, "pencil", b"salt", 8192)
    carol = ScramCredentialUpsertion(
        name="carol", mechanism=2, iterations=8192, salt=b"salt", salted_password=salted
    )
    changed = await admin.call(AlterUserScramCredentialsRequest(upsertions=[carol]), 0)
    assert [each.error_code for each in changed.results] == [0]
    client = await Client.connect(broker.port)
    assert (await scram_login(client, "carol", "pencil")).error_code == 0
    await client.create("t")
    for user, password in (("carol", "pen"), ("nobody", "pencil")):
        other = await Client.connect(broker.port)
        refused = await scram_login(other, user, password)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert (refused.error_message or "").endswith("invalid credentials with SASL mechanism SCRAM-SHA-512")
    unknown = await shown_by_scram(broker.port, "nobody")
    await broker.stop()
    again = await start_broker(**keywords(sasl()))
    assert await shown_by_scram(again.port, "nobody") == unknown, "as of a user that is stored"
    admin = await Client.connect(plaintext_port(again))
    found = await admin.call(DescribeUserScramCredentialsRequest(users=None), 0)
    assert [(each.user, each.credential_infos[0].iterations) for each in found.results] == [("carol", 8192)]
    assert (await scram_login(await Client.connect(again.port), "carol", "pencil")).error_code == 0
    deletion = ScramCredentialDeletion(name="carol", mechanism=2)
    await admin.call(AlterUserScramCredentialsRequest(deletions=[deletion]), 0)
    refused = await scram_login(await Client.connect(again.port), "carol", "pencil")
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_logins_inside_tls(start_broker: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
    authority = SelfSignedCa()
    texts = {**sasl("SASL_SSL"), **inline(authority.issue("broker")), "ssl.client.auth": "required"}
    broker = await start_broker(**keywords(texts))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.pem())
    client = Client(*await asyncio.open_connection("127.0.0.1", broker.port, ssl=context))
    await log_in(client)
    assert principal(broker) == KafkaPrincipal("User", "alice")
    await client.create("t")
    assert "readable without TLS" not in caplog.text


async def test_passwords_in_the_clear_are_warned_of(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await start(start_broker)
    assert "listener LOGIN: passwords of PLAIN are readable without TLS" in caplog.text
