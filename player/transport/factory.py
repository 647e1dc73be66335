"""The transports by their names in configurations and command lines; only the requested one is imported."""

from __future__ import annotations

from typing import Literal

from lockstep.player.transport.interface import Server, Sessions, Streams
from lockstep.player.transport.tls_files import TlsFiles

Transport = Literal["grpc", "raw"]
NO_TLS = "the transport raw has no TLS: use grpc, or leave TLS out"


def make_streams(transport: Transport, tls: TlsFiles | None = None) -> Streams:
    """The player's side of a transport. Raises ValueError: there is no such transport, or keys that do not
    fit; OSError."""
    if transport == "grpc":
        from lockstep.player.transport.grpc_streams import GrpcStreams

        return GrpcStreams(credentials=None if tls is None else tls.channel_credentials())
    if transport == "raw":
        if tls is not None:
            raise ValueError(NO_TLS)
        from lockstep.player.transport.raw_streams import RawStreams

        return RawStreams()
    raise _unknown(transport)


def make_server(transport: Transport, sessions: Sessions, tls: TlsFiles | None = None) -> Server:
    """A target's side of a transport. Raises as `make_streams`."""
    if transport == "grpc":
        from lockstep.player.transport.grpc_server import GrpcServer

        return GrpcServer(sessions, credentials=None if tls is None else tls.server_credentials())
    if transport == "raw":
        if tls is not None:
            raise ValueError(NO_TLS)
        from lockstep.player.transport.raw_server import RawServer

        return RawServer(sessions)
    raise _unknown(transport)


def _unknown(transport: object) -> ValueError:
    return ValueError(f"there is no transport {transport!r}: grpc, raw")
