"""The client's side of one connection to a broker, without the socket: versions are negotiated, requests get
correlation ids and frames, responses are cut out of the stream, matched with their requests and decoded.
`Peer` is the base of both kinds of connection.

Owns: the correlation ids, the pending requests, the receive buffer, the table of versions that both sides
speak, the reason why the connection ended. The owner of the socket sends the buffers of `encode_request`,
receives into `get_buffer`, and takes responses from `receive`.

Invariants: the caller of `receive` may keep its frames. After an error that is neither Unsupported nor
BrokerError the stream has no known frame boundary, so the owner of the socket closes and calls `fail`.

Does not: wait, close. Source: KIP-482 (headers), KIP-511 (negotiation).
"""

from __future__ import annotations

import struct
from typing import Final, Generic, TypeVar

from lockstep.protocol.api import ApiKey, request_header_version, response_header_version
from lockstep.protocol.client_errors import BrokerError, ClientError, Unsupported
from lockstep.protocol.compiler import decode, encode
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.frame_reader import MAX_REGULAR_BUFFER_BYTES, FrameReader, MalformedFrame
from lockstep.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lockstep.protocol.primitives import Buffer, MalformedMessage, skip_tags
from lockstep.protocol.private_messages import PRIVATE_MESSAGES

T = TypeVar("T", bound=Struct)
Waiter = TypeVar("Waiter")

