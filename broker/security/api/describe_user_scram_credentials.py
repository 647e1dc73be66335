"""DescribeUserScramCredentials: which users have SCRAM credentials, never the credentials (KIP-554)."""

from __future__ import annotations

from collections import Counter

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.broker.security.scram_users import ScramUsers
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


class DescribeUserScramCredentials(RequestHandler):
    """See the module."""

    api_key = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    versions = (0, 0)

    def __init__(self, users: ScramUsers, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._users = users

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeUserScramCredentialsRequest
    ) -> HandlerResponse:
        """The mechanisms of each named user, of all where none is named."""
        if not self._access.allows_on_cluster(client, AclOperation.DESCRIBE):
            denied = cluster_denial(AclOperation.DESCRIBE)
            error, text = denied.error, denied.message
            results = [
                DescribeUserScramCredentialsResult(user="", error_code=error, error_message=text)
                for _ in request.users or ()
            ]
            return DescribeUserScramCredentialsResponse(error_code=error, error_message=text, results=results)
        named = Counter(user.name for user in request.users or ()) or Counter(self._users.names())
        return DescribeUserScramCredentialsResponse(
            error_message="", results=[self._result(user, count > 1) for user, count in named.items()]
        )

    def _result(self, user: str, named_twice: bool) -> DescribeUserScramCredentialsResult:
        infos = [
            CredentialInfo(mechanism=number, iterations=iterations)
            for number, iterations in self._users.describe(user)
        ]
        if infos and not named_twice:
            return DescribeUserScramCredentialsResult(user=user, error_message="", credential_infos=infos)
        if named_twice:
            error = ErrorCode.DUPLICATE_RESOURCE
            message = "Cannot describe SCRAM credentials for the same user twice in a single request"
        else:
            error = ErrorCode.RESOURCE_NOT_FOUND
            message = "Attempt to describe a user credential that does not exist"
        return DescribeUserScramCredentialsResult(
            user=user, error_code=error, error_message=f"{message}: {user[:250]}"
        )
