"""Each transport that a configuration may ask for is there, on both sides."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from lockstep.player.transport.factory import Transport, make_server, make_streams
from lockstep.player.transport.grpc_server import GrpcServer
from lockstep.player.transport.grpc_streams import GrpcStreams
from lockstep.player.transport.raw_server import RawServer
from lockstep.player.transport.raw_streams import RawStreams
from tests.player.transport.ends import Target
from tests.support.cases import each_case

KINDS: dict[Transport, tuple[type, type]] = {
    "grpc": (GrpcStreams, GrpcServer),
    "raw": (RawStreams, RawServer),
}


def test_these_are_all() -> None:
    assert set(KINDS) == set(get_args(Transport))


@each_case("transport", KINDS)
async def test_by_name(transport: Transport) -> None:
    streams, server = make_streams(transport), make_server(transport, Target())
    assert (type(streams), type(server)) == KINDS[transport]
    await streams.close()


def test_there_is_no_other() -> None:
    other: Any = "http"
    with pytest.raises(ValueError, match="no transport 'http'"):
        make_streams(other)
    with pytest.raises(ValueError, match="no transport 'http'"):
        make_server(other, Target())
