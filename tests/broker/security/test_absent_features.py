"""APIs that every Kafka lists: each version is answered with the error of a Kafka without the feature."""

from __future__ import annotations

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from lockstep.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from lockstep.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from lockstep.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
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


async def test_each_user_is_refused_a_scram_credential_once(caller: Caller) -> None:
    deletions = [ScramCredentialDeletion(name="a", mechanism=1), ScramCredentialDeletion(name="b")]
    upsertions = [ScramCredentialUpsertion(name="b", mechanism=1, iterations=4096)]
    answer = await caller.call(
        AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions), 0
    )
    assert [(each.user, each.error_code) for each in answer.results] == [
        ("a", ErrorCode.UNSUPPORTED_VERSION),
        ("b", ErrorCode.UNSUPPORTED_VERSION),
    ]
    assert (await caller.call(AlterUserScramCredentialsRequest(), 0)).results == []


async def test_no_user_has_a_scram_credential(caller: Caller) -> None:
    users = [UserName(name=name) for name in ("a", "b", "b")]
    response = await caller.call(DescribeUserScramCredentialsRequest(users=users), 0)
    assert response.error_code == ErrorCode.NONE
    assert [(each.user, each.error_code) for each in response.results] == [
        ("a", ErrorCode.RESOURCE_NOT_FOUND),
        ("b", ErrorCode.DUPLICATE_RESOURCE),
    ]
    assert (await caller.call(DescribeUserScramCredentialsRequest(users=None), 0)).results == []
