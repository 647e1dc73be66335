"""A broker with encrypted listeners: who gets in, what a client and the log read, new certificates."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
from pathlib import Path

import pytest

from lockstep.broker.network import listener_security, tls_connection
from lockstep.broker.requests.kafka_principal import ANONYMOUS, KafkaPrincipal
from lockstep.broker.server import Broker
from lockstep.broker.settings.properties import ConfigError
from lockstep.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.conftest import StartBroker, small_settings
from tests.broker.fakes import open_connections
from tests.broker.security.test_key_store import SECRET, inline, key_texts
from tests.broker.waiting import until
from tests.broker.wire import Client, batch, fetch_request, frame, records_of
from tests.support.certificates import DAY, NOW, Issued, SelfSignedCa

AUTHORITY, FOREIGN = SelfSignedCa(), SelfSignedCa("Foreign")
BROKER = AUTHORITY.issue("broker")


def tls(**more: str) -> dict[str, str]:
    """The texts of a broker with one encrypted listener that trusts clients of the authority."""
    return {
        "listeners": "SSL://127.0.0.1:0",
        **inline(BROKER),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": AUTHORITY.pem(),
        **{name.replace("_", "."): text for name, text in more.items()},
    }


def keywords(texts: dict[str, str]) -> dict[str, str]:
    """Settings as `start_broker` takes them."""
    return {name.replace(".", "_"): text for name, text in texts.items()}


def of_client(
    directory: Path, own: Issued | None = None, trusted: SelfSignedCa = AUTHORITY
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trusted.pem())
    if own is not None:
        context.load_cert_chain(own.write_pem(directory / "client.pem"))
    return context


async def connect(port: int, context: ssl.SSLContext | None) -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    return Client(reader, writer)


async def serves(client: Client) -> None:
    response: ApiVersionsResponse = await client.call(ApiVersionsRequest(), 0)
    assert response.error_code == 0


async def test_records_of_every_size_pass_both_ways(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker(**keywords(tls()))
    client = await connect(broker.port, of_client(tmp_path))
    await client.create("t")
    values = [bytes([size % 251]) * size for size in (1, 100, 20_000, 190_000)]
    for value in values:
        assert (await client.produce("t", batch(value))).error_code == 0
    read: list[bytes] = []
    while len(read) < len(values):
        data = await client.fetch("t", len(read), partition_max_bytes=1 << 22)
        read += [bytes(each.value or b"") for each in records_of(data)]
    assert read == values
    (connection,) = open_connections(broker.assembly.connections)
    assert connection.context.principal == ANONYMOUS
    await client.close()
    await until(lambda: not len(broker.assembly.connections))


async def test_a_client_that_does_not_read_keeps_little_encrypted(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    settings = tls(lockstep_connection_write_buffer_bytes="65536")
    broker = await start_broker(**keywords(settings))
    client = await connect(broker.port, of_client(tmp_path))
    await client.create("t")
    size = 190_000
    for _ in range(60):
        await client.produce("t", batch(bytes(size)))
    slow = await connect(broker.port, of_client(tmp_path))
    slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
    slow.send(fetch_request({"t": {0: 0}}, partition_max_bytes=1 << 24, max_bytes=1 << 24), 12)
    unsent = broker.assembly.unsent_bytes
    await until(lambda: unsent.total > 10 * size)
    await serves(client)  # others are served meanwhile
    slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
    reply = await asyncio.wait_for(slow.receive_raw(), 20)
    assert len(reply) > 59 * size
    await until(lambda: unsent.total == 0)


async def test_a_certificate_gives_the_connection_its_principal(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    settings = tls(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=(\\w+),.*$/$1/")
    broker = await start_broker(**keywords(settings))
    alice = AUTHORITY.issue("alice", names=(), organization="Shop")
    client = await connect(broker.port, of_client(tmp_path, alice))
    await serves(client)
    (connection,) = open_connections(broker.assembly.connections)
    assert connection.context.principal == KafkaPrincipal("User", "alice")


REJECTED = [
    ("no certificate", None, "the client has no certificate, which ssl.client.auth requires"),
    ("expired", AUTHORITY.issue("alice", ends=NOW - DAY / 2), "rejected: certificate has expired"),
    ("foreign", FOREIGN.issue("alice"), "the client's certificate is rejected: "),
    ("without a rule", AUTHORITY.issue("bob"), "no rule of ssl.principal.mapping.rules matches CN=bob"),
]


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize(("own", "line"), [each[1:] for each in REJECTED], ids=[each[0] for each in REJECTED])
async def test_a_client_that_may_not_connect_is_closed_with_one_line(
    start_broker: StartBroker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    own: Issued | None,
    line: str,
    version: str,
) -> None:
    settings = tls(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=alice$/a/")
    broker = await start_broker(**keywords(settings))
    context = of_client(tmp_path, own)
    context.maximum_version = ssl.TLSVersion[version]
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        client = await connect(broker.port, context)
        await client.call(ApiVersionsRequest(), 0)
    connections = broker.assembly.connections
    await until(lambda: not len(connections))
    (logged,) = [each for each in caplog.messages if "listener SSL" in each]
    assert line in logged and connections.failed_authentications == 1


async def test_a_client_that_does_not_trust_the_broker(
    start_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker(**keywords(tls()))
    context = of_client(tmp_path, trusted=FOREIGN)

    def dial() -> None:  # asyncio's own client keeps its alert to itself
        with socket.create_connection(("127.0.0.1", broker.port)) as raw:
            context.wrap_socket(raw, server_hostname="localhost")

    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.to_thread(dial)
    await until(lambda: not len(broker.assembly.connections))
    assert "the client does not trust the issuer of the broker's certificate" in caplog.text


@pytest.mark.parametrize(
    ("sent", "line"),
    [
        (frame(ApiVersionsRequest(), 0), "a client without TLS: it needs security.protocol=SSL"),
        (b"GET / HTTP/1.1\r\n\r\n", "a client without TLS"),
        (b"\x16\x03\x01\x00\x05hello", "TLS handshake failed: "),
        (b"\x16\x03\x01", "the client ended the TLS handshake; if"),
        (b"", ""),
    ],
)
async def test_bytes_that_are_no_handshake(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture, sent: bytes, line: str
) -> None:
    broker = await start_broker(**keywords(tls()))
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(sent)
    if len(sent) < 5:
        await writer.drain()
        writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 20)
    assert not answer or answer[0] == 0x15, "at most an alert"
    await until(lambda: not len(broker.assembly.connections))
    logged = [each for each in caplog.messages if "listener SSL" in each]
    assert len(logged) == (1 if line else 0) and all(line in each for each in logged)


async def test_a_client_without_tls_gets_the_protocol_of_a_listener_with_logins(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**tls(), "listeners": "SASL_SSL://localhost:0", "sasl_enabled_mechanisms": "SCRAM-SHA-512"}
    broker = await start_broker(**keywords(settings))
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(frame(ApiVersionsRequest(), 0))
    assert await asyncio.wait_for(reader.read(), 20) == b""
    await until(lambda: not len(broker.assembly.connections))
    assert "a client without TLS: it needs security.protocol=SASL_SSL here" in caplog.text
    writer.close()


async def test_a_tls_client_at_a_plaintext_port(
    start_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await connect(broker.port, of_client(tmp_path))
    assert caplog.text.count("a TLS handshake on a plaintext port") == 1


async def test_a_handshake_has_its_time(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_connection, "HANDSHAKE_SECONDS", 0.05)
    broker = await start_broker(**keywords(tls()))
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(b"\x16\x03\x01")
    assert await asyncio.wait_for(reader.read(), 20) == b""
    await until(lambda: not len(broker.assembly.connections))
    assert "no TLS handshake within" in caplog.text


async def test_ended_connections_leave_nothing_to_the_garbage_collector(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else tens of megabytes of OpenSSL, which Python does not see, wait for a collection of everything."""
    monkeypatch.setattr(tls_connection, "HANDSHAKE_SECONDS", 0.2)
    broker = await start_broker(**keywords(tls()))
    client = await connect(broker.port, of_client(tmp_path))
    await serves(client)

    def kept() -> int:
        return sum(isinstance(each, tls_connection.TlsConnection) for each in gc.get_objects())

    gc.collect()
    before = kept()
    gc.disable()
    try:
        for _ in range(5):
            other = await connect(broker.port, of_client(tmp_path))
            await serves(other)
            await other.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(bytes.fromhex("16030100c8"))  # the head of a handshake, none of which follows
            assert await reader.read() == b""
            writer.close()
        await until(lambda: len(open_connections(broker.assembly.connections)) == 1)
        await until(lambda: kept() <= before)
    finally:
        gc.enable()
    await client.close()


