"""ApiVersions: what this broker serves, computed from the handlers (KIP-511).

The answer to a version we do not know is the router's: it cannot even be decoded. No features are
advertised: a lowest version of 0 breaks old Java clients (KAFKA-17011), and none is finalized yet.
"""

from __future__ import annotations

import re

from broker.context import Answer, ClientContext, Services
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

API_KEY = ApiKey.API_VERSIONS
VERSIONS = (0, 4)
NAMED_SINCE = 3
_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: ClientContext, header: RequestHeader, request: ApiVersionsRequest) -> Answer:
    """The whole table; INVALID_REQUEST where the client's name or version is no name (KIP-511)."""
    named = _NAME.fullmatch(request.client_software_name) and _NAME.fullmatch(request.client_software_version)
    if header.api_version >= NAMED_SINCE and not named:
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=_table(context.services))


def unknown_version(services: Services) -> ApiVersionsResponse:
    """For a version above ours, encoded as version 0: the client tries again with what it reads."""
    first, last = services.versions[API_KEY]
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=API_KEY, min_version=first, max_version=last)],
    )


def _table(services: Services) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=first, max_version=last)
        for key, (first, last) in sorted(services.versions.items())
    ]
