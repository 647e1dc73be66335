"""The transports by their names in configurations and command lines; only the requested one is imported."""

from __future__ import annotations

from typing import Literal

from lockstep.player.transport.interface import Server, Sessions, Streams

Transport = Literal["grpc", "raw"]


def make_streams(transport: Transport) -> Streams:
    """The player's side of a transport. Raises ValueError: there is no such transport."""
    if transport == "grpc":
        from lockstep.player.transport.grpc_streams import GrpcStreams

        return GrpcStreams()
    if transport == "raw":
        from lockstep.player.transport.raw_streams import RawStreams

        return RawStreams()
    raise _unknown(transport)


def make_server(transport: Transport, sessions: Sessions) -> Server:
    """A target's side of a transport. Raises ValueError: there is no such transport."""
    if transport == "grpc":
        from lockstep.player.transport.grpc_server import GrpcServer

        return GrpcServer(sessions)
    if transport == "raw":
        from lockstep.player.transport.raw_server import RawServer

        return RawServer(sessions)
    raise _unknown(transport)


def _unknown(transport: object) -> ValueError:
    return ValueError(f"there is no transport {transport!r}: grpc, raw")
