"""The common part of the three APIs about ACLs: filters, and invalid requests.

Source: Kafka's AclApis, and its requests' own checks.
"""

from __future__ import annotations

from typing import Final, Protocol

from lockstep.broker.authorization.acl import AclBindingFilter
from lockstep.broker.requests.request_context import ConnectionRejected

NO_AUTHORIZER_HERE: Final = "No Authorizer is configured on the broker"
NO_AUTHORIZER: Final = "No Authorizer is configured."
_UNKNOWN: Final = 0


class FilterFields(Protocol):
    """A filter as it is on the wire."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def read_filter(fields: FilterFields) -> AclBindingFilter:
    """The filter of a request. Raises ConnectionRejected."""
    reject_unknown(
        fields.resource_type_filter, fields.pattern_type_filter, fields.operation, fields.permission_type
    )
    return AclBindingFilter.of(
        (
            fields.resource_type_filter,
            fields.resource_name_filter,
            fields.pattern_type_filter,
            fields.principal_filter,
            fields.host_filter,
            fields.operation,
            fields.permission_type,
        )
    )


def reject_unknown(*elements: int) -> None:
    """An ACL with an element of kind 0, "unknown", is no request: Kafka closes the connection."""
    if _UNKNOWN in elements:
        raise ConnectionRejected("a request about ACLs contains UNKNOWN elements")
