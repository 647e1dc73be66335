"""DescribeClientQuotas: the quotas of the entities that a filter matches (KIP-546).

Source: Kafka's ClientQuotasImage.describe.
"""

from __future__ import annotations

from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.quotas.quota_entity import ENTITY_TYPES, MAX_QUOTED_CHARACTERS
from lockstep.broker.quotas.quota_table import QuotaTable
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

_SPECIFIED: Final = 2


class DescribeClientQuotas(RequestHandler):
    """See the module."""

    api_key = ApiKey.DESCRIBE_CLIENT_QUOTAS
    versions = (0, 1)

    def __init__(self, quotas: QuotaTable, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._quotas = quotas

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeClientQuotasRequest
    ) -> HandlerResponse:
        """The entities that match, or the error of the filter."""
        if not self._access.allows_on_cluster(client, AclOperation.DESCRIBE_CONFIGS):
            denied = cluster_denial(AclOperation.DESCRIBE_CONFIGS)
            return DescribeClientQuotasResponse(
                error_code=denied.error, error_message=denied.message, entries=None
            )
        seen: set[str] = set()
        for component in request.components:
            problem = _component_error(component, seen)
            if problem is not None:
                error, message = problem
                return DescribeClientQuotasResponse(error_code=error, error_message=message, entries=None)
            seen.add(component.entity_type)
        if "ip" in seen and len(seen) > 1:
            return DescribeClientQuotasResponse(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="Invalid entity filter component combination. IP filter component should not "
                "be used with user or clientId filter component.",
                entries=None,
            )
        exact = {each.entity_type: each.match for each in request.components if each.match_type != _SPECIFIED}
        any_name = {each.entity_type for each in request.components if each.match_type == _SPECIFIED}
        entries = [
            EntryData(
                entity=[EntityData(entity_type=each, entity_name=name) for each, name in entity],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in self._quotas.find_matching(exact, any_name, request.strict)
        ]
        return DescribeClientQuotasResponse(error_message="", entries=entries)


def _component_error(component: ComponentData, seen: set[str]) -> tuple[ErrorCode, str] | None:
    kind, invalid = component.entity_type, ErrorCode.INVALID_REQUEST
    if not kind:
        return invalid, "Invalid empty entity type."
    if kind in seen:
        return invalid, f"Entity type {kind} cannot appear more than once in the filter."
    if kind not in ENTITY_TYPES:
        return ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind[:MAX_QUOTED_CHARACTERS]}"
    match component.match_type:
        case 0:
            if component.match is None:
                return invalid, "Request specified MATCH_TYPE_EXACT, but set match string to null."
        case 1 | 2:
            if component.match is not None:
                name = "DEFAULT" if component.match_type == 1 else "SPECIFIED"
                return invalid, f"Request specified MATCH_TYPE_{name}, but also specified a match string."
        case _:
            return invalid, f"Unknown match type {component.match_type}"
    return None
