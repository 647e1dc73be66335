"""AlterClientQuotas: a quota is rejected, since none would be enforced; removing none succeeds (KIP-546)."""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_client_quotas import AlterClientQuotasResponse, EntityData, EntryData
from lockstep.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest
from lockstep.protocol.messages.alter_client_quotas_request import EntryData as RequestedEntry


class AlterClientQuotas(RequestHandler):
    """See the module."""

    api_key = ApiKey.ALTER_CLIENT_QUOTAS
    versions = (0, 1)

    def __init__(self, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)

    def handle(
        self, client: ClientContext, header: RequestHeader, request: AlterClientQuotasRequest
    ) -> HandlerResponse:
        """One result per entity."""
        denied = None
        if not self._access.allows_on_cluster(client, AclOperation.ALTER_CONFIGS):
            denied = cluster_denial(AclOperation.ALTER_CONFIGS)
        return AlterClientQuotasResponse(entries=[_result(entry, denied) for entry in request.entries])


def _result(entry: RequestedEntry, denied: RequestError | None) -> EntryData:
    result = EntryData(
        error_message=None,
        entity=[
            EntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
        ],
    )
    if denied is not None:
        result.error_code, result.error_message = denied.error, denied.message
    elif not all(each.remove for each in entry.ops):
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = "Quotas are not enforced by this broker"
    return result
