"""One blocking connection: versions agreed on, answers matched, and peers that misbehave told in words."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from lockstep.protocol.api import ApiKey, read_request_header, response_header
from lockstep.protocol.compiler import encode_bytes
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import FetchRequest, FetchResponse
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataResponse
from lockstep.testing import RunningBroker
from spark_connector.connection import (
    BlockingConnection,
    BrokerError,
    ClientError,
    ConnectionFailed,
    TimedOut,
    Unsupported,
)
from tests.protocol.peers import Answer, api_versions
from tests.support.cases import each_case


@contextlib.contextmanager
def peer(answer: Answer) -> Iterator[int]:
    """A server that frames requests and answers each as told; its port."""

    def serve(client: socket.socket) -> None:
        stream = client.makefile("rb")
        with contextlib.suppress(OSError, struct.error), client:
            while True:
                (size,) = struct.unpack(">i", stream.read(4))
                header, _ = read_request_header(memoryview(stream.read(size)))
                frame = answer(header.api_key, header.api_version, header.correlation_id)
                if frame == b"":
                    client.shutdown(socket.SHUT_RDWR)
                    break
                if frame is not None:
                    client.sendall(struct.pack(">i", len(frame)) + frame)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def speaking(**how: object) -> Answer:
    """A peer that negotiates as a broker does, and hangs up on everything else."""

    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        if key != ApiKey.API_VERSIONS:
            return b""
        body = encode_bytes(api_versions(**how), version)  # type: ignore[arg-type]
        return response_header(key, version, correlation_id) + body

    return answer


def metadata_of(connection: BlockingConnection) -> MetadataResponse:
    return connection.call(MetadataRequest(topics=[]), MetadataResponse)


def test_real_broker(running: RunningBroker) -> None:
    connection = BlockingConnection.open("localhost", running.port)
    try:
        assert connection.is_open and connection.versions[ApiKey.METADATA][1] >= 12
        assert str(connection) == f"localhost:{running.port}"
        (broker,) = metadata_of(connection).brokers
        assert broker.port == running.port
    finally:
        connection.close()
    assert not connection.is_open
    with pytest.raises(ConnectionFailed, match="is closed"):
        metadata_of(connection)


def test_responses_are_matched_in_any_order(running: RunningBroker) -> None:
    connection = BlockingConnection.open("localhost", running.port)
    try:
        every = connection.start(MetadataRequest(topics=None), MetadataResponse)
        slow = FetchRequest(max_wait_ms=150, min_bytes=1)
        fetched = connection.start(slow, FetchResponse)
        none = connection.start(MetadataRequest(topics=[]), MetadataResponse)
        assert none.result().topics == []
        assert fetched.result().error_code == 0
        assert every.result().brokers == metadata_of(connection).brokers
        with pytest.raises(ClientError, match="read already"):
            every.result()
    finally:
        connection.close()


def test_a_client_that_never_takes_its_answers_is_stopped() -> None:
    with peer(lambda *asked: None if asked[0] == ApiKey.METADATA else speaking()(*asked)) as port:
        connection = BlockingConnection.open("127.0.0.1", port)
        for _ in range(64):
            connection.start(MetadataRequest(topics=[]), MetadataResponse)
        with pytest.raises(ClientError, match="64 requests"):
            connection.start(MetadataRequest(topics=[]), MetadataResponse)
        connection.close()


@each_case("theirs", [3, 2, 0])
def test_negotiates_down(theirs: int) -> None:
    asked: list[int] = []

    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        asked.append(version)
        supported = version <= theirs
        body = api_versions(theirs, error=0 if supported else ErrorCode.UNSUPPORTED_VERSION)
        spoken = version if supported else 0
        return response_header(key, version, correlation_id) + encode_bytes(body, spoken)

    with peer(answer) as port:
        connection = BlockingConnection.open("127.0.0.1", port)
        assert asked == [4, theirs]
        assert connection.version_of(MetadataRequest) == 13
        assert connection.version_of(MetadataRequest, newest=9) == 9
        with pytest.raises(Unsupported, match="speaks nothing of FETCH"):
            connection.version_of(FetchRequest)
        connection.close()


def test_no_common_version() -> None:
    with peer(speaking(metadata=(14, 20))) as port:
        connection = BlockingConnection.open("127.0.0.1", port)
        with pytest.raises(Unsupported, match="versions 14 to 20 of METADATA, this client 0 to 13"):
            metadata_of(connection)
        connection.close()


def test_refused_negotiation() -> None:
    with (
        peer(speaking(error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)) as port,
        pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"),
    ):
        BlockingConnection.open("127.0.0.1", port)


def test_late() -> None:
    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        return None if key == ApiKey.METADATA else speaking()(key, version, correlation_id)

    with peer(answer) as port:
        connection = BlockingConnection.open("127.0.0.1", port)
        began = time.monotonic()
        with pytest.raises(TimedOut, match=r"did not respond in 0\.2 s"):
            connection.call(MetadataRequest(topics=[]), MetadataResponse, timeout_s=0.2)
        assert time.monotonic() - began < 5
        assert not connection.is_open, "nobody knows what became of the request"
        with pytest.raises(TimedOut):
            metadata_of(connection)


def test_hangs_up() -> None:
    with peer(speaking()) as port:
        connection = BlockingConnection.open("127.0.0.1", port)
        with pytest.raises(ConnectionFailed, match="closed the connection"):
            metadata_of(connection)


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectionFailed, match="connection refused; is a broker running there"):
        BlockingConnection.open("127.0.0.1", port)


@each_case(
    ("frame", "words"),
    [
        (struct.pack(">i", 7), "which no pending request has"),
        (b"\0", "1 byte response"),
        (struct.pack(">i", 0) + b"\0\0\0\0\0\7", "cannot be read"),
    ],
)
def test_not_kafka(frame: bytes, words: str) -> None:
    with peer(lambda *_: frame) as port, pytest.raises(ClientError, match=words):
        BlockingConnection.open("127.0.0.1", port)


def test_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(1000)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(ClientError, match="does not speak Kafka's protocol: HTTP"):
            BlockingConnection.open("127.0.0.1", listener.getsockname()[1])
