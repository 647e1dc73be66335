"""Encrypted sockets of the load generator, logged in, with the methods of plain ones.

Owns: `secure`, the handshake and the login before any timed loop, by Lockstep's own client (`lockstep.
kafka_client`), which every broker takes; in the loops OpenSSL alone is between a job and its socket.
A record of TLS has at most 16 KB, and every receive buffer has room for one, so that OpenSSL buffers nothing
that epoll would not report. Does not: make keys or users (`bench.sessions.secured`).
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Final

from bench.load.wire import UnexpectedResponse
from lockstep.kafka_client.sasl import login
from lockstep.kafka_client.security import ClientSecurity
from lockstep.protocol.client_protocol import ClientProtocol
from lockstep.protocol.fields import Struct

SEND_TIMEOUT_S: Final = 60.0
_CLIENT_ID: Final = "bench"

Result = dict[str, Any]


class TlsSocket(ssl.SSLSocket):
    """A socket whose `send` waits for room where it does not block, as a record is sent whole or not."""

    def send(self, data: Any, flags: int = 0) -> int:
        while True:
            try:
                return super().send(data, flags)
            except ssl.SSLWantWriteError:
                if not select.select([], [self], [], SEND_TIMEOUT_S)[1]:
                    raise UnexpectedResponse(f"the broker took nothing for {SEND_TIMEOUT_S:.0f} s") from None


def secure(sock: socket.socket, host: str, properties: Mapping[str, str]) -> TlsSocket:
    """The connected socket with TLS and a login. Args: properties: Kafka's of a client. Raises OSError,
    ClientError, UnexpectedResponse."""
    security = ClientSecurity.of(properties)
    assert security.context is not None and security.mechanism is not None, "neither TLS nor a login"
    security.context.sslsocket_class = TlsSocket
    secured = security.context.wrap_socket(sock, server_hostname=host)
    assert isinstance(secured, TlsSocket)
    protocol: ClientProtocol[type[Struct]] = ClientProtocol(host, _CLIENT_ID, _CLIENT_ID)
    steps = login(security, host)
    try:
        request, response_type = next(steps)
        while True:
            request, response_type = steps.send(_call(secured, protocol, request, response_type))
    except StopIteration:
        return secured


def _call(
    sock: socket.socket, protocol: ClientProtocol[type[Struct]], request: Struct, response_type: type[Struct]
) -> Struct:
    version = request.SCHEMA.versions.high
    sock.sendall(b"".join(protocol.encode_request(request, version, response_type)))
    while True:
        count = sock.recv_into(protocol.get_buffer())
        if not count:
            raise UnexpectedResponse("the broker closed the connection during the login")
        for _, frame in protocol.receive(count):
            return protocol.decode_response(response_type, version, frame)


def describe_tls(job: Result) -> Result:
    """The version of TLS and the cipher suite of a connection."""
    sock = socket.create_connection((job["host"], job["port"]), SEND_TIMEOUT_S)
    with secure(sock, job["host"], job["security"]) as secured:
        cipher = secured.cipher()
        return {"version": secured.version(), "cipher": cipher[0] if cipher else ""}
