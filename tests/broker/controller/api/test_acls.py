"""CreateAcls, DeleteAcls, DescribeAcls: without an authorizer, and with one whose only super user asks."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.authorization import authorizer as authorization
from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, StandardAuthorizer
from lockstep.broker.controller import acl_changes
from lockstep.broker.controller.acl_changes import AclChanges
from lockstep.broker.controller.api.create_acls import CreateAcls
from lockstep.broker.controller.api.delete_acls import DeleteAcls
from lockstep.broker.controller.api.describe_acls import DescribeAcls
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.requests.kafka_principal import KafkaPrincipal
from lockstep.broker.requests.request_context import ConnectionRejected
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from lockstep.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from lockstep.protocol.messages.describe_acls import DescribeAclsRequest
from lockstep.storage.rate_limited_log import RateLimitedLog
from tests.broker.controller.api.conftest import FakeTopics
from tests.broker.fakes import Caller, FakeMetadata
from tests.support.cases import each_case

DISABLED, INVALID = ErrorCode.SECURITY_DISABLED, ErrorCode.INVALID_REQUEST
DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class AclCaller(Caller):
    """The handlers on metadata of their own, and the ACLs that are recorded there."""

    def __init__(self, enabled: bool = True) -> None:
        metadata = FakeMetadata()
        metadata.lead_here(METADATA_GROUP)
        self.acls, self.topics = metadata.image.acls, FakeTopics(metadata)
        authorizer: Authorizer = ALLOW_ALL
        if enabled:
            denials = RateLimitedLog(lambda: 0.0, authorization.log)
            authorizer = StandardAuthorizer(self.acls, ["User:ANONYMOUS"], denials)
        changes = AclChanges(metadata.image, self.topics)
        super().__init__(
            CreateAcls(changes, authorizer),
            DeleteAcls(self.acls, changes, authorizer),
            DescribeAcls(self.acls, authorizer),
        )

    async def create(self, *creations: AclCreation, version: int = 3) -> list[tuple[int, str | None]]:
        response = await self.call(CreateAclsRequest(creations=list(creations)), version)
        return [(each.error_code, each.error_message) for each in response.results]

    async def described(self, **changed: Any) -> list[tuple[str, int, list[str]]]:
        response = await self.call(description(**changed), 3)
        assert response.error_code == ErrorCode.NONE
        return [
            (each.resource_name, each.pattern_type, [acl.principal for acl in each.acls])
            for each in response.resources
        ]


@pytest.fixture
def caller() -> AclCaller:
    return AclCaller()


def creation(**changed: Any) -> AclCreation:
    fields: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AclCreation(**{**fields, **changed})


def deletion(**changed: Any) -> DeleteAclsFilter:
    fields: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DeleteAclsFilter(**{**fields, **changed})


def description(**changed: Any) -> DescribeAclsRequest:
    each = deletion(**changed)
    return DescribeAclsRequest(
        **{name: getattr(each, name) for name in (field.name for field in each.SCHEMA.fields)}
    )


@each_case("version", range(1, 4))
async def test_without_an_authorizer(version: int) -> None:
    caller = AclCaller(enabled=False)
    response = await caller.call(description(), version)
    assert (response.error_code, response.resources) == (DISABLED, [])
    assert response.error_message == "No Authorizer is configured on the broker"
    disabled = DISABLED, "No Authorizer is configured."
    assert await caller.create(creation(), creation(operation=99), version=version) == [disabled] * 2
    response = await caller.call(DeleteAclsRequest(filters=[deletion(), deletion()]), version)
    assert [(each.error_code, each.matching_acls) for each in response.filter_results] == [(DISABLED, [])] * 2
    assert len(caller.acls) == 0


async def test_nothing_requested(caller: AclCaller) -> None:
    assert (await caller.call(CreateAclsRequest(), 3)).results == []
    assert (await caller.call(DeleteAclsRequest(), 3)).filter_results == []


@each_case(
    "request_",
    [
        description(resource_type_filter=0),
        description(pattern_type_filter=0),
        description(operation=0),
        description(permission_type=0),
        CreateAclsRequest(creations=[creation(), creation(operation=0)]),
        DeleteAclsRequest(filters=[deletion(), deletion(permission_type=0)]),
    ],
    ids=repr,
)
async def test_unknown_elements_close_the_connection(request_: Any) -> None:
    for caller in (AclCaller(), AclCaller(enabled=False)):
        with pytest.raises(ConnectionRejected, match="UNKNOWN"):
            await caller.call(request_, 3)


async def test_the_life_of_acls(caller: AclCaller) -> None:
    prefixed = creation(resource_name="t-", resource_pattern_type=4, principal="User:b")
    assert await caller.create(creation(), creation(), prefixed) == [(0, None)] * 3
    assert await caller.create(creation()) == [(0, None)]
    assert len(caller.acls) == 2
    assert await caller.described() == [("t", 3, ["User:a"]), ("t-", 4, ["User:b"])]
    matching = {"resource_type_filter": 2, "resource_name_filter": "t-1", "pattern_type_filter": 2}
    assert await caller.described(**matching) == [("t-", 4, ["User:b"])]
    assert await caller.described(operation=99) == []
    response = await caller.call(DeleteAclsRequest(filters=[deletion(**matching), deletion()]), 3)
    found = [[acl.principal for acl in each.matching_acls] for each in response.filter_results]
    assert found == [["User:b"], ["User:a", "User:b"]]
    assert len(caller.acls) == 0


@each_case(
    "changed, text",
    [
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"principal": "a"}, "no colon is present"),
        ({"host": "example.org"}, "neither an IP address"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
    ],
)
async def test_an_acl_that_cannot_be(caller: AclCaller, changed: dict[str, Any], text: str) -> None:
    (bad, good) = await caller.create(creation(**changed), creation())
    assert bad[0] == INVALID and bad[1] is not None and text in bad[1]
    assert good == (0, None)
    assert len(caller.acls) == 1


async def test_a_filter_that_cannot_be(caller: AclCaller) -> None:
    await caller.create(creation())
    filters = [deletion(operation=99), deletion(resource_type_filter=99)]
    response = await caller.call(DeleteAclsRequest(filters=filters), 3)
    assert [(each.error_code, each.error_message) for each in response.filter_results] == [
        (INVALID, "Unknown entryFilter."),
        (INVALID, "Unknown patternFilter."),
    ]
    assert len(caller.acls) == 1


async def test_a_client_that_may_not(caller: AclCaller) -> None:
    await caller.create(creation())
    caller.client.principal = KafkaPrincipal("User", "a")
    denied = DENIED, "ALTER on CLUSTER:kafka-cluster is not authorized."
    assert await caller.create(creation(operation=4)) == [denied]
    response = await caller.call(DeleteAclsRequest(filters=[deletion()]), 3)
    assert [(each.error_code, each.error_message) for each in response.filter_results] == [denied]
    assert (await caller.call(description(), 3)).error_code == DENIED
    assert len(caller.acls) == 1


async def test_the_number_of_acls_is_limited(caller: AclCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_changes, "MAX_ACLS", 2)
    assert await caller.create(creation(), creation(operation=4)) == [(0, None)] * 2
    ((error, text),) = await caller.create(creation(operation=5))
    too_many = ErrorCode.POLICY_VIOLATION, "There are 2 ACLs, at most 2 can be."
    assert (error, text) == too_many
    assert await caller.create(creation()) == [(0, None)]
    assert await caller.create(creation(operation=5), creation()) == [too_many, (0, None)]


async def test_another_controller(caller: AclCaller) -> None:
    await caller.create(creation())
    caller.topics.is_controller = False
    assert [error for error, _ in await caller.create(creation(operation=4))] == [ErrorCode.NOT_CONTROLLER]
    response = await caller.call(DeleteAclsRequest(filters=[deletion(), deletion(operation=99)]), 3)
    assert [each.error_code for each in response.filter_results] == [ErrorCode.NOT_CONTROLLER, INVALID]
    assert len(caller.acls) == 1


async def test_each_acl_has_the_error_of_its_own(
    caller: AclCaller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log takes the first part of the changes and no other, as a disk does that becomes full."""
    monkeypatch.setattr(acl_changes, "COMMANDS_AT_ONCE", 2)
    caplog.set_level("INFO", "lockstep.acls")
    full = ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full: delete topics first."
    many = [creation(principal=f"User:{number}") for number in range(4)]
    caller.topics.fail_after(1)
    results = await caller.create(many[0], creation(operation=99), *many[1:], many[0])
    assert [error for error, _ in results] == [0, INVALID, 0, full[0], full[0], 0]
    assert results[3] == full and len(caller.acls) == 2
    assert sum("created the ACL" in each for each in caplog.messages) == 2
    caller.topics.fail_after(9)
    assert await caller.create(*many) == [(0, None)] * 4
    caller.topics.fail_after(1)
    one, all_of_them = deletion(principal_filter="User:3"), deletion()
    response = await caller.call(DeleteAclsRequest(filters=[all_of_them, deletion(operation=99), one]), 3)
    of_all, invalid, of_one = response.filter_results
    assert (of_all.error_code, invalid.error_code, of_one.error_code) == (0, INVALID, 0)
    left = {each.principal for each in of_all.matching_acls if each.error_code}
    assert len(left) == 2 and len(caller.acls) == 2
    assert {each.error_message for each in of_all.matching_acls} == {None, full[1]}
    assert [bool(each.error_code) for each in of_one.matching_acls] == ["User:3" in left]
    assert sum("deleted the ACL" in each for each in caplog.messages) == 2


async def test_many_at_once(caller: AclCaller) -> None:
    many = [creation(principal=f"User:{number}") for number in range(1_203)]
    assert await caller.create(*many) == [(0, None)] * 1_203
    response = await caller.call(DeleteAclsRequest(filters=[deletion()]), 3)
    assert len(response.filter_results[0].matching_acls) == 1_203
    assert len(caller.acls) == 0
