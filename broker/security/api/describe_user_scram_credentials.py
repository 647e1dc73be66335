"""DescribeUserScramCredentials: no user has credentials, there is no authentication (KIP-554)."""

from __future__ import annotations

from collections import Counter

from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


class DescribeUserScramCredentials(RequestHandler):
    """See the module."""

    api_key = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    versions = (0, 0)

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeUserScramCredentialsRequest
    ) -> HandlerResponse:
        """RESOURCE_NOT_FOUND for each named user."""
        users = Counter(user.name for user in request.users or ())
        return DescribeUserScramCredentialsResponse(
            error_message="", results=[_result(user, count > 1) for user, count in users.items()]
        )


def _result(user: str, named_twice: bool) -> DescribeUserScramCredentialsResult:
    if named_twice:
        error = ErrorCode.DUPLICATE_RESOURCE
        message = "Cannot describe SCRAM credentials for the same user twice in a single request"
    else:
        error = ErrorCode.RESOURCE_NOT_FOUND
        message = "Attempt to describe a user credential that does not exist"
    return DescribeUserScramCredentialsResult(
        user=user, error_code=error, error_message=f"{message}: {user[:250]}"
    )
