"""Jobs over TLS with a login: the same figures as over a plain socket, and what fails says why."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.load.backlog import fill, read_backlog
from bench.load.closed_loop import closed_loop
from bench.load.connection import ResponseReader
from bench.load.pipelined_loop import pipelined_loop
from bench.load.tls_socket import TlsSocket, describe_tls
from compat_tests.probe import HOST
from compat_tests.raw import RawConnection
from lockstep.kafka_client.connection import ClientError
from tests.bench.load.serving import job
from tests.support.certificates import SelfSignedCa
from tests.support.secured import SecuredTarget


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredTarget]:
    with SecuredTarget(tmp_path_factory.mktemp("secured")) as found:
        found.add_users()
        yield found


def create(target: SecuredTarget, topic: str) -> None:
    with RawConnection(HOST, target.port) as raw:
        wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1}
        response = raw.call("create_topics", 5, topics=[wanted], timeout=10_000)
        assert response["topics"][0]["error_code"] == 0, response


def end_of(target: SecuredTarget, topic: str) -> int:
    words = job(target.login, topic=topic, security=target.logging_in(), check=True)
    del words["seconds"]  # once
    return int(read_backlog(words)["records"])


@pytest.mark.parametrize("producers", [1, 4])
def test_closed_loops(target: SecuredTarget, producers: int) -> None:
    create(target, f"closed-{producers}")
    security = target.logging_in()
    words = job(target.login, topic=f"closed-{producers}", producers=producers, security=security)
    result = closed_loop(words)
    assert 0 < result["requests"] <= result["total_records"] == end_of(target, f"closed-{producers}")


def test_batches_are_written_as_fast_as_it_goes_and_read_back_with_their_checksums(
    target: SecuredTarget,
) -> None:
    create(target, "batches")
    security = target.logging_in()
    shape = {"topic": "batches", "record_bytes": 1024, "records": 15, "window": 5, "security": security}
    written = pipelined_loop(job(target.login, producers=1, rate=0, **shape))["total_records"]
    written += fill(job(target.login, total_bytes=3 << 20, **shape))["total_records"]
    assert written > 15 * 200 and end_of(target, "batches") == written


def test_the_version_and_the_suite_are_those_of_the_connection(target: SecuredTarget) -> None:
    security = {**target.logging_in(), "ssl.enabled.protocols": "TLSv1.2"}
    assert describe_tls(job(target.login, security=security))["version"] == "TLSv1.2"
    described = describe_tls(job(target.login, security=target.logging_in()))
    assert described["version"] == "TLSv1.3" and described["cipher"].startswith("TLS_")


def test_a_wrong_password_is_reported(target: SecuredTarget) -> None:
    with pytest.raises(ClientError, match="rejects the login by SCRAM-SHA-512"):
        describe_tls(job(target.login, security=target.logging_in(password="wrong")))


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[TlsSocket, ssl.SSLSocket]]:
    authority = SelfSignedCa()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.issue().write_pem(tmp_path / "broker.pem"))
    client = ssl.create_default_context(cafile=str(authority.write_pem(tmp_path / "ca.pem")))
    client.sslsocket_class = TlsSocket
    ours, theirs = socket.socketpair()
    made: list[ssl.SSLSocket] = []
    thread = threading.Thread(target=lambda: made.append(server.wrap_socket(theirs, server_side=True)))
    thread.start()
    secured = client.wrap_socket(ours, server_hostname="localhost")
    thread.join()
    assert isinstance(secured, TlsSocket)
    with secured, made[0]:
        yield secured, made[0]


def test_what_is_for_tls_itself_is_no_answer_and_no_end(ends: tuple[TlsSocket, ssl.SSLSocket]) -> None:
    ours, theirs = ends
    ours.setblocking(False)  # the tickets of the session have come, and no answer
    responses = ResponseReader(ours)
    assert responses.poll() is None
    frame = (8).to_bytes(4, "big") + bytes(8)
    theirs.sendall(frame)
    assert responses.wait() == frame


def test_a_request_waits_for_room_where_the_socket_does_not_block(
    ends: tuple[TlsSocket, ssl.SSLSocket],
) -> None:
    ours, theirs = ends
    ours.setblocking(False)
    size, received = 4 << 20, 0

    def take() -> None:
        nonlocal received
        while received < size:
            received += len(theirs.recv(1 << 16))

    reader = threading.Timer(0.2, take)
    reader.start()
    data = memoryview(bytes(size))
    while data:
        data = data[ours.send(data) :]
    reader.join()
    assert received == size