CLIENT_VERSION: Final = "0.2.0"
MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024
"""More than any Fetch requests: a peer that sends more is no broker."""
NEWEST_API_VERSIONS: Final = 4
"""The version of ApiVersions that is tried first."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">hhi")
_CORRELATION_ID_BYTES: Final = 4


class ClientProtocol(Generic[Waiter]):
    """The protocol of one connection; each pending request has a waiter of the socket's owner.

    Args: peer: the broker, as errors name it; software: our name in ApiVersions.
    """

    def __init__(self, peer: str, client_id: str, software: str) -> None:
        self.versions: dict[int, tuple[int, int]] = {}
        """API key -> lowest and highest version the broker speaks."""
        self.features: dict[str, tuple[int, int]] = {}
        """Name -> lowest and highest level the broker supports."""
        self.pending: dict[int, Waiter] = {}
        """The requests without their response, by correlation id."""
        self.failure: ClientError | None = None
        """Why the connection ended; None while it is usable."""
        self._peer = peer
        self._client_id = client_id.encode()
        self._software = software
        self._reader = FrameReader(MAX_RESPONSE_BYTES)
        self._next_correlation_id = 0

    @property
    def is_served(self) -> bool:
        """True once a request other than the first, which every listener serves, has had its response."""
        return self._next_correlation_id - len(self.pending) > 1

    def version_of(self, request: type[Struct], newest: int | None = None) -> int:
        """The highest version that both sides speak, up to `newest`. Raises Unsupported."""
        schema = request.SCHEMA
        key = schema.api_key
        assert key is not None
        if key in PRIVATE_MESSAGES:  # no ApiVersions lists these
            return schema.versions.high
        lowest, highest = self.versions.get(key, (0, -1))
        version = min(highest, schema.versions.high if newest is None else newest)
        if version < max(lowest, schema.versions.low):
            theirs = f"versions {lowest} to {highest}" if highest >= 0 else "nothing"
            raise Unsupported(
                f"{self._peer} speaks {theirs} of {ApiKey(key).name}, this client {schema.versions.low} to "
                f"{schema.versions.high}"
            )
        return version

    def api_versions_request(self) -> ApiVersionsRequest:
        """The first request, in NEWEST_API_VERSIONS; its response is for `accept_versions`."""
        return ApiVersionsRequest(client_software_name=self._software, client_software_version=CLIENT_VERSION)

    def accept_versions(self, version: int, frame: memoryview) -> int | None:
        """Takes the response to the `api_versions_request` of this version: None once both sides have agreed,
        else the version to request next.

        Raises Unsupported, BrokerError, ClientError.
        """
        is_rejected = len(frame) >= 6 and _INT16.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION
        response = self.decode_response(ApiVersionsResponse, 0 if is_rejected else version, frame)
        if is_rejected:
            theirs = [api.max_version for api in response.api_keys if api.api_key == ApiKey.API_VERSIONS]
            if version == 0 or (theirs and not 0 <= theirs[0] < version):
                raise Unsupported(f"{self._peer} speaks no version of API_VERSIONS that this client does")
            return theirs[0] if theirs else 0
        if response.error_code:
            raise BrokerError(response.error_code, self._peer)
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        self.features = {
            each.name: (each.min_version, each.max_version) for each in response.supported_features
        }
        return None

    def encode_request(self, request: Struct, version: int, waiter: Waiter | None) -> list[Buffer]:
        """The request's frame in parts. Raises ClientError, and `failure` where the connection has ended.

        Args: waiter: returned by `receive` with the response; None if there is none (Produce with acks=0).
        """
        if self.failure is not None:
            raise self.failure
        api_key = request.SCHEMA.api_key
        assert api_key is not None
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
        name = self._client_id
        header = _HEADER.pack(api_key, version, correlation_id) + _INT16.pack(len(name)) + name
        if request_header_version(api_key, version) == 2:
            header += b"\0"
        try:
            body = encode(request, version)
        except MalformedMessage as error:
            raise ClientError(f"cannot be encoded for {self._peer} in version {version}: {error}") from None
        if waiter is not None:
            self.pending[correlation_id] = waiter
        return [_INT32.pack(len(header) + sum(map(len, body))) + header, *body]

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """The buffer for the next bytes; never empty."""
        return self._reader.get_buffer(sizehint)

    def receive(self, count: int) -> list[tuple[Waiter, memoryview]]:
        """The responses that `count` more bytes completed, in order, each with its request's waiter.

        Raises ClientError; then the requests of all of these responses are still pending, for `fail`.
        """
        try:
            frames = self._reader.commit(count)
        except MalformedFrame as error:
            raise ClientError(f"{self._peer} does not speak Kafka's protocol: {error}") from None
        found: dict[int, memoryview] = {}
        for frame in frames:
            if len(frame) < _CORRELATION_ID_BYTES:
                raise ClientError(f"{self._peer} does not speak Kafka's protocol: {len(frame)} byte response")
            # A small frame lies in the receive buffer and would not outlive the next read.
            kept = frame if len(frame) > MAX_REGULAR_BUFFER_BYTES else memoryview(bytes(frame))
            correlation_id = _INT32.unpack_from(frame)[0]
            if correlation_id not in self.pending or correlation_id in found:
                raise ClientError(
                    f"{self._peer} does not speak Kafka's protocol: a response with correlation id "
                    f"{correlation_id}, which no pending request has"
                )
            found[correlation_id] = kept
        return [(self.pending.pop(correlation_id), kept) for correlation_id, kept in found.items()]

    def fail(self, error: ClientError) -> list[Waiter]:
        """Records why the connection ended; the first reason counts. Returns the waiters, which get no
        response."""
        if self.failure is None:
            self.failure = error
        waiters = list(self.pending.values())
        self.pending.clear()
        return waiters

    def decode_response(self, response_type: type[T], version: int, frame: memoryview) -> T:
        """Decodes the response in a frame; its record data are views of the frame. Raises ClientError."""
        api_key = response_type.SCHEMA.api_key
        assert api_key is not None
        pos = _CORRELATION_ID_BYTES
        try:
            if response_header_version(api_key, version):
                pos = skip_tags(frame, pos) if frame[pos] else pos + 1
            return decode(response_type, version, frame, pos)
        except (MalformedMessage, IndexError) as error:
            raise ClientError(f"{self._peer} sent a response that cannot be read: {error}") from None


class Peer(Generic[Waiter]):
    """The broker at the other end of a connection: its address and the versions it serves."""

    def __init__(self, host: str, port: int, client_id: str, software: str) -> None:
        self.host = host
        self.port = port
        self._protocol: ClientProtocol[Waiter] = ClientProtocol(str(self), client_id, software)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """API key -> lowest and highest version the broker speaks."""
        return self._protocol.versions

    @property
    def features(self) -> dict[str, tuple[int, int]]:
        """Name -> lowest and highest level the broker supports."""
        return self._protocol.features

    def version_of(self, request: type[Struct], newest: int | None = None) -> int:
        """The highest version that both sides speak, up to `newest`. Raises Unsupported."""
        return self._protocol.version_of(request, newest)
