"""AlterClientQuotas: quotas of users, clients and addresses are set and removed (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.quotas.quota_changes import Parts, QuotaAlteration, QuotaChanges
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.messages.alter_client_quotas import AlterClientQuotasResponse, EntityData, EntryData
from lockstep.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest


class AlterClientQuotas(RequestHandler):
    """See the module."""

    api_key = ApiKey.ALTER_CLIENT_QUOTAS
    versions = (0, 1)
    needs = Needs.CONTROLLER

    def __init__(self, changes: QuotaChanges, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._changes = changes

    def handle(
        self, client: ClientContext, header: RequestHeader, request: AlterClientQuotasRequest
    ) -> HandlerResponse:
        """One result for each entity."""
        alterations = [
            QuotaAlteration(
                tuple((part.entity_type, part.entity_name) for part in each.entity),
                tuple((op.key, None if op.remove else op.value) for op in each.ops),
            )
            for each in request.entries
        ]
        if not self._access.allows_on_cluster(client, AclOperation.ALTER_CONFIGS):
            denied = cluster_denial(AclOperation.ALTER_CONFIGS)
            return _response(dict.fromkeys([each.parts for each in alterations], denied))
        return self._change(alterations, request.validate_only)

    async def _change(
        self, alterations: list[QuotaAlteration], validate_only: bool
    ) -> AlterClientQuotasResponse:
        return _response(await self._changes.change(alterations, validate_only))


def _response(results: Mapping[Parts, RequestError | None]) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            EntryData(
                error_code=error.error if error else 0,
                error_message=error.message if error else None,
                entity=[EntityData(entity_type=each, entity_name=name) for each, name in parts],
            )
            for parts, error in results.items()
        ]
    )
