"""AlterUserScramCredentials: no credential is stored, since nothing would check it (KIP-554).

Kafka's response has UNSUPPORTED_VERSION for each user where its metadata has no place for SCRAM, whatever
else is wrong with the request; so does Lockstep.
"""

from __future__ import annotations

from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

REASON = "SCRAM is not supported by this broker"


class AlterUserScramCredentials(RequestHandler):
    """See the module."""

    api_key = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    versions = (0, 0)

    def handle(
        self, client: ClientContext, header: RequestHeader, request: AlterUserScramCredentialsRequest
    ) -> HandlerResponse:
        """One error for each named user."""
        deleted, upserted = ([each.name for each in part] for part in (request.deletions, request.upsertions))
        users = dict.fromkeys([*deleted, *upserted])
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(
                    user=user, error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=REASON
                )
                for user in users
            ]
        )
