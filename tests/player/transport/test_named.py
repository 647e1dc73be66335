"""Each transport that a configuration may ask for is there, on both sides."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from player.transport.grpc_server import GrpcServer
from player.transport.grpc_streams import GrpcStreams
from player.transport.named import Transport, server_of, streams_of
from player.transport.raw_server import RawServer
from player.transport.raw_streams import RawStreams
from tests.player.transport.ends import Target

KINDS: dict[Transport, tuple[type, type]] = {
    "grpc": (GrpcStreams, GrpcServer),
    "raw": (RawStreams, RawServer),
}


def test_these_are_all() -> None:
    assert set(KINDS) == set(get_args(Transport))


@pytest.mark.parametrize("transport", KINDS)
async def test_by_name(transport: Transport) -> None:
    streams, server = streams_of(transport), server_of(transport, Target())
    assert (type(streams), type(server)) == KINDS[transport]
    await streams.close()


def test_there_is_no_other() -> None:
    other: Any = "http"
    with pytest.raises(ValueError, match="no transport 'http'"):
        streams_of(other)
    with pytest.raises(ValueError, match="no transport 'http'"):
        server_of(other, Target())
