"""Each transport that a configuration may ask for is there."""

from __future__ import annotations

from typing import get_args

import pytest

from lockstep.playing.config import Transport
from lockstep.playing.transports import streams_of
from player.transport.grpc_streams import GrpcStreams
from player.transport.raw_streams import RawStreams


@pytest.mark.parametrize(("transport", "kind"), [("grpc", GrpcStreams), ("raw", RawStreams)])
async def test_by_name(transport: str, kind: type) -> None:
    assert transport in get_args(Transport)
    streams = streams_of(transport)
    assert isinstance(streams, kind)
    await streams.close()
