"""The APIs about SCRAM users: a result for each user, with Kafka's errors."""

from __future__ import annotations

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from lockstep.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.broker.fakes import Caller


async def test_credentials_are_set_described_and_deleted(caller: Caller) -> None:
    a, b = (
        ScramCredentialUpsertion(
            name=name, mechanism=number, iterations=4096, salt=b"s", salted_password=b"p" * 32
        )
        for number, name in enumerate(("a", "b"), 1)
    )
    missing = ScramCredentialDeletion(name="c", mechanism=1)
    changed = await caller.call(AlterUserScramCredentialsRequest(deletions=[missing], upsertions=[b, a]), 0)
    assert [(each.user, each.error_code) for each in changed.results] == [
        ("c", ErrorCode.RESOURCE_NOT_FOUND),
        ("b", ErrorCode.NONE),
        ("a", ErrorCode.NONE),
    ]
    assert [bool(each.error_message) for each in changed.results] == [True, False, False]
    everybody = await caller.call(DescribeUserScramCredentialsRequest(users=None), 0)
    assert [
        (each.user, [(info.mechanism, info.iterations) for info in each.credential_infos])
        for each in everybody.results
    ] == [("a", [(1, 4096)]), ("b", [(2, 4096)])]
    gone = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="a", mechanism=1)])
    assert (await caller.call(gone, 0)).results[0].error_code == ErrorCode.NONE
    left = await caller.call(DescribeUserScramCredentialsRequest(users=[]), 0)
    assert [each.user for each in left.results] == ["b"]


async def test_named_users(caller: Caller) -> None:
    users = [UserName(name=name) for name in ("a", "b", "b")]
    response = await caller.call(DescribeUserScramCredentialsRequest(users=users), 0)
    assert response.error_code == ErrorCode.NONE
    assert [(each.user, each.error_code) for each in response.results] == [
        ("a", ErrorCode.RESOURCE_NOT_FOUND),
        ("b", ErrorCode.DUPLICATE_RESOURCE),
    ]
