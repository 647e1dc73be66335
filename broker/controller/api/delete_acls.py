"""DeleteAcls: ACLs that filters mean are not in force from now on (KIP-140).

An ACL that two filters mean is in the results of both, as in Kafka; one that could not be deleted has its
error there.
Source: Kafka's AclControlManager.deleteAcls.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.broker.authorization.acl import AclBinding, AclBindingFilter
from lockstep.broker.authorization.acl_cache import AclCache
from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.controller.acl_changes import AclChanges, Failures
from lockstep.broker.controller.acl_requests import NO_AUTHORIZER, read_filter
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, Needs, RequestHandler
from lockstep.protocol.acl_codes import (
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

Found = Sequence[AclBinding] | RequestError
"""The ACLs that a filter means, or its error."""


class DeleteAcls(RequestHandler):
    """See the module."""

    api_key = ApiKey.DELETE_ACLS
    versions = (1, 3)
    needs = Needs.CONTROLLER

    def __init__(self, acls: AclCache, changes: AclChanges, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._acls = acls
        self._changes = changes
        self._is_enabled = authorizer.is_enabled
        self._access = authorizer.access(self.api_key)

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: DeleteAclsRequest
    ) -> DeleteAclsResponse:
        """One result for each filter."""
        filters = [read_filter(each) for each in request.filters]
        rejection: RequestError | None = None
        if not self._is_enabled:
            rejection = RequestError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        elif not self._access.allows_on_cluster(client, AclOperation.ALTER):
            rejection = cluster_denial(AclOperation.ALTER)
        if rejection is not None:
            return DeleteAclsResponse(filter_results=[_result(rejection, {}) for _ in filters])
        found = [self._find(each) for each in filters]
        failures: Failures = {}
        try:
            failures = await self._changes.delete(
                client, [acl for each in found if not isinstance(each, RequestError) for acl in each]
            )
        except RequestError as error:
            found = [each if isinstance(each, RequestError) else error for each in found]
        return DeleteAclsResponse(filter_results=[_result(each, failures) for each in found])

    def _find(self, acl_filter: AclBindingFilter) -> Found:
        if acl_filter.resource_type is AclResourceType.UNKNOWN or (
            acl_filter.pattern_type is PatternType.UNKNOWN
        ):
            return RequestError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        if acl_filter.operation is AclOperation.UNKNOWN or (
            acl_filter.permission is AclPermissionType.UNKNOWN
        ):
            return RequestError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
        return self._acls.find(acl_filter)


def _result(found: Found, failures: Failures) -> DeleteAclsFilterResult:
    if isinstance(found, RequestError):
        return DeleteAclsFilterResult(error_code=found.error, error_message=found.message)
    return DeleteAclsFilterResult(
        error_message=None, matching_acls=[_matching_acl(acl, failures.get(acl)) for acl in found]
    )


def _matching_acl(acl: AclBinding, failure: RequestError | None) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE if failure is None else failure.error,
        error_message=None if failure is None else failure.message,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
