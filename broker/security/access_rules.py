"""The shared responses of the three APIs about access rules, of which there are none (KIP-140).

Source: Kafka's AclApis without an authorizer, and its requests' own checks.
"""

from __future__ import annotations

from typing import Final

from lockstep.broker.requests.request_context import ConnectionRejected

NO_AUTHORIZER_HERE: Final = "No Authorizer is configured on the broker"
NO_AUTHORIZER: Final = "No Authorizer is configured."
_UNKNOWN: Final = 0


def reject_unknown(*elements: int) -> None:
    """A rule with an element of kind 0, "unknown", is no request: Kafka closes the connection."""
    if _UNKNOWN in elements:
        raise ConnectionRejected("a request about access rules contains UNKNOWN elements")
