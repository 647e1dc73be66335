"""ACLs of a cluster: what `lockstep acls` needs of the APIs of ACLs, on top of a `Client`.

Does not: know what an ACL allows. Raises BrokerError throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import BrokerError
from lockstep.protocol.acl_codes import AclOperation, AclPermissionType, AclResourceType, PatternType
from lockstep.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from lockstep.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from lockstep.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

Code = TypeVar("Code", bound=IntEnum)


@dataclass(frozen=True, order=True)
class Acl:
    """One ACL."""

    resource: AclResourceType
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.operation.name} on {self.pattern.name} {self.resource.name} "
            f"{self.name} to {self.principal} from {self.host}"
        )


@dataclass(frozen=True)
class AclFilter:
    """A selection of ACLs; None and ANY are all, and MATCH all patterns that fit a name."""

    resource: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermissionType = AclPermissionType.ANY

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.operation.name} on {self.pattern.name} {self.resource.name} "
            f"{self.name or 'of any name'} to {self.principal or 'anyone'} from {self.host or 'any host'}"
        )


async def list_acls(client: Client, acl_filter: AclFilter) -> list[Acl]:
    """The ACLs that a filter means, in order."""
    request = DescribeAclsRequest(
        resource_type_filter=acl_filter.resource,
        resource_name_filter=acl_filter.name,
        pattern_type_filter=acl_filter.pattern,
        principal_filter=acl_filter.principal,
        host_filter=acl_filter.host,
        operation=acl_filter.operation,
        permission_type=acl_filter.permission,
    )
    response = await (await client.any_broker()).call(request, DescribeAclsResponse)
    if response.error_code:
        raise BrokerError(response.error_code, "ACLs", response.error_message)
    return sorted(
        Acl(
            _code(AclResourceType, resource.resource_type),
            resource.resource_name,
            _code(PatternType, resource.pattern_type),
            each.principal,
            each.host,
            _code(AclOperation, each.operation),
            _code(AclPermissionType, each.permission_type),
        )
        for resource in response.resources
        for each in resource.acls
    )


async def create_acls(client: Client, acls: Sequence[Acl]) -> None:
    """Adds ACLs; those that are there stay."""
    creations = [
        AclCreation(
            resource_type=each.resource,
            resource_name=each.name,
            resource_pattern_type=each.pattern,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        for each in acls
    ]
    connection = await client.any_broker()
    response = await connection.call(CreateAclsRequest(creations=creations), CreateAclsResponse)
    for acl, result in zip(acls, response.results, strict=False):
        if result.error_code:
            raise BrokerError(result.error_code, str(acl), result.error_message)


async def delete_acls(client: Client, filters: Sequence[AclFilter]) -> list[Acl]:
    """Removes the ACLs that any of the filters means; returns them in order."""
    requested = [
        DeleteAclsFilter(
            resource_type_filter=each.resource,
            resource_name_filter=each.name,
            pattern_type_filter=each.pattern,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        for each in filters
    ]
    response = await (await client.any_broker()).call(
        DeleteAclsRequest(filters=requested), DeleteAclsResponse
    )
    removed: set[Acl] = set()
    for result in response.filter_results:
        if result.error_code:
            raise BrokerError(result.error_code, "ACLs", result.error_message)
        for match in result.matching_acls:
            if match.error_code:
                raise BrokerError(match.error_code, str(_match_to_acl(match)), match.error_message)
            removed.add(_match_to_acl(match))
    return sorted(removed)


def _match_to_acl(match: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        _code(AclResourceType, match.resource_type),
        match.resource_name,
        _code(PatternType, match.pattern_type),
        match.principal,
        match.host,
        _code(AclOperation, match.operation),
        _code(AclPermissionType, match.permission_type),
    )


def _code(kind: type[Code], number: int) -> Code:
    """A number that only later versions of Kafka know is UNKNOWN, 0."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
