"""The first requests of a connection, without the socket, for both kinds of connection.

Owns: their order: versions, then a login where the client has one; and when the next login is due. Each
generator yields a request with its version, takes the frame of the response, and returns the seconds after
which a request has to wait for another login. Does not: know mechanisms (`sasl`), or close anything.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from lockstep.kafka_client.sasl import login, renewed_after_s
from lockstep.kafka_client.security import ClientSecurity
from lockstep.protocol.client_protocol import NEWEST_API_VERSIONS, ClientProtocol
from lockstep.protocol.fields import Struct

Steps = Generator[tuple[Struct, int], memoryview, float]


def set_up(protocol: ClientProtocol[Any], security: ClientSecurity, peer: str) -> Steps:
    """ApiVersions, and again in the broker's version where ours is too new for it (KIP-511); then a login.

    Raises Unsupported, BrokerError, and as `log_in`. Args: peer: the broker, as errors name it.
    """
    version: int | None = NEWEST_API_VERSIONS
    while version is not None:
        frame = yield protocol.api_versions_request(), version
        version = protocol.accept_versions(version, frame)
    if security.mechanism is None:
        return float("inf")
    return (yield from log_in(protocol, security, peer))


def log_in(protocol: ClientProtocol[Any], security: ClientSecurity, peer: str) -> Steps:
    """The requests of one login. Raises AuthenticationError, InvalidProperty, Unsupported, ClientError."""
    steps = login(security, peer)
    try:
        request, response = next(steps)
        while True:
            version = protocol.version_of(type(request))
            frame = yield request, version
            request, response = steps.send(protocol.decode_response(response, version, frame))
    except StopIteration as done:
        return renewed_after_s(done.value)
