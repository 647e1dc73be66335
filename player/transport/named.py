"""The transports by their names in configurations and command lines; only the one asked for is imported."""

from __future__ import annotations

from typing import Literal

from player.transport.seam import Server, Sessions, Streams

Transport = Literal["grpc", "raw"]


def streams_of(transport: Transport) -> Streams:
    """On the player's side. Raises ValueError: there is no such transport."""
    if transport == "grpc":
        from player.transport.grpc_streams import GrpcStreams

        return GrpcStreams()
    if transport == "raw":
        from player.transport.raw_streams import RawStreams

        return RawStreams()
    raise _unknown(transport)


def server_of(transport: Transport, sessions: Sessions) -> Server:
    """On a target's side. Raises ValueError: there is no such transport."""
    if transport == "grpc":
        from player.transport.grpc_server import GrpcServer

        return GrpcServer(sessions)
    if transport == "raw":
        from player.transport.raw_server import RawServer

        return RawServer(sessions)
    raise _unknown(transport)


def _unknown(transport: object) -> ValueError:
    return ValueError(f"there is no transport {transport!r}: grpc, raw")
