"""SaslHandshake and SaslAuthenticate: a client that wants to log in learns that no listener has SASL."""

from __future__ import annotations

import pytest

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from lockstep.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.fakes import Caller, client


@pytest.mark.parametrize("version", [0, 1])
async def test_a_listener_without_users_is_logged_once_a_minute(
    caller: Caller, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    for number in range(3):
        caller.client = client(peer=f"client {number}")
        response = await caller.call(SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    await caller.call(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), 2)
    (line,) = [each for each in caplog.messages if "this listener has no SASL" in each]
    assert line.startswith("client 0: ")