async def test_unfinished_handshakes_count_as_connections(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker(**keywords(tls(max_connections="3")))
    idle = [await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(3)]
    await until(lambda: len(broker.assembly.connections) == 3)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await connect(broker.port, of_client(tmp_path))
    for _, writer in idle:
        writer.close()
    await until(lambda: not len(broker.assembly.connections))
    await serves(await connect(broker.port, of_client(tmp_path)))


async def test_listeners_of_both_kinds_have_their_own_settings(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    store = AUTHORITY.issue("inside").write_pkcs12(tmp_path / "inside.p12", SECRET)
    own = key_texts(store, "PKCS12", keystore_password=SECRET.decode())
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(BROKER.write_pem(tmp_path / "broker.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(AUTHORITY.write_pem(tmp_path / "ca.pem")),
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,INSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,INSIDE:SSL",
        **{f"listener.name.inside.{name}": text for name, text in own.items()},
        "listener.name.inside.ssl.client.auth": "required",
    }
    broker = await start_broker(**keywords(settings))
    plain, encrypted, inside = broker._ports.values()
    await serves(await Client.connect(plain))
    await serves(await connect(encrypted, of_client(tmp_path)))
    client = await connect(inside, of_client(tmp_path, AUTHORITY.issue("alice", names=())))
    await serves(client)
    served = client.writer.get_extra_info("peercert")
    assert served["subject"] == ((("commonName", "inside"),),)
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await (await connect(inside, of_client(tmp_path))).call(ApiVersionsRequest(), 0)


async def test_a_key_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    other = inline(AUTHORITY.issue("other"))["ssl.keystore.key"]
    settings = {**tls(), "ssl.keystore.key": other}
    broker = Broker(small_settings(tmp_path, **keywords(settings)))
    with pytest.raises(ConfigError, match=r"ssl.keystore.key=\[hidden\]: the private key is not the one"):
        await broker.start()


async def test_a_connection_keeps_its_context_and_the_next_one_gets_the_new(
    start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_security, "CERTIFICATE_POLL_INTERVAL_SECONDS", 0.01)
    path = AUTHORITY.issue("broker").write_pem(tmp_path / "broker.pem")
    settings = {"listeners": "SSL://127.0.0.1:0", **key_texts(path, "PEM")}
    broker = await start_broker(**keywords(settings))
    first = await connect(broker.port, of_client(tmp_path))
    (secured,) = broker._securities.tls.values()
    former = secured.context
    new = AUTHORITY.issue("broker")
    new.write_pem(tmp_path / "new.pem").replace(path)
    await until(lambda: secured.context is not former)
    second = await connect(broker.port, of_client(tmp_path))
    await serves(first)
    await serves(second)
    serials = [each.writer.get_extra_info("peercert")["serialNumber"] for each in (first, second)]
    assert int(serials[1], 16) == new.certificate.serial_number != int(serials[0], 16)


async def test_a_certificate_that_ends_soon_is_warned_of_each_day(
    start_broker: StartBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(listener_security, "CERTIFICATE_POLL_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(listener_security, "EXPIRY_POLL_INTERVAL_SECONDS", 0.02)
    path = AUTHORITY.issue("broker", ends=NOW + 5 * DAY).write_pem(tmp_path / "broker.pem")
    broker = await start_broker(listeners="SSL://127.0.0.1:0", **keywords(key_texts(path, "PEM")))
    (secured,) = broker._securities.tls.values()
    former, warning = secured.context, "the certificate of listener SSL expires at"
    await until(lambda: caplog.text.count(warning) >= 3)
    AUTHORITY.issue("broker").write_pem(tmp_path / "new.pem").replace(path)
    await until(lambda: secured.context is not former)
    caplog.clear()
    await asyncio.sleep(0.1)
    assert warning not in caplog.text


async def test_pipelined_requests_and_closes_in_good_order(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker(**keywords(tls()))
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, ssl=of_client(tmp_path))
    count = 300
    writer.write(b"".join(frame(ApiVersionsRequest(), 0, each) for each in range(count)))
    for each in range(count):
        (length,) = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), 20))
        assert struct.unpack(">i", (await reader.readexactly(length))[:4]) == (each,)
    writer.write(b"\x00\x00\x00\x04\x00\x00\x63\x63")  # an API that there is not
    assert await asyncio.wait_for(reader.read(), 20) == b"", "a close notification, no cut"
    await until(lambda: not len(broker.assembly.connections))


async def test_a_client_that_closes_while_it_is_throttled_holds_no_connection(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """It says that its TLS session ends, a few bytes that nobody reads, and closes its socket, as Kafka's."""
    broker = await start_broker(**keywords(tls()))
    connections, context = broker.assembly.connections, of_client(tmp_path)

    def open_socket() -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", broker.port))
        encrypted = context.wrap_socket(plain, server_hostname="127.0.0.1")
        encrypted.sendall(frame(ApiVersionsRequest(), 0, 1))
        encrypted.recv(1)
        return encrypted

    client = await asyncio.to_thread(open_socket)
    (connection,) = open_connections(connections)
    connections.throttles.mute(connection, "test", 2**31 - 1)
    client.setblocking(False)
    with pytest.raises(ssl.SSLError):
        client.unwrap()
    client.close()
    await until(lambda: len(connections) == 0)
