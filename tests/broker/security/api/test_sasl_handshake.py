"""SaslHandshake: a client that wants to log in hears at once that nobody can."""

from __future__ import annotations

import pytest

from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.metadata import MetadataRequest
from lockstep.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.wire import Client


@pytest.mark.parametrize("version", [0, 1])
async def test_nobody_can_log_in_and_the_log_says_so_once_a_minute(
    broker: Broker, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    peers = []
    for _ in range(3):
        client = await Client.connect(broker.port)
        peers.append("{}:{}".format(*client.writer.get_extra_info("sockname")))
        answer = await client.call(SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert (await client.call(MetadataRequest(topics=[]), 12)).cluster_id, "nothing else has changed"
        await client.close()
    (line,) = [each for each in caplog.messages if "does not support SASL yet" in each]
    assert line.startswith(f"{peers[0]}: ")
