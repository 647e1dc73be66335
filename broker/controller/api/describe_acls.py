"""DescribeAcls: the ACLs that a filter means, by resource pattern (KIP-140).

Source: Kafka's AclApis.handleDescribeAcls, DescribeAclsResponse.aclsResources.
"""

from __future__ import annotations

from lockstep.broker.authorization.acl_cache import AclCache
from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.controller.acl_requests import NO_AUTHORIZER_HERE, read_filter
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


class DescribeAcls(RequestHandler):
    """See the module."""

    api_key = ApiKey.DESCRIBE_ACLS
    versions = (1, 3)

    def __init__(self, acls: AclCache, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._acls = acls
        self._is_enabled = authorizer.is_enabled
        self._access = authorizer.access(self.api_key)

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeAclsRequest
    ) -> HandlerResponse:
        """The ACLs; those of this node may be some milliseconds behind the controller's."""
        acl_filter = read_filter(request)
        if not self._is_enabled:
            return DescribeAclsResponse(
                error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_HERE
            )
        if not self._access.allows_on_cluster(client, AclOperation.DESCRIBE):
            rejection = cluster_denial(AclOperation.DESCRIBE)
            return DescribeAclsResponse(error_code=rejection.error, error_message=rejection.message)
        resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
        for acl in self._acls.find(acl_filter):
            pattern = acl.resource_type, acl.resource_name, acl.pattern_type
            resource = resources.get(pattern)
            if resource is None:
                resource = resources[pattern] = DescribeAclsResource(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    pattern_type=acl.pattern_type,
                )
            resource.acls.append(
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
            )
        return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
