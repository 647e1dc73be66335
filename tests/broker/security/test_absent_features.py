"""APIs that every Kafka lists: each version is answered with the error of a Kafka without the feature."""

from __future__ import annotations

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from lockstep.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from lockstep.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from lockstep.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from lockstep.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.broker.fakes import Caller
from tests.support.cases import each_case


@each_case("version", range(3))
async def test_sasl_authenticate_is_an_illegal_state(caller: Caller, version: int) -> None:
    answer = await caller.call(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version)
    assert (answer.error_code, bytes(answer.auth_bytes)) == (ErrorCode.ILLEGAL_SASL_STATE, b"")
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"


@each_case("version", range(1, 4))
async def test_delegation_tokens_are_not_allowed_without_authentication(caller: Caller, version: int) -> None:
    error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    created = await caller.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), version)
    assert (created.error_code, created.principal_name, created.max_timestamp_ms) == (error, "ANONYMOUS", -1)
    assert created.token_requester_principal_name == ("ANONYMOUS" if version == 3 else "")
    described = await caller.call(DescribeDelegationTokenRequest(owners=None), version)
    assert (described.error_code, described.tokens) == (error, [])
    if version < 3:
        for request in (RenewDelegationTokenRequest(hmac=b"x"), ExpireDelegationTokenRequest(hmac=b"x")):
            answer = await caller.call(request, version)
            assert (answer.error_code, answer.expiry_timestamp_ms) == (error, -1)


async def test_the_wanted_owner_of_a_token_is_named_in_the_refusal(caller: Caller) -> None:
    request = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="alice")
    answer = await caller.call(request, 3)
    assert (answer.principal_name, answer.token_requester_principal_name) == ("alice", "ANONYMOUS")
