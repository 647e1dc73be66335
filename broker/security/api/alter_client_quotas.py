"""AlterClientQuotas: a quota is rejected, since none would be enforced; removing none succeeds (KIP-546)."""

from __future__ import annotations

from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_client_quotas import AlterClientQuotasResponse, EntityData, EntryData
from lockstep.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest
from lockstep.protocol.messages.alter_client_quotas_request import EntryData as RequestedEntry


class AlterClientQuotas(RequestHandler):
    """See the module."""

    api_key = ApiKey.ALTER_CLIENT_QUOTAS
    versions = (0, 1)

    def handle(
        self, client: ClientContext, header: RequestHeader, request: AlterClientQuotasRequest
    ) -> HandlerResponse:
        """One result per entity."""
        return AlterClientQuotasResponse(entries=[_result(entry) for entry in request.entries])


def _result(entry: RequestedEntry) -> EntryData:
    result = EntryData(
        error_message=None,
        entity=[
            EntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
        ],
    )
    if not all(each.remove for each in entry.ops):
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = "Quotas are not enforced by this broker"
    return result
