"""CreateAcls: ACLs that are in force from now on (KIP-140, KIP-290). An existing ACL is no error.

Source: Kafka's AclApis.handleCreateAcls and AclControlManager.
"""

from __future__ import annotations

from lockstep.broker.authorization.acl import AclBinding, InvalidAcl
from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.controller.acl_changes import AclChanges
from lockstep.broker.controller.acl_requests import NO_AUTHORIZER, reject_unknown
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, Needs, RequestHandler
from lockstep.protocol.acl_codes import CLUSTER_NAME, AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


class CreateAcls(RequestHandler):
    """See the module."""

    api_key = ApiKey.CREATE_ACLS
    versions = (1, 3)
    needs = Needs.CONTROLLER

    def __init__(self, changes: AclChanges, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._changes = changes
        self._is_enabled = authorizer.is_enabled
        self._access = authorizer.access(self.api_key)

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: CreateAclsRequest
    ) -> CreateAclsResponse:
        """One result for each ACL."""
        for each in request.creations:
            reject_unknown(
                each.resource_type, each.resource_pattern_type, each.operation, each.permission_type
            )
        rejection: RequestError | None = None
        if not self._is_enabled:
            rejection = RequestError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        elif not self._access.allows_on_cluster(client, AclOperation.ALTER):
            rejection = cluster_denial(AclOperation.ALTER)
        if rejection is not None:
            return CreateAclsResponse(results=[_result(rejection) for _ in request.creations])
        acls = [_read_acl(each) for each in request.creations]
        good = [acl for acl in acls if isinstance(acl, AclBinding)]
        try:
            failures = await self._changes.create(client, good)
        except RequestError as error:
            failures = dict.fromkeys(good, error)
        return CreateAclsResponse(
            results=[_result(acl if isinstance(acl, RequestError) else failures.get(acl)) for acl in acls]
        )


def _read_acl(creation: AclCreation) -> AclBinding | RequestError:
    """The ACL, or the error of one that cannot be."""
    acl = AclBinding.of(
        (
            creation.resource_type,
            creation.resource_name,
            creation.resource_pattern_type,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
    )
    problem = ""
    if acl.resource_type is AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        problem = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not acl.resource_name:
        problem = "Invalid empty resource name"
    else:
        try:
            acl.check()
        except InvalidAcl as error:
            problem = str(error)
    return RequestError(ErrorCode.INVALID_REQUEST, problem) if problem else acl


def _result(rejection: RequestError | None) -> AclCreationResult:
    if rejection is None:
        return AclCreationResult(error_message=None)
    return AclCreationResult(error_code=rejection.error, error_message=rejection.message)
