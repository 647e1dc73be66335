"""DescribeAcls: this broker has no access rules; the response is an error."""

from __future__ import annotations

from broker.context import ClientContext, HandlerResponse
from broker.handlers.access_rules import NO_AUTHORIZER_HERE, reject_unknown
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

API_KEY = ApiKey.DESCRIBE_ACLS
VERSIONS = (1, 3)


def handle(context: ClientContext, header: RequestHeader, request: DescribeAclsRequest) -> HandlerResponse:
    """SECURITY_DISABLED."""
    reject_unknown(
        request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    )
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_HERE)
