"""CreateAcls: this broker keeps no access rules, each gets an error."""

from __future__ import annotations

from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.broker.security.access_rules import NO_AUTHORIZER, reject_unknown
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


class CreateAcls(RequestHandler):
    """See the module."""

    api_key = ApiKey.CREATE_ACLS
    versions = (1, 3)

    def handle(
        self, client: ClientContext, header: RequestHeader, request: CreateAclsRequest
    ) -> HandlerResponse:
        """SECURITY_DISABLED for every rule."""
        for each in request.creations:
            reject_unknown(
                each.resource_type, each.resource_pattern_type, each.operation, each.permission_type
            )
        return CreateAclsResponse(
            results=[
                AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
                for _ in request.creations
            ]
        )
