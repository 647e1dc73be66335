"""DescribeAcls: this broker has no access rules; the response is an error."""

from __future__ import annotations

from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.broker.security.access_rules import NO_AUTHORIZER_HERE, reject_unknown
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


class DescribeAcls(RequestHandler):
    """See the module."""

    api_key = ApiKey.DESCRIBE_ACLS
    versions = (1, 3)

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeAclsRequest
    ) -> HandlerResponse:
        """SECURITY_DISABLED."""
        reject_unknown(
            request.resource_type_filter,
            request.pattern_type_filter,
            request.operation,
            request.permission_type,
        )
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_HERE)
