"""AlterUserScramCredentials: passwords of SCRAM users are set and deleted (KIP-554)."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.broker.security.scram_users import Requested, ScramUsers
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


class AlterUserScramCredentials(RequestHandler):
    """See the module."""

    api_key = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    versions = (0, 0)
    needs = Needs.CONTROLLER

    def __init__(self, users: ScramUsers, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._users = users

    def handle(
        self, client: ClientContext, header: RequestHeader, request: AlterUserScramCredentialsRequest
    ) -> HandlerResponse:
        """One result for each user."""
        if not self._access.allows_on_cluster(client, AclOperation.ALTER):
            denied = cluster_denial(AclOperation.ALTER)
            named = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
            return _response(dict.fromkeys(named, denied))
        requested = [Requested(each.name, each.mechanism) for each in request.deletions]
        requested += [
            Requested(
                each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password)
            )
            for each in request.upsertions
        ]
        return self._change(requested)

    async def _change(self, requested: list[Requested]) -> AlterUserScramCredentialsResponse:
        return _response(await self._users.change(requested))


def _response(results: Mapping[str, RequestError | None]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=user,
                error_code=error.error if error else 0,
                error_message=error.message if error else None,
            )
            for user, error in results.items()
        ]
    )
