"""DeleteAcls: this broker keeps no access rules, each filter gets an error."""

from __future__ import annotations

from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.broker.security.access_rules import NO_AUTHORIZER, reject_unknown
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


class DeleteAcls(RequestHandler):
    """See the module."""

    api_key = ApiKey.DELETE_ACLS
    versions = (1, 3)

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DeleteAclsRequest
    ) -> HandlerResponse:
        """SECURITY_DISABLED for every filter."""
        for each in request.filters:
            reject_unknown(
                each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type
            )
        return DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
                for _ in request.filters
            ]
        )
