"""DescribeAcls, CreateAcls, DeleteAcls: no authorizer, said as Kafka says it."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.requests.request_context import ConnectionRejected
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from lockstep.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from lockstep.protocol.messages.describe_acls import DescribeAclsRequest
from tests.broker.fakes import Caller
from tests.support.cases import each_case

DISABLED = ErrorCode.SECURITY_DISABLED


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
        "pattern_type_filter": 3,
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
async def test_in_every_version(caller: Caller, version: int) -> None:
    response = await caller.call(description(), version)
    assert (response.error_code, response.resources) == (DISABLED, [])
    assert response.error_message == "No Authorizer is configured on the broker"
    response = await caller.call(CreateAclsRequest(creations=[creation(), creation(operation=99)]), version)
    assert [(each.error_code, each.error_message) for each in response.results] == [
        (DISABLED, "No Authorizer is configured.")
    ] * 2
    response = await caller.call(DeleteAclsRequest(filters=[deletion(), deletion()]), version)
    assert [(each.error_code, each.matching_acls) for each in response.filter_results] == [(DISABLED, [])] * 2


async def test_nothing_asked(caller: Caller) -> None:
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
async def test_unknown_elements_close_the_connection(caller: Caller, request_: Any) -> None:
    with pytest.raises(ConnectionRejected, match="UNKNOWN"):
        await caller.call(request_, 3)
