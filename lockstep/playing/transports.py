"""The transport that a configuration asks for; only that one is imported."""

from __future__ import annotations

from player.transport.seam import Streams


def streams_of(transport: str) -> Streams:
    """`transport`: "grpc" or "raw"."""
    if transport == "raw":
        from player.transport.raw_streams import RawStreams

        return RawStreams()
    from player.transport.grpc_streams import GrpcStreams

    return GrpcStreams()
